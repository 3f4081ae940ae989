"""Topics beside the logs and streams of the peers: publishing, reading what is there, and the way
from publisher to consumer at a fixed rate.

Each client is the best that Python has for its broker, as far as those tried go. `bytes only` are
clients written here that make nothing of what they get: the most that can be had from those
brokers. Every topic has one partition, one publisher and one consumer, each a process of its own.
Only rows of the same strength are compared: synced before the acknowledgement, or acknowledged from
the page cache.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bench.peers import kafka, nats, rabbitmq, redis
from bench.race import NATS_SYNCED, Contender, Results, Round, against_best, against_redis, client, race
from bench.results import OURS, UNSYNCED, Measurement, Target
from bench.together import seconds, together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.peers.kafka import KafkaNode
    from bench.server import Server
    from bench.together import Role

OUR_SYNCED = "acks=all: each acknowledged after its fdatasync (group commit)"
OUR_UNSYNCED = "acks=1: acknowledged from the page cache; synced within 1 s"
READ = "read from the page cache"
SMALL, LARGE = b"m" * 100, b"m" * 1024
ENDING = b"m" * 8
WINDOW = 5_000
"""The unconfirmed messages of publishers of RabbitMQ and NATS."""
LIBRARY_WINDOW = 4_000
"""The same of nats-py; its default."""
PIPELINE = 1_000
RATE = 5_000
CONFLUENT = "confluent-kafka"


# ── what each broker's topic is ───────────────────────────────────────────────────────────────────


def _our_topic(broker: Server, name: str) -> None:
    client("sparrow").make(broker.url, name)


def _kafka_topic(node: KafkaNode, name: str) -> None:
    client("confluent").make(node.bootstrap, name)


def _synced_kafka_topic(node: KafkaNode, name: str) -> None:
    client("confluent").make(node.bootstrap, name, **{"flush.messages": "1"})


def _nats_stream(port: int, name: str) -> None:
    client("nats").make(port, name)


def _rabbitmq_stream(port: int, name: str) -> None:
    client("amqp").make(port, name, "stream")


def _redis_stream(port: int, _name: str) -> None:
    """Set the syncs of the server: the first message makes the stream."""
    client("redis").sync(port, "always")


def _lazy_redis_stream(port: int, _name: str) -> None:
    client("redis").sync(port, "everysec")


# ── publishing ────────────────────────────────────────────────────────────────────────────────────


def _our_publisher(acks: str | int, value: bytes, broker: Server, topic: str, count: int) -> list[Role]:
    return [partial(client("sparrow").publish, broker.url, topic, value, count, acks=acks)]


def _frontend_publisher(acks: str, value: bytes, broker: Server, topic: str, count: int) -> list[Role]:
    return [partial(client("confluent").publish, broker.kafka, topic, value, count, acks)]


def _kafka_publisher(value: bytes, node: KafkaNode, topic: str, count: int) -> list[Role]:
    return [partial(client("confluent").publish, node.bootstrap, topic, value, count, "all")]


def _nats_publisher(value: bytes, port: int, topic: str, count: int) -> list[Role]:
    return [partial(client("nats").publish, port, topic, value, count, LIBRARY_WINDOW)]


def _nats_bytes_publisher(value: bytes, port: int, topic: str, count: int) -> list[Role]:
    return [partial(client("nats").publish_bytes, port, topic, value, count, WINDOW)]


def _redis_publisher(suffix: str, value: bytes, port: int, topic: str, count: int) -> list[Role]:
    return [partial(getattr(client("redis"), f"publish{suffix}"), port, topic, value, count, PIPELINE)]


def _rabbitmq_publisher(value: bytes, port: int, topic: str, count: int) -> list[Role]:
    return [partial(client("amqp").publish, port, topic, value, count, WINDOW)]


def _publishers(value: bytes) -> tuple[Contender, ...]:
    native, lazy_native = (partial(_our_publisher, acks, value) for acks in ("all", 1))
    frontend, lazy_frontend = (partial(_frontend_publisher, acks, value) for acks in ("all", "1"))
    theirs, library = partial(_kafka_publisher, value), partial(_nats_publisher, value)
    pushed, piped = partial(_nats_bytes_publisher, value), partial(_redis_publisher, "_bytes", value)
    pipelines, confirmed = partial(_redis_publisher, "", value), partial(_rabbitmq_publisher, value)
    return (
        Contender(OURS, "acks=all", OUR_SYNCED, _our_topic, native),
        Contender(OURS, "acks=1", OUR_UNSYNCED, _our_topic, lazy_native, 1.0, UNSYNCED),
        Contender(OURS, f"{CONFLUENT}, acks=all", OUR_SYNCED, _our_topic, frontend),
        Contender(OURS, f"{CONFLUENT}, acks=1", OUR_UNSYNCED, _our_topic, lazy_frontend, 1.0, UNSYNCED),
        Contender("Kafka", f"{CONFLUENT}, flush.messages=1", kafka.SYNCED, _synced_kafka_topic, theirs, 0.2),
        Contender("Kafka", CONFLUENT, kafka.UNSYNCED, _kafka_topic, theirs, 1.0, UNSYNCED),
        Contender("NATS", "nats-py", nats.UNSYNCED, _nats_stream, library, 0.03, UNSYNCED),
        Contender("NATS", "bytes only", nats.UNSYNCED, _nats_stream, pushed, 0.3, UNSYNCED),
        Contender(NATS_SYNCED, "bytes only", nats.SYNCED, _nats_stream, pushed, 0.003),
        Contender("Redis", "redis-py", redis.DURABILITY, _redis_stream, pipelines, 0.1),
        Contender("Redis", "bytes only", redis.DURABILITY, _redis_stream, piped, 0.3),
        Contender("Redis", "bytes only, everysec", redis.UNSYNCED, _lazy_redis_stream, piped, 0.3, UNSYNCED),
        Contender(
            "RabbitMQ", "stream, bytes only", rabbitmq.STREAM, _rabbitmq_stream, confirmed, 0.2, UNSYNCED
        ),
    )


def publish(runs: int, scale: float) -> list[Measurement]:
    """Pipelined through one connection, each message acknowledged."""
    small = _rates("topic: publish 100 B", _publishers(SMALL), runs, round(1_000_000 * scale), _rate)
    small[0].target = Target(300_000)
    return small + _rates("topic: publish 1 KB", _publishers(LARGE), runs, round(300_000 * scale), _rate)


# ── consuming ─────────────────────────────────────────────────────────────────────────────────────


def _filled(publishers: Sequence[Role], reader: Role) -> list[Role]:
    """The reader alone, after the publishers have done their work."""
    together(*publishers)
    return [reader]


def _our_reader(value: bytes, broker: Server, topic: str, count: int) -> list[Role]:
    filling = _our_publisher(1, value, broker, topic, count)
    return _filled(filling, partial(client("sparrow").read, broker.url, topic, count))


def _frontend_reader(value: bytes, broker: Server, topic: str, count: int) -> list[Role]:
    filling = _frontend_publisher("1", value, broker, topic, count)
    return _filled(filling, partial(client("confluent").read, broker.kafka, topic, count))


def _kafka_reader(value: bytes, node: KafkaNode, topic: str, count: int) -> list[Role]:
    filling = _kafka_publisher(value, node, topic, count)
    return _filled(filling, partial(client("confluent").read, node.bootstrap, topic, count))


def _nats_reader(value: bytes, port: int, topic: str, count: int) -> list[Role]:
    filling = _nats_bytes_publisher(value, port, topic, count)
    return _filled(filling, partial(client("nats").read, port, topic, count))


def _nats_bytes_reader(value: bytes, port: int, topic: str, count: int) -> list[Role]:
    filling = _nats_bytes_publisher(value, port, topic, count)
    return _filled(filling, partial(client("nats").read_bytes, port, topic, ENDING, count))


def _redis_reader(suffix: str, value: bytes, port: int, topic: str, count: int) -> list[Role]:
    filling = _redis_publisher("_bytes", value, port, topic, count)
    read = getattr(client("redis"), f"read{suffix}")
    return _filled(filling, partial(read, port, topic, count, PIPELINE))


def _rabbitmq_reader(value: bytes, port: int, topic: str, count: int) -> list[Role]:
    filling = _rabbitmq_publisher(value, port, topic, count)
    consume = partial(client("amqp").consume, port, topic, count, WINDOW, WINDOW // 10, is_stream=True)
    return _filled(filling, consume)


def _readers(value: bytes) -> tuple[Contender, ...]:
    found: tuple[tuple[str, str, Any, Any, float], ...] = (
        (OURS, "in batches", _our_topic, _our_reader, 1.0),
        (OURS, CONFLUENT, _our_topic, _frontend_reader, 1.0),
        ("Kafka", CONFLUENT, _kafka_topic, _kafka_reader, 1.0),
        ("NATS", "nats-py", _nats_stream, _nats_reader, 0.1),
        ("NATS", "bytes only", _nats_stream, _nats_bytes_reader, 0.3),
        ("Redis", "redis-py", _lazy_redis_stream, partial(_redis_reader, ""), 0.1),
        ("Redis", "bytes only", _lazy_redis_stream, partial(_redis_reader, "_bytes"), 0.3),
        ("RabbitMQ", "stream, bytes only", _rabbitmq_stream, _rabbitmq_reader, 0.2),
    )
    return tuple(
        Contender(broker, name, READ, make, partial(roles, value), share, "")
        for broker, name, make, roles, share in found
    )


def consume(runs: int, scale: float) -> list[Measurement]:
    """A topic that is full, read from its beginning by one consumer."""
    small = _rates("topic: consume 100 B", _readers(SMALL), runs, round(1_000_000 * scale), _rate_of_counted)
    small[0].target = Target(600_000)
    return small + _rates(
        "topic: consume 1 KB", _readers(LARGE), runs, round(300_000 * scale), _rate_of_counted
    )


def _rate(each: Round) -> float:
    return each.rate


def _rate_of_counted(each: Round) -> float:
    """Return the rate of messages received after the clock was started: clients begin with those
    that they were sent at once.
    """
    return float(each.spans[-1].found) / seconds(each.spans)


def _rates(
    figure: str, contenders: tuple[Contender, ...], runs: int, count: int, of_round: Callable[[Round], float]
) -> list[Measurement]:
    """A row for each; then how each of Sparrow's compares with the best peer of its strength."""
    results = race(contenders, runs, count)
    rows = {each: results[each].row(figure, "msg/s", each, of_round) for each in contenders}
    ratios = [
        against_best(f"{figure}: {contender}, of the fastest peer's rate", row, rows, more_is_better=True)
        for contender, row in rows.items()
        if contender.broker == OURS
    ]
    return [*rows.values(), *ratios]


