"""Request handlers for queues. Deliveries and settlements go over channels of their own
(`queue_channel.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.broker.queues.dead_letters.redrive import RedriveFilter
from sparrow.broker.queues.peek import size_of
from sparrow.frontends.native.request_handler import (
    Arguments,
    Matching,
    Named,
    RequestContext,
    RequestHandler,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.model.queues import PeekedRecord


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
    return await context.broker.queues.create(
        a.name, tuple(a.topics), a.policy, partitions=a.partitions, principal=context.principal
    )


async def _ensure(context: RequestContext, a: CreateQueue) -> Any:
    return await context.broker.queues.ensure(
        a.name, tuple(a.topics), a.policy, partitions=a.partitions, principal=context.principal
    )


async def _configure(context: RequestContext, a: ConfigureQueue) -> Any:
    return await context.broker.queues.configure(a.name, a.set, a.unset, principal=context.principal)


async def _delete(context: RequestContext, a: Named) -> Any:
    await context.broker.queues.delete(a.name, principal=context.principal)
    return {}


async def _describe(context: RequestContext, a: Named) -> Any:
    return context.broker.queues.describe(a.name, principal=context.principal)


async def _list(context: RequestContext, a: Matching) -> Any:
    found = await context.broker.queues.listing_in_steps(a.pattern, principal=context.principal)
    return {"queues": found}


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
    return {"letters": found.dead_letters, "next_skip": found.next_skip}


async def _redrive(context: RequestContext, a: RedriveDeadLetters) -> Any:
    return await context.broker.queues.redrive(
        a.name,
        RedriveFilter(**msgspec.structs.asdict(a.where)),
        max_records=a.max_records,
        per_second=a.per_second,
        principal=context.principal,
    )


async def _redrive_progress(context: RequestContext, a: Named) -> Any:
    return context.broker.queues.redrive_progress(a.name, principal=context.principal)


async def _redrive_stop(context: RequestContext, a: Named) -> Any:
    return await context.broker.queues.stop_redrive(a.name, principal=context.principal)


# ── results ───────────────────────────────────────────────────────────────────────────────────────


def _within(limit_bytes: int, found: Iterable[PeekedRecord]) -> list[PeekedRecord]:
    """Return the first records that together are not larger than `limit_bytes`, but at least
    one.
    """
    records: list[PeekedRecord] = []
    for peeked in found:
        limit_bytes -= RECORD_OVERHEAD_BYTES + size_of(peeked)
        if records and limit_bytes < 0:
            break
        records.append(peeked)
    return records


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
