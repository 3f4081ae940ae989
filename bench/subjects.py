"""Brokers as what is started, filled and killed: how each is asked whether it serves, and how much
it has.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.peers import kafka, nats, rabbitmq, redis
from bench.peers.daemon import Daemon, Peer
from bench.race import client
from bench.results import OURS, SYNCED, UNSYNCED
from bench.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.peers.kafka import KafkaNode
    from bench.together import Role

VALUE = b"m" * 1024
QUEUE = "bench"
WINDOW = 5_000
"""Messages that are not acknowledged yet while it is filled."""
PIPELINE = 1_000
_TABLE_WRITTEN_S = 10.0


@dataclass(frozen=True)
class Subject:
    """A broker that is started, filled and killed."""

    broker: str
    client: str
    """The text of its row on how it stores messages."""
    durability: str
    prepared: Callable[[Path], AbstractContextManager[Peer]]
    answer: Callable[[Any], object]
    """Asks it something; raises while it does not serve."""
    make: Callable[[Any], object]
    fill: Callable[[Any, int], Role]
    """Publishes one message and then this many of `VALUE`; each acknowledged."""
    end: Callable[[Any], int]
    """Returns the number of messages that it reports; raises while it does not serve."""
    strength: str = SYNCED
    """Durability of acknowledged messages: SYNCED or UNSYNCED."""


# ── Sparrow ───────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _sparrow(root: Path) -> Iterator[Peer]:
    broker = Server(root / "data", "--default-partitions", "1")
    yield Peer(Daemon(broker.command, root / "log", broker.port, broker.environment), broker)


def _make_topic(broker: Server) -> None:
    client("sparrow").make(broker.url, QUEUE)


def _fill_topic(broker: Server, count: int) -> Role:
    return partial(client("sparrow").publish, broker.url, QUEUE, VALUE, count)


def _end_of_topic(broker: Server) -> int:
    found: int = client("sparrow").end(broker.url, QUEUE)
    return found


def _topics(broker: Server) -> object:
    return client("sparrow").topics(broker.url)


# ── NATS ──────────────────────────────────────────────────────────────────────────────────────────


def _make_stream(port: int) -> None:
    client("nats").make(port, QUEUE)


def _fill_stream(port: int, count: int) -> Role:
    return partial(client("nats").publish_bytes, port, QUEUE, VALUE, count, WINDOW)


def _end_of_stream(port: int) -> int:
    found: int = client("nats").end(port, QUEUE)
    return found


def _about_jetstream(port: int) -> object:
    return client("nats").about(port)


# ── Redis ─────────────────────────────────────────────────────────────────────────────────────────


def _fill_redis(port: int, count: int) -> Role:
    return partial(client("redis").publish_bytes, port, QUEUE, VALUE, count, PIPELINE)


def _end_in_redis(port: int) -> int:
    found: int = client("redis").end(port, QUEUE)
    return found


# ── RabbitMQ ──────────────────────────────────────────────────────────────────────────────────────


def _make_quorum(port: int) -> None:
    client("amqp").make(port, QUEUE, "quorum")
    # Its table of queues is written to the disk some seconds later: a kill -9 before that takes the
    # queue with all that is in it.
    time.sleep(_TABLE_WRITTEN_S)


def _fill_quorum(port: int, count: int) -> Role:
    return partial(client("amqp").publish, port, QUEUE, VALUE, count, WINDOW)


def _ready_in_quorum(port: int) -> int:
    found: int = client("amqp").ready(port, QUEUE, "quorum")
    return found


def _amqp_connection(port: int) -> object:
    return client("amqp").Link(port).close()


# ── Kafka ─────────────────────────────────────────────────────────────────────────────────────────


def _make_kafka_topic(node: KafkaNode) -> None:
    client("confluent").make(node.bootstrap, QUEUE)


def _fill_kafka_topic(node: KafkaNode, count: int) -> Role:
    return partial(client("confluent").publish, node.bootstrap, QUEUE, VALUE, count, "all")


def _end_of_kafka_topic(node: KafkaNode) -> int:
    found: int = client("confluent").end(node.bootstrap, QUEUE)
    return found


def _kafka_metadata(node: KafkaNode) -> object:
    return client("confluent").brokers(node.bootstrap)


def _nothing(_: object) -> None:
    """A stream of Redis is there when its first message is."""


OUR_DURABILITY = "acks=all: each acknowledged after its fdatasync (group commit)"
SUBJECTS = (
    Subject(OURS, "", OUR_DURABILITY, _sparrow, _topics, _make_topic, _fill_topic, _end_of_topic),
    Subject(
        "NATS",
        "stream",
        nats.UNSYNCED,
        nats.prepared,
        _about_jetstream,
        _make_stream,
        _fill_stream,
        _end_of_stream,
        UNSYNCED,
    ),
    Subject(
        "Redis",
        "stream",
        redis.DURABILITY,
        redis.prepared,
        _end_in_redis,
        _nothing,
        _fill_redis,
        _end_in_redis,
    ),
    Subject(
        "RabbitMQ",
        "quorum queue",
        rabbitmq.QUORUM,
        rabbitmq.prepared,
        _amqp_connection,
        _make_quorum,
        _fill_quorum,
        _ready_in_quorum,
    ),
    Subject(
        "Kafka",
        "topic",
        kafka.UNSYNCED,
        kafka.prepared,
        _kafka_metadata,
        _make_kafka_topic,
        _fill_kafka_topic,
        _end_of_kafka_topic,
        UNSYNCED,
    ),
)
