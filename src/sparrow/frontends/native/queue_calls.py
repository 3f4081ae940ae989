"""The verbs of REQUEST that concern queues. What is delivered and settled goes over channels of its own (`queues.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.broker.queues.redrive import RedriveFilter
from sparrow.frontends.native.verbs import Arguments, Caller, Matching, Named, Verb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.broker.queues.description import Peeked, QueueInfo
    from sparrow.records.record import Record

PEEK_SHARE_OF_FRAME: Final = 0.5
"""What the records of one answer may take of a frame, so that all that goes with them fits, too."""
RECORD_OVERHEAD_BYTES: Final = 256
"""About what a peeked record takes besides its key, value and headers."""


# ── arguments ─────────────────────────────────────────────────────────────────────────────────────


class CreateQueue(Arguments, frozen=True):
    name: str
    topics: list[str] = msgspec.field(default_factory=list)
    policy: dict[str, Any] = msgspec.field(default_factory=dict)
    partitions: int = -1


class ConfigureQueue(Arguments, frozen=True):
    name: str
    set: dict[str, Any] = msgspec.field(default_factory=dict)
    unset: list[str] = msgspec.field(default_factory=list)


class PeekQueue(Arguments, frozen=True):
    name: str
    max_records: int = 10
    states: tuple[str, ...] = ("ready", "leased", "delayed", "blocked")
    subscriber: str = ""
    skip: int = 0


class Where(Arguments, frozen=True):
    """Which dead letters; what is left out or null selects all."""

    reason: str | None = None
    topic: str | None = None
    partition: int | None = None
    key: bytes | None = None
    error_contains: str | None = None
    subscriber: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    letters: frozenset[tuple[int, int]] | None = None
    """Those at these partitions and offsets of the dead-letter topic."""


class Redrive(Arguments, frozen=True):
    name: str
    where: Where = Where()
    max_records: int = 0
    per_second: float = 0


# ── the verbs ─────────────────────────────────────────────────────────────────────────────────────


async def _create(to: Caller, a: CreateQueue) -> Any:
    made = await to.broker.queues.create(
        a.name, tuple(a.topics), a.policy, partitions=a.partitions, principal=to.principal
    )
    return _queue(made)


async def _configure(to: Caller, a: ConfigureQueue) -> Any:
    return _queue(await to.broker.queues.configure(a.name, a.set, a.unset, principal=to.principal))


async def _delete(to: Caller, a: Named) -> Any:
    await to.broker.queues.delete(a.name, principal=to.principal)
    return {}


async def _describe(to: Caller, a: Named) -> Any:
    return _queue(to.broker.queues.describe(a.name, principal=to.principal))


async def _list(to: Caller, a: Matching) -> Any:
    return {"queues": [_queue(each) for each in to.broker.queues.listing(a.pattern, principal=to.principal)]}


async def _pause(to: Caller, a: Named) -> Any:
    await to.broker.queues.pause(a.name, principal=to.principal)
    return {}


async def _resume(to: Caller, a: Named) -> Any:
    await to.broker.queues.resume(a.name, principal=to.principal)
    return {}


async def _purge(to: Caller, a: Named) -> Any:
    return {"purged": await to.broker.queues.purge(a.name, principal=to.principal)}


async def _peek(to: Caller, a: PeekQueue) -> Any:
    limit_bytes = int(to.frontend.limits.max_frame_bytes * PEEK_SHARE_OF_FRAME)
    found = await to.broker.queues.peek(
        a.name,
        a.max_records,
        states=a.states,
        subscriber=a.subscriber,
        skip=a.skip,
        max_bytes=limit_bytes,
        principal=to.principal,
    )
    return {"records": _within(limit_bytes, found)}


async def _redrive(to: Caller, a: Redrive) -> Any:
    progress = await to.broker.queues.redrive(
        a.name,
        RedriveFilter(**msgspec.structs.asdict(a.where)),
        max_records=a.max_records,
        per_second=a.per_second,
        principal=to.principal,
    )
    return msgspec.to_builtins(progress)


async def _redrive_progress(to: Caller, a: Named) -> Any:
    return msgspec.to_builtins(to.broker.queues.redrive_progress(a.name, principal=to.principal))


async def _redrive_stop(to: Caller, a: Named) -> Any:
    return msgspec.to_builtins(await to.broker.queues.stop_redrive(a.name, principal=to.principal))


# ── what they return ──────────────────────────────────────────────────────────────────────────────


def _queue(info: QueueInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "id": info.id,
        "kind": info.kind,
        "topics": list(info.topics),
        "policy": info.policy,
        "is_paused": info.is_paused,
        "statistics": msgspec.to_builtins(info.statistics),
    }


def _within(limit_bytes: int, found: Iterable[Peeked]) -> list[dict[str, Any]]:
    """The first of the records that are not more than so many bytes together, but one at least."""
    records: list[dict[str, Any]] = []
    for peeked in found:
        limit_bytes -= RECORD_OVERHEAD_BYTES + _content_bytes(peeked.record)
        if records and limit_bytes < 0:
            break
        records.append(_peeked(peeked))
    return records


def _content_bytes(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _peeked(peeked: Peeked) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(peeked.record),
        "state": peeked.state,
        "delivery_count": peeked.delivery_count,
        "priority": peeked.priority,
        "consumer": peeked.consumer,
        "deliver_at_ms": peeked.deliver_at_ms,
        "error": peeked.error,
    }


VERBS: Final[dict[str, Verb]] = {
    "queue.create": Verb(CreateQueue, _create),
    "queue.configure": Verb(ConfigureQueue, _configure),
    "queue.delete": Verb(Named, _delete),
    "queue.describe": Verb(Named, _describe),
    "queue.list": Verb(Matching, _list),
    "queue.pause": Verb(Named, _pause),
    "queue.resume": Verb(Named, _resume),
    "queue.purge": Verb(Named, _purge),
    "queue.peek": Verb(PeekQueue, _peek),
    "queue.redrive": Verb(Redrive, _redrive),
    "queue.redrive_progress": Verb(Named, _redrive_progress),
    "queue.redrive_stop": Verb(Named, _redrive_stop),
}
