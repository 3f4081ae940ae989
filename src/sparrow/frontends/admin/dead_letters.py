"""Operations on the dead letters of a queue."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from sparrow.base.errors import InvalidArgument
from sparrow.broker.queues.dead_letters.redrive import RedriveFilter
from sparrow.frontends.admin.fields import Body, MaybeName, Offset, Partition, Text, TimeMs
from sparrow.frontends.admin.operation import Arguments, Named, OperationContext

if TYPE_CHECKING:
    from sparrow.model.queues import DeadLetter, DeadLetterSummary, RedriveProgress


class ListDeadLetters(Arguments, frozen=True):
    name: str
    where: RedriveFilter = RedriveFilter()
    max_records: int = 10
    skip: int = 0


class RedriveDeadLetters(Arguments, frozen=True):
    name: str
    where: RedriveFilter = RedriveFilter()
    max_records: int = 0
    per_second: float = 0


class Where(Body):
    """A selection of dead letters; members that are left out match everything."""

    reason: Annotated[MaybeName | None, Meta(description="Such as DELIVERY_LIMIT or REJECTED.")] = None
    topic: Annotated[MaybeName | None, Meta(description="Only from this topic.")] = None
    partition: Partition | None = None
    key: Annotated[Text | None, Meta(description="Only with this key.")] = None
    key_base64: Annotated[Text | None, Meta(description="The same for a key that is not text.")] = None
    error_contains: Text | None = None
    subscriber: Annotated[
        MaybeName | None, Meta(description="Only of this subscriber of an all-of queue.")
    ] = None
    since_ms: Annotated[TimeMs | None, Meta(description="Only those that gave up at this time or later.")] = (
        None
    )
    until_ms: Annotated[TimeMs | None, Meta(description="Only those that gave up before this time.")] = None

    def filter(self) -> RedriveFilter:
        """Return the selection in the broker's form.

        Raises:
            InvalidArgument: two keys are given, or one that is not base64.
        """
        return RedriveFilter(
            self.reason,
            self.topic,
            self.partition,
            self._key(),
            self.error_contains,
            self.subscriber,
            self.since_ms,
            self.until_ms,
        )

    def _key(self) -> bytes | None:
        if self.key_base64 is None:
            return None if self.key is None else self.key.encode()
        if self.key is not None:
            raise InvalidArgument("key and key_base64 are both given; give one of them")
        try:
            return b64decode(self.key_base64, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidArgument(f"key_base64 is {self.key_base64[:80]!r}, which is not base64") from None


class LetterOffset(Body):
    partition: Partition
    offset: Offset


_Letters = Annotated[
    list[LetterOffset],
    Meta(max_length=10_000, description="Only these, by their place on the dead-letter topic; empty: all."),
]


class Chosen(Body):
    """Dead letters that meet conditions, or single ones."""

    where: Where = field(default_factory=Where)
    letters: _Letters = field(default_factory=list)

    def filter(self) -> RedriveFilter:
        """Return the selection in the broker's form. Raises as `Where.filter`."""
        letters = frozenset((each.partition, each.offset) for each in self.letters)
        return replace(self.where.filter(), letters=letters or None)


class Purge(Chosen):
    all: Annotated[
        bool, Meta(description="Required to finish all dead letters, if nothing else is given.")
    ] = False


class Redrive(Chosen):
    max: Annotated[
        int, Meta(ge=0, lt=1 << 62, description="Largest number of messages; 0: all that exist now.")
    ] = 0
    per_second: Annotated[float, Meta(ge=0, le=1e9, description="Messages per second; 0: no limit.")] = 0


async def browse(context: OperationContext, a: ListDeadLetters) -> dict[str, list[DeadLetter] | int]:
    """Browse the dead letters of a queue that are not finished. Nothing changes."""
    found = await context.broker.queues.dead_letters(
        a.name,
        a.max_records,
        where=a.where,
        skip=a.skip,
        max_bytes=context.max_response_bytes,
        principal=context.principal,
    )
    return {"letters": found.dead_letters, "next_skip": found.next_skip}


class SummaryQuery(Struct):
    skip: Annotated[int, Meta(ge=0, lt=1 << 62, description="`next_skip` of the request before.")] = 0


class Summarize(Arguments, frozen=True):
    name: str
    skip: int = 0


class PurgeDeadLetters(Arguments, frozen=True):
    name: str
    where: RedriveFilter = RedriveFilter()


class DeadLettersPurged(Struct):
    purged: int


async def summarize(context: OperationContext, a: Summarize) -> DeadLetterSummary:
    """Count the dead letters of a queue by reason and error, 10,000 at a time."""
    return await context.broker.queues.dead_letter_groups(a.name, skip=a.skip, principal=context.principal)


async def purge(context: OperationContext, a: PurgeDeadLetters) -> DeadLettersPurged:
    """Finish dead letters, so that they are not redriven any more, and return how many."""
    purged = await context.broker.queues.purge_dead_letters(a.name, a.where, principal=context.principal)
    return DeadLettersPurged(purged)


def purging(_: OperationContext, queue: str, body: Purge) -> PurgeDeadLetters:
    """Return the arguments of `purge`.

    Raises:
        InvalidArgument: nothing is given, not even `all`; or as `Where.filter`.
    """
    where = body.filter()
    if where == RedriveFilter() and not body.all:
        raise InvalidArgument("this would finish every dead letter; say which, or all=true if you mean it")
    return PurgeDeadLetters(queue, where)


async def redrive(context: OperationContext, a: RedriveDeadLetters) -> RedriveProgress:
    """Start to redrive dead letters to where they came from, each exactly once. The broker does
    it in the background.
    """
    return await context.broker.queues.redrive(
        a.name,
        a.where,
        max_records=a.max_records,
        per_second=a.per_second,
        principal=context.principal,
    )


async def progress(context: OperationContext, a: Named) -> RedriveProgress:
    """Return the progress of the current redrive, or of the last one since the broker
    started.
    """
    return context.broker.queues.redrive_progress(a.name, principal=context.principal)


async def stop(context: OperationContext, a: Named) -> RedriveProgress:
    """Stop the current redrive. Messages that it has moved stay moved."""
    return await context.broker.queues.stop_redrive(a.name, principal=context.principal)


def redriving(_: OperationContext, queue: str, body: Redrive) -> RedriveDeadLetters:
    """Return the arguments of `redrive`. Raises as `Where.filter`."""
    return RedriveDeadLetters(queue, body.filter(), body.max, body.per_second)


def redriving_one(_: OperationContext, queue: str, partition: int, offset: int) -> RedriveDeadLetters:
    """Return the arguments of `redrive` for one dead letter."""
    return RedriveDeadLetters(queue, RedriveFilter(letters=frozenset({(partition, offset)})))
