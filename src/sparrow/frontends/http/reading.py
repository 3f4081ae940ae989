"""Reading a topic by requests: each says from where, and is told where to go on. The broker keeps nothing between two of them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import NotFound, OffsetOutOfRange
from sparrow.broker.access.authz import Operation
from sparrow.broker.fetch import FetchRequest
from sparrow.broker.positions import locate
from sparrow.broker.transactions.committed import without_aborted
from sparrow.frontends.http.places import parse_place
from sparrow.frontends.http.positions import parse_positions
from sparrow.frontends.http.rendering import Form, batches
from sparrow.records.record import decode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.fetch import Fetched
    from sparrow.frontends.http.frontend import HttpFrontend
    from sparrow.frontends.http.outgoing import Held
    from sparrow.records.record import Record

LEAST_PAGE_BYTES: Final = 1 << 20
GROWTH: Final = 4
"""So many times as large as what is read a page may become. What was compressed may become larger: then the page ends before."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What is wanted of a topic. `start` as in an address: a place, or the positions that an earlier answer ended with."""

    topic: str
    start: str
    partition: int = -1
    limit: int = 100
    max_bytes: int = 1 << 20
    wait_ms: int = 0
    committed: bool = False
    as_base64: bool = False


class Page(NamedTuple):
    """Records as JSON objects, and where to go on in each partition. `held` counts the pieces and what they are made of."""

    pieces: list[bytes]
    positions: dict[int, int]
    held: Held
    most_bytes: int


class TopicReader:
    """One for the door. Loop thread only."""

    def __init__(self, door: HttpFrontend) -> None:
        self._door = door
        self._turn = 0

    async def read(
        self,
        wanted: ReadRequest,
        *,
        held: Held,
        principal: Principal,
        stop: asyncio.Future[None] | None = None,
    ) -> Page:
        """A page of a topic. `stop` ends the wait.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized, InvalidArgument, Overloaded
            OffsetOutOfRange: there are no such offsets (any more).
            CorruptBatch, UnsupportedCompression, RecordTooLarge: a batch cannot be read.
        """
        self._door.outgoing.check()
        positions = await self._starts(wanted, principal)
        fetched = await self._door.broker.fetch(
            [FetchRequest(wanted.topic, *each, wanted.max_bytes) for each in self._in_turn(positions)],
            max_bytes=wanted.max_bytes,
            max_wait_ms=wanted.wait_ms,
            committed=wanted.committed,
            stop=stop,
            memory=self._door.outgoing,
            principal=principal,
        )
        read_bytes = sum(each.size_bytes for each in fetched)
        held.add(read_bytes)
        page = Page([], positions, held, read_bytes + max(LEAST_PAGE_BYTES, GROWTH * read_bytes))
        for each in fetched:
            await self._take(each, wanted, page)
        return page

    async def record(self, topic: str, partition: int, offset: int, *, principal: Principal) -> Record:
        """One record.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized, Overloaded
            NotFound: there is none at this offset.
        """
        self._door.outgoing.check()
        request = FetchRequest(topic, partition, offset, 1)
        (fetched,) = await self._door.broker.fetch([request], max_bytes=1, principal=principal)
        if fetched.error is not None and not isinstance(fetched.error, OffsetOutOfRange):
            raise fetched.error
        for batch in batches(topic, partition, fetched.chunk.data if fetched.chunk else b""):
            for record in decode(batch.data, topic, partition, min_offset=offset):
                if record.offset == offset:
                    return record
        raise NotFound(
            f"partition {partition} of topic {topic!r} has no message at offset {offset}; its end or retention may lie before"
        )

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    async def _starts(self, wanted: ReadRequest, principal: Principal) -> dict[int, int]:
        """Where reading begins in each partition that is wanted."""
        broker, topic = self._door.broker, wanted.topic
        first = broker.partition(
            topic, max(wanted.partition, 0), operation=Operation.READ, principal=principal
        )
        partitions = [first] if wanted.partition >= 0 else broker.topics.get(topic).partitions
        if ":" in wanted.start and wanted.start[:1].isdigit():
            named = parse_positions(wanted.start)
            return {p.id.partition: named.get(p.id.partition, p.start_offset) for p in partitions}
        place = parse_place(wanted.start)
        return {p.id.partition: (await locate(p, place))[0] for p in partitions}

    def _in_turn(self, positions: dict[int, int]) -> Sequence[tuple[int, int]]:
        """Partition and offset of each, beginning with another one each time, so that a full one does not hide the others."""
        listed = list(positions.items())
        first = self._turn % len(listed)
        self._turn += 1
        return listed[first:] + listed[:first]

    async def _take(self, fetched: Fetched, wanted: ReadRequest, page: Page) -> None:
        """Add what fits of a partition to a page."""
        if fetched.error is not None:
            raise fetched.error
        if fetched.chunk is None or _is_full(page, wanted.limit):
            return
        index = fetched.partition
        chunk, offset = fetched.chunk, page.positions[index]
        if fetched.aborted:
            chunk = without_aborted(
                self._door.broker.topics.get(wanted.topic).partition(index), chunk, offset
            )
        for batch in batches(wanted.topic, index, chunk.data):
            rendered = await self._door.renderings.batch(batch, form=Form.OBJECT, as_base64=wanted.as_base64)
            rendered = rendered.since(offset)
            count = _add(rendered.pieces, page, wanted.limit)
            if count < len(rendered.pieces):
                page.positions[index] = rendered.offsets[count]
                return
            page.positions[index] = max(offset, batch.header.next_offset)
        page.positions[index] = max(page.positions[index], chunk.next_offset)


def _is_full(page: Page, limit: int) -> bool:
    return len(page.pieces) >= limit or bool(page.pieces and page.held.size_bytes >= page.most_bytes)


def _add(pieces: Sequence[bytes], page: Page, limit: int) -> int:
    """Add what fits, one piece at least to a page that has none; how many."""
    sizes = list(accumulate(map(len, pieces[: limit - len(page.pieces)])))
    count = bisect_right(sizes, page.most_bytes - page.held.size_bytes)
    if sizes and not count and not page.pieces:
        count = 1
    if count:
        page.pieces.extend(pieces[:count])
        page.held.add(sizes[count - 1])
    return count
