"""Queues at work: publisher and consumer in processes of their own, at once; beside RabbitMQ, Redis
Streams and NATS JetStream in the same run.

Each client is the best that Python has for its broker. `bytes only` are clients written here that
make nothing of what they get: the most that can be had from those brokers.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import sparrow
from bench.peers import nats, rabbitmq, redis
from bench.race import NATS_SYNCED, Contender, against_best, against_redis, client, race
from bench.results import OURS, SYNCED, UNSYNCED, Measurement, Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.server import Server
    from bench.together import Role

KEPT = "publish, lease and ack on stable storage (group commit)"
LAZY = "acks=1: publish from the page cache, synced within 1 s; lease and ack on stable storage"
VALUE = b"m" * 100
LEASE = 5_000
WINDOW = 5_000
"""The unconfirmed messages of RabbitMQ's publishers, and its prefetch."""
ACK_EVERY = 500
PIPELINE = 1_000
WORKERS, PREFETCH = 8, 100
BACKLOG = 1_000
"""The unconfirmed messages of publishers beside workers that take one message at a time.
"""
RATE, HIGH_RATE = 2_000, 10_000


def _make_queue(broker: Server, name: str) -> None:
    async def make() -> None:
        async with sparrow.connect(broker.url) as connected:
            await connected.admin.create_queue(name, partitions=1)

    asyncio.run(make())


def _make_quorum(port: int, name: str) -> None:
    client("amqp").make(port, name, "quorum")


def _make_classic(port: int, name: str) -> None:
    client("amqp").make(port, name, "classic")


def _make_stream(port: int, name: str) -> None:
    client("redis").make(port, name)


def _make_nats(acks: str, prefetch: int, port: int, name: str, *, is_pushed: bool = False) -> None:
    client("nats").make_queue(port, name, acks, prefetch, is_pushed=is_pushed)


def _of_nats(
    library: str,
    prepare: Callable[[int, str], None],
    roles: Callable[[int, str, int], list[Role]],
    share: float,
) -> tuple[Contender, Contender]:
    """From the page cache, and synced where the server can."""
    return (
        Contender("NATS", library, nats.UNSYNCED, prepare, roles, share, UNSYNCED),
        Contender(NATS_SYNCED, library, nats.SYNCED, prepare, roles, share / 4),
    )


# ── batches ───────────────────────────────────────────────────────────────────────────────────────


def _our_batches(broker: Server, queue: str, count: int, *, acks: str | int = "all") -> list[Role]:
    ours = client("sparrow")
    return [
        partial(ours.publish, broker.url, queue, VALUE, count, acks=acks),
        partial(ours.consume_batches, broker.url, queue, count, LEASE),
    ]


def _our_varied(broker: Server, queue: str, count: int) -> list[Role]:
    ours = client("sparrow")
    return [
        partial(ours.publish_varied, broker.url, queue, count),
        partial(ours.consume_batches, broker.url, queue, count, LEASE),
    ]


def _amqp_batches(library: str, port: int, queue: str, count: int) -> list[Role]:
    theirs = client(library)
    return [
        partial(theirs.publish, port, queue, VALUE, count, WINDOW),
        partial(theirs.consume, port, queue, count, WINDOW, ACK_EVERY),
    ]


def _redis_batches(suffix: str, port: int, queue: str, count: int) -> list[Role]:
    theirs = client("redis")
    return [
        partial(getattr(theirs, f"publish{suffix}"), port, queue, VALUE, count, PIPELINE),
        partial(getattr(theirs, f"consume{suffix}"), port, queue, count, PIPELINE),
    ]


def _nats_batches(port: int, queue: str, count: int) -> list[Role]:
    theirs = client("nats")
    return [
        partial(theirs.publish_bytes, port, queue, VALUE, count, WINDOW),
        partial(theirs.consume_bytes, port, queue, VALUE[-8:], count, ACK_EVERY),
    ]


