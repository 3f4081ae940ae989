"""Search in the messages of a topic, newest first or oldest first, bounded by time and bytes.

Logs are read forward, so going back is done in windows: the last records before a position, fewer
of them where they are large. A window is filtered in a thread. A request ends when it has found
enough, or when its time or bytes are spent; its positions say where the next one goes on. So a
million messages, or a search that finds nothing, never hold up the broker or the reader.

Over several partitions the newest record of all comes first, by its timestamp.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import CorruptBatch, OffsetOutOfRange
from sparrow.broker.access.authz import Operation
from sparrow.broker.reading.committed_chunks import without_aborted
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.broker.reading.positions import END, OFFSET, TIMESTAMP, locate
from sparrow.frontends.batches import split_batches
from sparrow.frontends.http.positions import is_positions, parse_positions
from sparrow.frontends.record_json import encode, members_of_record
from sparrow.frontends.start_position import parse_start_position
from sparrow.records.readable import SKIP, decode_readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.partition import Partition
    from sparrow.frontends.batches import PartitionBatch
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.transport.send_budget import Reservation
    from sparrow.records.record import Record

NEWEST: Final = "newest"
OLDEST: Final = "oldest"
_WINDOW_BYTES: Final = 1 << 20
"""Records of one window, roughly; at least one batch is read."""
_MOST_RECORDS: Final = 4_000
"""Records of one window."""
_MAX_PLAIN_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search.

    Args:
        start: a start position, the positions of an earlier page, or "": the newest (oldest).
        key: only records with this key.
        contains: only those whose key, value or a header has this text, as UTF-8.
        header: only those with this header, "name" or "name=value".
        max_read_bytes, max_ms: end of one request.
        max_value_bytes: longer values are cut; 0: none.
    """

    topic: str
    order: str = NEWEST
    start: str = ""
    partition: int = -1
    limit: int = 50
    key: str | None = None
    contains: str = ""
    header: str = ""
    committed: bool = False
    as_base64: bool = False
    max_read_bytes: int = 16 << 20
    max_ms: int = 1_000
    max_value_bytes: int = 0

    def matches(self, record: Record) -> bool:
        """Return True if a record is wanted."""
        if self.key is not None and record.key != self.key.encode():
            return False
        if self.header and not self._has_header(record):
            return False
        return not self.contains or self._contains(record)

    def _has_header(self, record: Record) -> bool:
        name, equals, text = self.header.partition("=")
        return any(n == name and (not equals or v == text.encode()) for n, v in record.headers)

    def _contains(self, record: Record) -> bool:
        text = self.contains.encode()
        texts = (record.value, record.key, *(value for _, value in record.headers))
        return any(each is not None and text in each for each in texts)


class Hit(NamedTuple):
    """A matching record: its order among those of all partitions, and its JSON."""

    timestamp_ms: int
    partition: int
    offset: int
    text: bytes


class SearchPage(NamedTuple):
    """The result of one request. `positions`: where the next one goes on. `left`: records that were
    not looked at, of `total`. `corrupt`: batches that could not be read.
    """

    found: list[Hit]
    positions: dict[int, int]
    total: int
    left: int
    corrupt: int


@dataclass(slots=True)
class _Track:
    """The search in one partition. It goes on at `position`: newest first behind it, exclusive;
    oldest first at it.
    """

    partition: Partition
    first: int
    end: int
    position: int
    found: list[Hit] = field(default_factory=list)
    """Hit and not shown yet, the next one last."""
    records: int = 0
    """Records of the next window."""


class MessageSearch:
    """Searches of a frontend. Loop thread only."""

    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._records = frontend.broker.records

    async def search(
        self, request: SearchRequest, *, reservation: Reservation, principal: Principal
    ) -> SearchPage:
        """Return a page.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized, InvalidArgument, Overloaded
        """
        return await _Search(self._frontend, request, reservation, principal).run()