# ── latency ───────────────────────────────────────────────────────────────────────────────────────


def _our_pace(acks: str | int, broker: Server, topic: str, count: int) -> list[Role]:
    ours = client("sparrow")
    return [
        partial(ours.publish_at_rate, broker.url, topic, RATE, count, acks=acks),
        partial(ours.read_late, broker.url, topic, count),
    ]


def _confluent_pace(
    acks: str, broker: Server | KafkaNode, topic: str, count: int, *, linger_ms: int = 0
) -> list[Role]:
    library = client("confluent")
    bootstrap = broker.bootstrap if isinstance(broker, kafka.KafkaNode) else broker.kafka
    return [
        partial(library.publish_at_rate, bootstrap, topic, RATE, count, acks, linger_ms=linger_ms),
        partial(library.read_late, bootstrap, topic, count),
    ]


def _nats_pace(kind: str, port: int, topic: str, count: int) -> list[Role]:
    theirs = client("nats")
    return [
        partial(getattr(theirs, f"publish{kind}_at_rate"), port, topic, RATE, count),
        partial(getattr(theirs, f"read{kind}_late"), port, topic, count),
    ]


def _redis_pace(port: int, topic: str, count: int) -> list[Role]:
    theirs = client("redis")
    return [
        partial(theirs.publish_at_rate, port, topic, RATE, count),
        partial(theirs.read_late, port, topic, count),
    ]