_PIKA, _BYTES = partial(_amqp_batches, "pika"), partial(_amqp_batches, "amqp")
_BATCHES = (
    Contender(OURS, "", KEPT, _make_queue, _our_batches),
    Contender(OURS, "acks=1", LAZY, _make_queue, partial(_our_batches, acks=1), 1.0, UNSYNCED),
    Contender(OURS, "60-140 B with keys, no two alike", KEPT, _make_queue, _our_varied, 0.5),
    Contender("RabbitMQ", "quorum queue, pika", rabbitmq.QUORUM, _make_quorum, _PIKA, 0.1),
    Contender("RabbitMQ", "quorum queue, bytes only", rabbitmq.QUORUM, _make_quorum, _BYTES, 0.2),
    Contender("RabbitMQ", "classic queue, pika", rabbitmq.CLASSIC, _make_classic, _PIKA, 0.1),
    Contender("RabbitMQ", "classic queue, bytes only", rabbitmq.CLASSIC, _make_classic, _BYTES, 0.2),
    Contender("Redis", "redis-py", redis.DURABILITY, _make_stream, partial(_redis_batches, ""), 0.2),
    Contender("Redis", "bytes only", redis.DURABILITY, _make_stream, partial(_redis_batches, "_bytes"), 0.5),
    *_of_nats("bytes only", partial(_make_nats, "all", WINDOW), _nats_batches, 0.2),
)


def batches(runs: int, scale: float) -> list[Measurement]:
    """Publish, lease and acknowledge in batches, all three at once."""
    name = "queue: 100 B, publish + lease + ack in batches"
    return _rates(name, _BATCHES, runs, round(1_000_000 * scale), Target(150_000))


# ── one by one ────────────────────────────────────────────────────────────────────────────────────


def _our_singles(broker: Server, queue: str, count: int) -> list[Role]:
    ours = client("sparrow")
    return [
        partial(ours.publish, broker.url, queue, VALUE, count),
        partial(ours.consume_singly, broker.url, queue, count, WORKERS, PREFETCH),
    ]


def _our_worker(broker: Server, queue: str, count: int, *, acks: str | int = "all") -> list[Role]:
    ours = client("sparrow")
    return [
        partial(ours.publish, broker.url, queue, VALUE, count, acks=acks),
        partial(ours.work, broker.url, queue, count, WORKERS, PREFETCH),
    ]


def _aio_pika_singles(port: int, queue: str, count: int) -> list[Role]:
    return [
        partial(client("amqp").publish, port, queue, VALUE, count, BACKLOG),
        partial(client("aio_pika").consume_singly, port, queue, count, WORKERS, PREFETCH),
    ]


def _pika_singles(port: int, queue: str, count: int) -> list[Role]:
    return [
        partial(client("amqp").publish, port, queue, VALUE, count, BACKLOG),
        partial(client("pika").consume, port, queue, count, PREFETCH, 1),
    ]


def _redis_singles(port: int, queue: str, count: int) -> list[Role]:
    theirs = client("redis")
    return [
        partial(theirs.publish_bytes, port, queue, VALUE, count, BACKLOG),
        partial(theirs.consume_singly, port, queue, count, WORKERS, PREFETCH),
    ]


def _nats_singles(port: int, queue: str, count: int) -> list[Role]:
    theirs = client("nats")
    return [
        partial(theirs.publish_bytes, port, queue, VALUE, count, BACKLOG),
        partial(theirs.consume_singly, port, queue, count, WORKERS),
    ]