class _Search:
    def __init__(
        self, frontend: HttpContext, request: SearchRequest, memory: Reservation, principal: Principal
    ) -> None:
        self._broker = frontend.broker
        self._request = request
        self._memory = memory
        self._principal = principal
        self._is_newest = request.order == NEWEST
        self._read_bytes = 0
        self._corrupt = 0
        self._deadline = frontend.loop.time() + request.max_ms / 1000
        self._now = frontend.loop.time

    async def run(self) -> SearchPage:
        tracks = [await self._begin(each) for each in self._partitions()]
        found: list[Hit] = []
        while len(found) < self._request.limit:
            empty = [each for each in tracks if not each.found and self._left(each)]
            for track in empty:
                await self._read_window(track)
            if self._is_spent:
                break
            if any(not each.found and self._left(each) for each in tracks):
                continue
            best = self._next_of(tracks)
            if best is None:
                break
            found.append(best.found.pop())
        return self._page(tracks, found)

    def _page(self, tracks: Sequence[_Track], found: list[Hit]) -> SearchPage:
        while len(found) < self._request.limit and (best := self._next_of(tracks)) is not None:
            found.append(best.found.pop())
        for track in tracks:
            if track.found:  # found, and there was no room: the next page finds it again
                offset = track.found[-1].offset
                track.position = offset + 1 if self._is_newest else offset
        positions = {each.partition.id.partition: each.position for each in tracks}
        total = sum(each.end - each.first for each in tracks)
        return SearchPage(found, positions, total, sum(map(self._left, tracks)), self._corrupt)

    @property
    def _is_spent(self) -> bool:
        return self._now() >= self._deadline or self._read_bytes >= self._request.max_read_bytes

    def _left(self, track: _Track) -> int:
        return track.position - track.first if self._is_newest else track.end - track.position

    def _next_of(self, tracks: Sequence[_Track]) -> _Track | None:
        waiting = [each for each in tracks if each.found]
        if not waiting:
            return None
        choose = max if self._is_newest else min
        return choose(waiting, key=lambda each: each.found[-1][:3])

    # ── where to begin ────────────────────────────────────────────────────────────────────────────

    def _partitions(self) -> Sequence[Partition]:
        topics, request = self._broker.topics, self._request
        if request.partition >= 0:
            return [
                topics.partition(
                    request.topic, request.partition, operation=Operation.READ, principal=self._principal
                )
            ]
        return topics.partitions(request.topic, operation=Operation.READ, principal=self._principal)

    async def _begin(self, partition: Partition) -> _Track:
        await partition.opened()
        first = partition.start_offset
        end = partition.last_stable_offset if self._request.committed else partition.visible_end
        position = await self._position(partition, first, end)
        records = max(20, 2 * self._request.limit)
        return _Track(partition, first, end, min(max(position, first), end), records=records)

    async def _position(self, partition: Partition, first: int, end: int) -> int:
        default, start = (end if self._is_newest else first), self._request.start
        if not start:
            return default
        if is_positions(start):
            return parse_positions(start).get(partition.id.partition, 0)
        parsed = parse_start_position(start)
        offset, _ = await locate(partition, parsed)
        # "newest first from offset 17" shows 17 as well; from a time, what is before it
        behind = parsed.at == OFFSET and self._is_newest
        if parsed.at == TIMESTAMP and offset < 0:
            return end
        return end if parsed.at == END else offset + int(behind)

    # ── windows ───────────────────────────────────────────────────────────────────────────────────

    async def _read_window(self, track: _Track) -> None:
        """Look at the next records of a partition."""
        low, high = await self._window(track)
        found: list[Hit] = []
        offset = low
        while offset < high:
            chunk, batches = await self._fetch(track, offset)
            if chunk <= offset:
                break
            for part in await asyncio.to_thread(self._filter, batches, low, high):
                found += part
            offset = chunk
            if self._is_spent and not self._is_newest:
                high = min(high, offset)
                break
        if self._is_newest:
            track.found, track.position = found, low
        else:
            track.found, track.position = found[::-1], high
        track.records = track.records * 2 if not found else track.records
        track.records = min(track.records, _MOST_RECORDS)

    async def _window(self, track: _Track) -> tuple[int, int]:
        count = min(track.records, self._left(track))
        while True:
            low = track.position - count if self._is_newest else track.position
            ranges = [(track.partition.id.partition, low, low + count)]
            (size,) = await self._broker.records.estimate_sizes(
                self._request.topic, ranges, principal=self._principal
            )
            if size <= _WINDOW_BYTES or count <= 1:
                return low, low + count
            count = max(1, count // 2)

    async def _fetch(self, track: _Track, offset: int) -> tuple[int, list[PartitionBatch]]:
        """Return the next offset behind what was read, and the batches."""
        request, index = self._request, track.partition.id.partition
        (fetched,) = await self._broker.records.fetch(
            [FetchRequest(request.topic, index, offset, _WINDOW_BYTES)],
            max_bytes=_WINDOW_BYTES,
            committed=request.committed,
            memory=self._memory,
            principal=self._principal,
        )
        if isinstance(fetched.error, OffsetOutOfRange):  # deleted by retention meanwhile
            return max(track.partition.start_offset, offset), []
        if fetched.error is not None:
            raise fetched.error
        if fetched.chunk is None:
            return track.end, []
        chunk = fetched.chunk
        self._read_bytes += fetched.size_bytes
        if fetched.aborted:
            chunk = without_aborted(track.partition, chunk, offset)
        return chunk.next_offset, [*split_batches(request.topic, index, chunk.data)]

    def _filter(self, batches: Sequence[PartitionBatch], low: int, high: int) -> list[list[Hit]]:
        """Return the records that match. Runs in a thread."""
        return [self._filter_batch(batch, low, high) for batch in batches]

    def _filter_batch(self, batch: PartitionBatch, low: int, high: int) -> list[Hit]:
        if batch.header.is_control:
            return []
        try:
            records = decode_readable(
                batch.data, batch.topic, batch.partition, min_offset=low, max_bytes=_MAX_PLAIN_BYTES
            )
        except CorruptBatch as error:
            self._corrupt += 1
            self._broker.measures.corrupt_batches.met("http", SKIP, error)
            return []
        return [
            Hit(each.timestamp, each.partition, each.offset, self._shown(each))
            for each in records
            if low <= each.offset < high and self._request.matches(each)
        ]

    def _shown(self, record: Record) -> bytes:
        value, most = record.value, self._request.max_value_bytes
        size_bytes = -1 if value is None else len(value)
        is_cut = bool(most) and size_bytes > most
        members = members_of_record(
            record if not is_cut else _with_value(record, _cut(value or b"", most)),
            as_base64=self._request.as_base64,
        )
        members["value_bytes"] = size_bytes
        members["is_cut"] = is_cut
        return encode(members)


def _with_value(record: Record, value: bytes) -> Record:
    from msgspec.structs import replace

    return replace(record, value=value)


def _cut(value: bytes, most: int) -> bytes:
    """Return the beginning of a value. A character of UTF-8 is not cut, so that text stays text."""
    end = most
    while end > most - 4 and end > 0 and value[end] & 0xC0 == 0x80:
        end -= 1
    return value[:end]