def _rabbitmq_pace(port: int, topic: str, count: int) -> list[Role]:
    theirs = client("amqp")
    return [
        partial(theirs.publish_at_rate, port, topic, RATE, count),
        partial(theirs.work_late, port, topic, count, is_stream=True),
    ]


_native, _lazy_native = partial(_our_pace, "all"), partial(_our_pace, 1)
_frontend, _lazy_frontend = partial(_confluent_pace, "all"), partial(_confluent_pace, "1")
_gathered = partial(_confluent_pace, "all", linger_ms=5)
"""Kafka that syncs each batch does not keep up with batches of one message."""
_pushed = partial(_nats_pace, "_bytes")
_PACED = (
    Contender(OURS, "acks=all", OUR_SYNCED, _our_topic, _native),
    Contender(OURS, "acks=1", OUR_UNSYNCED, _our_topic, _lazy_native, 1.0, UNSYNCED),
    Contender(OURS, f"{CONFLUENT}, acks=all", OUR_SYNCED, _our_topic, _frontend),
    Contender(OURS, f"{CONFLUENT}, acks=1", OUR_UNSYNCED, _our_topic, _lazy_frontend, 1.0, UNSYNCED),
    Contender(
        "Kafka", f"{CONFLUENT}, flush.messages=1, linger 5 ms", kafka.SYNCED, _synced_kafka_topic, _gathered
    ),
    Contender("Kafka", CONFLUENT, kafka.UNSYNCED, _kafka_topic, _frontend, 1.0, UNSYNCED),
    Contender("NATS", "nats-py", nats.UNSYNCED, _nats_stream, partial(_nats_pace, ""), 1.0, UNSYNCED),
    Contender("NATS", "bytes only", nats.UNSYNCED, _nats_stream, _pushed, 1.0, UNSYNCED),
    Contender(NATS_SYNCED, "bytes only", nats.SYNCED, _nats_stream, _pushed, 0.3),
    Contender("Redis", "redis-py", redis.DURABILITY, _redis_stream, _redis_pace),
    Contender("Redis", "redis-py, everysec", redis.UNSYNCED, _lazy_redis_stream, _redis_pace, 1.0, UNSYNCED),
    Contender(
        "RabbitMQ", "stream, bytes only", rabbitmq.STREAM, _rabbitmq_stream, _rabbitmq_pace, 1.0, UNSYNCED
    ),
)