_PUSHED = partial(_make_nats, "explicit", PREFETCH, is_pushed=True)
_SINGLES = (
    Contender(OURS, "client.worker", KEPT, _make_queue, _our_worker),
    Contender(OURS, "client.worker, acks=1", LAZY, _make_queue, partial(_our_worker, acks=1), 1.0, UNSYNCED),
    Contender(OURS, "each task waits for its ack", KEPT, _make_queue, _our_singles),
    Contender("RabbitMQ", "quorum queue, aio-pika", rabbitmq.QUORUM, _make_quorum, _aio_pika_singles, 0.25),
    Contender("RabbitMQ", "quorum queue, pika", rabbitmq.QUORUM, _make_quorum, _pika_singles, 0.25),
    Contender("Redis", "redis-py asyncio", redis.DURABILITY, _make_stream, _redis_singles, 0.2),
    *_of_nats("nats-py", _PUSHED, _nats_singles, 0.25),
)


def singly(runs: int, scale: float) -> list[Measurement]:
    """Eight workers, a prefetch of 100, and each message acknowledged by itself; published at the
    same time.
    """
    name = "queue: 100 B, 8 workers, prefetch 100, each acknowledged by itself"
    return _rates(name, _SINGLES, runs, round(100_000 * scale), Target(25_000))


# ── one at a time ─────────────────────────────────────────────────────────────────────────────────


def _our_single(broker: Server, queue: str, count: int) -> list[Role]:
    ours = client("sparrow")
    return [
        partial(ours.publish, broker.url, queue, VALUE, count),
        partial(ours.consume_singly, broker.url, queue, count, 1, 1),
    ]


def _pika_single(port: int, queue: str, count: int) -> list[Role]:
    return [
        partial(client("amqp").publish, port, queue, VALUE, count, BACKLOG),
        partial(client("pika").consume, port, queue, count, 1, 1),
    ]


def _redis_single(port: int, queue: str, count: int) -> list[Role]:
    theirs = client("redis")
    return [
        partial(theirs.publish_bytes, port, queue, VALUE, count, BACKLOG),
        partial(theirs.consume_singly, port, queue, count, 1, 1),
    ]


_ONE = (
    Contender(OURS, "", KEPT, _make_queue, _our_single),
    Contender("RabbitMQ", "quorum queue, pika", rabbitmq.QUORUM, _make_quorum, _pika_single),
    Contender("Redis", "redis-py asyncio", redis.DURABILITY, _make_stream, _redis_single),
)


def one(runs: int, scale: float) -> list[Measurement]:
    """One worker that holds one message at a time: it gets the next one when the acknowledgement of
    the last is kept.
    """
    name = "queue: 100 B, one worker, one message at a time"
    results = race(_ONE, runs, round(10_000 * scale))
    rows = {each: results[each].row(name, "msg/s", each, lambda found: found.rate) for each in _ONE}
    ours = rows[_ONE[0]]
    best = against_best(f"{name}, of the fastest peer's rate", ours, rows, more_is_better=True)
    return [*rows.values(), best, against_redis(ours, rows, Target(1.0), more_is_better=True)]


def _rates(
    name: str, contenders: tuple[Contender, ...], runs: int, count: int, target: Target
) -> list[Measurement]:
    """A row for each; then, of each of Sparrow's that has the peers' messages, how it compares."""
    results = race(contenders, runs, count)
    rows = {each: results[each].row(name, "msg/s", each, lambda found: found.rate) for each in contenders}
    compared = []
    for contender, row in rows.items():
        if contender.broker == OURS and contender.share == 1.0:
            row.target = target if contender.strength == SYNCED else None
            best = against_best(
                f"{name}: {contender}, of the fastest peer's rate", row, rows, more_is_better=True
            )
            best.target = Target(1.0)
            compared.append(best)
    return [*rows.values(), *compared]


# ── latency ───────────────────────────────────────────────────────────────────────────────────────


def _our_workers(rate: int, broker: Server, queue: str, count: int, *, acks: str | int = "all") -> list[Role]:
    ours = client("sparrow")
    return [
        partial(ours.publish_at_rate, broker.url, queue, rate, count, acks=acks),
        partial(ours.work_late, broker.url, queue, count),
    ]


