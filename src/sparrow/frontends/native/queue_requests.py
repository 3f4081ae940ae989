"""Request handlers for queues. Deliveries and settlements go over channels of their own
(`queue_channel.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.broker.queues.dead_letters.format import DEAD_LETTER_PREFIX
from sparrow.broker.queues.dead_letters.redrive import RedriveFilter
from sparrow.frontends.native.request_handler import (
    Arguments,
    Matching,
    Named,
    RequestContext,
    RequestHandler,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.broker.queues.dead_letters.browse import DeadLetter
    from sparrow.broker.queues.description import Peeked, QueueInfo
    from sparrow.records.record import Record

PEEK_SHARE_OF_FRAME: Final = 0.5
"""The share of a frame that the records of one response may fill; the rest is for everything else
in it.
"""
RECORD_OVERHEAD_BYTES: Final = 256
"""Approximate size of a peeked record besides its key, value and headers."""


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


class DeadLetterSelection(Arguments, frozen=True):
    """A filter for dead letters; omitted and null fields match all."""

    reason: str | None = None
    topic: str | None = None
    partition: int | None = None
    key: bytes | None = None
    error_contains: str | None = None
    subscriber: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    letters: frozenset[tuple[int, int]] | None = None
    """Only the dead letters at these partitions and offsets of the dead-letter topic."""


class ListDeadLetters(Arguments, frozen=True):
    name: str
    where: DeadLetterSelection = DeadLetterSelection()
    max_records: int = 10
    skip: int = 0


class RedriveDeadLetters(Arguments, frozen=True):
    name: str
    where: DeadLetterSelection = DeadLetterSelection()
    max_records: int = 0
    per_second: float = 0


# ── handlers ──────────────────────────────────────────────────────────────────────────────────────


async def _create(context: RequestContext, a: CreateQueue) -> Any:
    made = await context.broker.queues.create(
        a.name, tuple(a.topics), a.policy, partitions=a.partitions, principal=context.principal
    )
    return _queue(made)


async def _ensure(context: RequestContext, a: CreateQueue) -> Any:
    ensured = await context.broker.queues.ensure(
        a.name, tuple(a.topics), a.policy, partitions=a.partitions, principal=context.principal
    )
    return _queue(ensured)


async def _configure(context: RequestContext, a: ConfigureQueue) -> Any:
    return _queue(await context.broker.queues.configure(a.name, a.set, a.unset, principal=context.principal))


async def _delete(context: RequestContext, a: Named) -> Any:
    await context.broker.queues.delete(a.name, principal=context.principal)
    return {}


async def _describe(context: RequestContext, a: Named) -> Any:
    return _queue(context.broker.queues.describe(a.name, principal=context.principal))


async def _list(context: RequestContext, a: Matching) -> Any:
    found = await context.broker.queues.listing_in_steps(a.pattern, principal=context.principal)
    return {"queues": [_queue(each) for each in found]}


async def _pause(context: RequestContext, a: Named) -> Any:
    await context.broker.queues.pause(a.name, principal=context.principal)
    return {}


async def _resume(context: RequestContext, a: Named) -> Any:
    await context.broker.queues.resume(a.name, principal=context.principal)
    return {}


async def _purge(context: RequestContext, a: Named) -> Any:
    return {"purged": await context.broker.queues.purge(a.name, principal=context.principal)}


async def _peek(context: RequestContext, a: PeekQueue) -> Any:
    limit_bytes = int(context.frontend.limits.max_frame_bytes * PEEK_SHARE_OF_FRAME)
    found = await context.broker.queues.peek(
        a.name,
        a.max_records,
        states=a.states,
        subscriber=a.subscriber,
        skip=a.skip,
        max_bytes=limit_bytes,
        principal=context.principal,
    )
    return {"records": _within(limit_bytes, found)}


async def _dead_letters(context: RequestContext, a: ListDeadLetters) -> Any:
    limit_bytes = int(context.frontend.limits.max_frame_bytes * PEEK_SHARE_OF_FRAME)
    found = await context.broker.queues.dead_letters(
        a.name,
        a.max_records,
        where=RedriveFilter(**msgspec.structs.asdict(a.where)),
        skip=a.skip,
        max_bytes=limit_bytes,
        principal=context.principal,
    )
    letters = [_dead_letter(each) for each in found.dead_letters]
    return {"letters": letters, "next_skip": found.next_skip}


async def _redrive(context: RequestContext, a: RedriveDeadLetters) -> Any:
    progress = await context.broker.queues.redrive(
        a.name,
        RedriveFilter(**msgspec.structs.asdict(a.where)),
        max_records=a.max_records,
        per_second=a.per_second,
        principal=context.principal,
    )
    return msgspec.to_builtins(progress)


async def _redrive_progress(context: RequestContext, a: Named) -> Any:
    return msgspec.to_builtins(context.broker.queues.redrive_progress(a.name, principal=context.principal))


async def _redrive_stop(context: RequestContext, a: Named) -> Any:
    return msgspec.to_builtins(await context.broker.queues.stop_redrive(a.name, principal=context.principal))


# ── results ───────────────────────────────────────────────────────────────────────────────────────


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
    """Return the first records that together are not larger than `limit_bytes`, but at least
    one.
    """
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


def _dead_letter(letter: DeadLetter) -> dict[str, Any]:
    """Render a dead letter with its origin. The headers that describe the origin are left out, as
    the other fields repeat them.
    """
    peeked, origin = letter
    record = msgspec.structs.asdict(peeked.record)
    record["headers"] = [each for each in peeked.record.headers if not each[0].startswith(DEAD_LETTER_PREFIX)]
    return {
        **record,
        "state": peeked.state,
        "reason": origin.reason,
        "error": origin.error,
        "delivery_count": origin.delivery_count,
        "subscriber": origin.subscriber,
        "origin_topic": origin.topic,
        "origin_partition": origin.partition,
        "origin_offset": origin.offset,
        "origin_timestamp": origin.timestamp_ms,
        "first_delivery_ms": origin.first_delivery_ms,
        "last_delivery_ms": origin.last_delivery_ms,
    }


HANDLERS: Final[dict[str, RequestHandler]] = {
    "queue.create": RequestHandler(CreateQueue, _create),
    "queue.ensure": RequestHandler(CreateQueue, _ensure),
    "queue.configure": RequestHandler(ConfigureQueue, _configure),
    "queue.delete": RequestHandler(Named, _delete),
    "queue.describe": RequestHandler(Named, _describe),
    "queue.list": RequestHandler(Matching, _list),
    "queue.pause": RequestHandler(Named, _pause),
    "queue.resume": RequestHandler(Named, _resume),
    "queue.purge": RequestHandler(Named, _purge),
    "queue.peek": RequestHandler(PeekQueue, _peek),
    "queue.dead_letters": RequestHandler(ListDeadLetters, _dead_letters),
    "queue.redrive": RequestHandler(RedriveDeadLetters, _redrive),
    "queue.redrive_progress": RequestHandler(Named, _redrive_progress),
    "queue.redrive_stop": RequestHandler(Named, _redrive_stop),
}
