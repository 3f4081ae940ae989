"""Pages of a topic. Each request names a start, and its response the start of the next page; the
broker keeps no state between two requests.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from sparrow.base.errors import CorruptBatch, NotFound, OffsetOutOfRange
from sparrow.broker.access.authz import Operation
from sparrow.broker.reading.committed_chunks import without_aborted
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.broker.reading.positions import locate
from sparrow.frontends.batches import split_batches
from sparrow.frontends.http.positions import parse_positions
from sparrow.frontends.http.render_cache import Form
from sparrow.frontends.start_position import parse_start_position
from sparrow.records.readable import FAIL, SKIP, decode_readable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.reading.fetch import Fetched
    from sparrow.frontends.batches import PartitionBatch
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.transport.send_budget import Reservation
    from sparrow.records.readable import OnCorrupt
    from sparrow.records.record import Record

LEAST_PAGE_BYTES: Final = 1 << 20
GROWTH: Final = 4
"""Limit for the size of a page, as a multiple of the bytes that were read. Compressed records may
become larger: then the page ends earlier.
"""


class ReadRequest(Struct, frozen=True):
    """A request for a page. `start` is written as in the address: a start position, or the
    positions at the end of an earlier page.
    """

    topic: str
    start: str
    partition: int = -1
    limit: int = 100
    max_bytes: int = 1 << 20
    wait_ms: int = 0
    committed: bool = False
    as_base64: bool = False
    on_corrupt: OnCorrupt = FAIL


class Page(NamedTuple):
    """Records as JSON objects, and the next offset of each partition. `reservation` counts the
    pieces and the batches that they are made of.
    """

    pieces: list[bytes]
    positions: dict[int, int]
    reservation: Reservation
    most_bytes: int


class TopicReader:
    """Reader of topics for the routes; one for the frontend. Loop thread only."""

    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._rotation = 0
        self._corrupt_batches = frontend.broker.measures.corrupt_batches

    async def read(
        self,
        request: ReadRequest,
        *,
        reservation: Reservation,
        principal: Principal,
        stop: asyncio.Future[None] | None = None,
    ) -> Page:
        """Return a page of a topic. `stop` ends the wait.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized, InvalidArgument, Overloaded
            OffsetOutOfRange: the offsets do not exist (any more).
            CorruptBatch: the first batch of a partition cannot be read, and `on_corrupt` is "fail".
        """
        positions = await self._starts(request, principal)
        fetched = await self._frontend.broker.records.fetch(
            [FetchRequest(request.topic, *each, request.max_bytes) for each in self._rotated(positions)],
            max_bytes=request.max_bytes,
            max_wait_ms=request.wait_ms,
            committed=request.committed,
            stop=stop,
            memory=reservation,
            principal=principal,
        )
        read_bytes = sum(each.size_bytes for each in fetched)
        page = Page([], positions, reservation, read_bytes + max(LEAST_PAGE_BYTES, GROWTH * read_bytes))
        for each in fetched:
            await self._take(each, request, page, principal)
        return page

    async def record(
        self, topic: str, partition: int, offset: int, *, reservation: Reservation, principal: Principal
    ) -> Record:
        """Return one record.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized, Overloaded
            NotFound: there is no record at this offset.
            CorruptBatch: its batch cannot be read.
        """
        request = FetchRequest(topic, partition, offset, 1)
        (fetched,) = await self._frontend.broker.records.fetch(
            [request], max_bytes=1, memory=reservation, principal=principal
        )
        if fetched.error is not None and not isinstance(fetched.error, OffsetOutOfRange):
            raise fetched.error
        for batch in split_batches(topic, partition, fetched.chunk.data if fetched.chunk else b""):
            for record in self._decoded(batch, offset):
                if record.offset == offset:
                    return record
        raise NotFound(
            f"partition {partition} of topic {topic!r} has no message at offset {offset}; its end "
            "or retention may lie before"
        )

    def _decoded(self, batch: PartitionBatch, offset: int) -> list[Record]:
        try:
            return decode_readable(batch.data, batch.topic, batch.partition, min_offset=offset)
        except CorruptBatch as error:
            self._corrupt_batches.met("http", FAIL, error)
            raise

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    async def _starts(self, request: ReadRequest, principal: Principal) -> dict[int, int]:
        """Return the first offset to read of each requested partition."""
        broker, topic = self._frontend.broker, request.topic
        first = broker.topics.partition(
            topic, max(request.partition, 0), operation=Operation.READ, principal=principal
        )
        partitions = (
            [first]
            if request.partition >= 0
            else broker.topics.partitions(topic, operation=Operation.READ, principal=principal)
        )
        if ":" in request.start and request.start[:1].isdigit():
            named = parse_positions(request.start)
            return {p.id.partition: named.get(p.id.partition, p.start_offset) for p in partitions}
        start = parse_start_position(request.start)
        return {p.id.partition: (await locate(p, start))[0] for p in partitions}

    def _rotated(self, positions: dict[int, int]) -> Sequence[tuple[int, int]]:
        """Return (partition, offset) pairs that begin with another partition each time, so that a
        full partition does not hide the others.
        """
        listed = list(positions.items())
        first = self._rotation % len(listed)
        self._rotation += 1
        return listed[first:] + listed[:first]

    async def _take(self, fetched: Fetched, request: ReadRequest, page: Page, principal: Principal) -> None:
        """Add the records of a partition that fit to a page."""
        if fetched.error is not None:
            raise fetched.error
        if fetched.chunk is None or _is_full(page, request.limit):
            return
        index = fetched.partition
        chunk, offset = fetched.chunk, page.positions[index]
        if fetched.aborted:
            chunk = without_aborted(
                self._frontend.broker.topics.partition(
                    request.topic, index, operation=Operation.READ, principal=principal
                ),
                chunk,
                offset,
            )
        for batch in split_batches(request.topic, index, chunk.data):
            try:
                rendered = await self._frontend.render_cache.batch(
                    batch, form=Form.OBJECT, as_base64=request.as_base64
                )
            except CorruptBatch as error:
                if request.on_corrupt == FAIL:
                    if page.positions[index] > offset:  # the next page begins with the error
                        return
                    self._corrupt_batches.met("http", FAIL, error)
                    raise
                self._corrupt_batches.met("http", SKIP, error)
                page.positions[index] = max(offset, batch.header.next_offset)
                continue
            rendered = rendered.since(offset)
            count = _add(rendered.pieces, page, request.limit)
            if count < len(rendered.pieces):
                page.positions[index] = rendered.offsets[count]
                return
            page.positions[index] = max(offset, batch.header.next_offset)
        page.positions[index] = max(page.positions[index], chunk.next_offset)


def _is_full(page: Page, limit: int) -> bool:
    return len(page.pieces) >= limit or bool(page.pieces and page.reservation.size_bytes >= page.most_bytes)


def _add(pieces: Sequence[bytes], page: Page, limit: int) -> int:
    """Add the pieces that fit, at least one to an empty page. Return how many."""
    sizes = list(accumulate(map(len, pieces[: limit - len(page.pieces)])))
    count = bisect_right(sizes, page.most_bytes - page.reservation.size_bytes)
    if sizes and not count and not page.pieces:
        count = 1
    if count:
        page.pieces.extend(pieces[:count])
        page.reservation.add(sizes[count - 1])
    return count