def latency(runs: int, scale: float) -> list[Measurement]:
    """From the time at which a message was due to be published to the consumer's function."""
    results = race(_PACED, runs, round(RATE * max(1.0, 5 * scale)))
    return [row for word in ("p50", "p99", "p999") for row in _latencies(word, results)]


def _latencies(word: str, results: dict[Contender, Results]) -> list[Measurement]:
    """One quantile: a row for each, then how Sparrow's compare with the best peer's of their
    strength.
    """
    shown = word.replace("p999", "p99.9")
    figure = f"topic: publish to consumer at {RATE:,} msg/s, {shown}"

    def of_round(each: Round) -> float:
        return float(getattr(each.latencies, word))

    rows = {each: found.row(figure, "ms", each, of_round) for each, found in results.items()}
    for contender, row in rows.items():
        row.note = row.note or results[contender].behind(RATE)
    ratios = [
        against_best(
            f"{figure}: {contender}, of the quickest peer's", rows[contender], rows, more_is_better=False
        )
        for contender in _PACED
        if contender.broker == OURS and not contender.client.startswith(CONFLUENT)
    ]
    if word == "p50":
        target = Target(1.1, at_least=False)
        ratios.append(against_redis(rows[_PACED[0]], rows, target, more_is_better=False))
    return [*rows.values(), *ratios]