def _amqp_workers(library: str, rate: int, port: int, queue: str, count: int) -> list[Role]:
    return [
        partial(client("amqp").publish_at_rate, port, queue, rate, count),
        partial(client(library).work_late, port, queue, count),
    ]


def _redis_workers(rate: int, port: int, queue: str, count: int) -> list[Role]:
    theirs = client("redis")
    return [
        partial(theirs.publish_at_rate, port, queue, rate, count),
        partial(theirs.work_late, port, queue, count),
    ]


def _nats_workers(kind: str, rate: int, port: int, queue: str, count: int) -> list[Role]:
    theirs = client("nats")
    return [
        partial(getattr(theirs, f"publish{kind}_at_rate"), port, queue, rate, count),
        partial(getattr(theirs, f"work{kind}_late"), port, queue, count),
    ]


def _workers(rate: int) -> tuple[Contender, ...]:
    ours, lazy = partial(_our_workers, rate), partial(_our_workers, rate, acks=1)
    pika, amqp = partial(_amqp_workers, "pika", rate), partial(_amqp_workers, "amqp", rate)
    library, pulled = partial(_nats_workers, "", rate), partial(_nats_workers, "_bytes", rate)
    make_pulled = partial(_make_nats, "explicit", PREFETCH)
    return (
        Contender(OURS, "client.worker", KEPT, _make_queue, ours),
        Contender(OURS, "client.worker, acks=1", LAZY, _make_queue, lazy, 1.0, UNSYNCED),
        Contender("RabbitMQ", "quorum queue, pika", rabbitmq.QUORUM, _make_quorum, pika),
        Contender("RabbitMQ", "quorum queue, bytes only", rabbitmq.QUORUM, _make_quorum, amqp),
        Contender("Redis", "redis-py", redis.DURABILITY, _make_stream, partial(_redis_workers, rate)),
        *_of_nats("nats-py", _PUSHED, library, 1.0),
        *_of_nats("bytes only", make_pulled, pulled, 1.0),
    )


class _Limits(NamedTuple):
    """Limits of a quantile: ms, and times Redis's of the same round."""

    ms: float
    of_redis: float | None


_LIMITS: dict[int, dict[str, _Limits]] = {
    RATE: {"p50": _Limits(1.5, 1.3), "p99": _Limits(5.0, 1.5)},
    HIGH_RATE: {"p50": _Limits(1.5, None), "p99": _Limits(5.0, None)},
}


def latency(runs: int, scale: float) -> list[Measurement]:
    """From the time at which a message was due to be published to the worker's function; each is
    acknowledged. At a rate that leaves the broker time, and at one that does not.
    """
    return [
        row
        for rate, limits in _LIMITS.items()
        for row in _latencies(rate, limits, runs, max(1.5, 10 * scale))
    ]


def _latencies(rate: int, limits: dict[str, _Limits], runs: int, seconds: float) -> list[Measurement]:
    workers = _workers(rate)
    if rate == HIGH_RATE:
        seconds /= 2
    results = race(workers, runs, round(rate * seconds))
    quantiles_of = {
        contender: [each.latencies for each in found.rounds] for contender, found in results.items()
    }
    measured = []
    for word, limit in limits.items():
        name = f"queue: publish to worker at {rate:,} msg/s, {word}"
        rows = {each: results[each].row(name, "ms", each, lambda _: 0.0) for each in workers}
        for contender, row in rows.items():
            row.runs = [float(getattr(each, word)) for each in quantiles_of[contender]]
            row.note = row.note or results[contender].behind(rate)
        ours = rows[workers[0]]
        ours.target = Target(limit.ms, at_least=False)
        measured += [*rows.values()]
        measured += [
            against_best(f"{name}: {each}, of the quickest peer's", rows[each], rows, more_is_better=False)
            for each in workers
            if each.broker == OURS
        ]
        if limit.of_redis is not None:
            target = Target(limit.of_redis, at_least=False)
            measured.append(against_redis(ours, rows, target, more_is_better=False))
    return measured
