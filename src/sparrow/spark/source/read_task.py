"""The work of a reading task: fetch, decode, hand over.

The next fetch is sent before the last one is decoded, so that the broker works while the task does;
after the last fetch of a range that is the first of the next range. There are never more than two
chunks in memory. The process lends the connection, and keeps it for its next task. A lost
connection is opened again there, and its requests are repeated.

Spark closes the rows early where a query has enough; then the connection is given up with the fetch
that is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from sparrow.base.errors import CorruptBatch, OffsetOutOfRange, UnknownPartition, UnknownTopic
from sparrow.spark.kernels import DecodeOptions, Decoder
from sparrow.spark.source import loss
from sparrow.spark.source.rows import SourceRows, decoded_columns
from sparrow.spark.source.snapshot import Extent
from sparrow.spark.wire import PATIENCE_S, FetchWanted, borrowed

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparrow.spark.source.plan import OffsetRange
    from sparrow.spark.wire import FetchAhead, FetchedChunk, Session, Target

_logger: Final = logging.getLogger("sparrow.spark")
_SLACK_BYTES: Final = 64 << 10
"""Addition to the estimated rest of a range, as the estimate is only about right."""


@dataclass(frozen=True)
class ReadSettings:
    """Settings of reading tasks, made on the driver."""

    target: Target
    schema: StructType
    columns: tuple[str, ...]
    """Columns by Sparrow's names, in the order of the schema."""
    is_committed: bool = True
    fails_on_loss: bool = True
    fails_on_corrupt: bool = True
    fetch_bytes: int = 4 << 20

    @property
    def decoding(self) -> DecodeOptions:
        return DecodeOptions(decoded_columns(self.columns), skip_corrupt=not self.fails_on_corrupt)


class ReadTask(InputPartition):
    """The ranges that a task reads, one after the other."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(ranges))

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        return self.value  # type: ignore[no-any-return]


def read(reading: ReadSettings, ranges: Sequence[OffsetRange]) -> Iterator[Any]:
    """Yield Arrow record batches of the ranges, in order.

    Raises:
        OffsetOutOfRange: records are gone, and that is a failure.
        CorruptBatch: a batch cannot be read, and that is a failure; names the topic, partition and
            offset.
        ConnectionLost: the broker cannot be reached.
    """
    if ranges:
        # the driver has reached the broker
        with borrowed(reading.target, patience_s=PATIENCE_S) as session:
            yield from _read(reading, session, ranges)


def _read(reading: ReadSettings, session: Session, ranges: Sequence[OffsetRange]) -> Iterator[Any]:
    with session.fetch_ahead() as ahead:
        fetches = _Fetches(reading, session, ahead, ranges)
        for each in ranges:
            rows = SourceRows(reading.schema, reading.columns, each.topic, each.partition)
            decoder = Decoder(each.topic, each.partition, reading.decoding, low=each.low, high=each.high)
            for chunk in fetches.of(each):
                # Only after a loss: the log may begin within a batch.
                decoder.next_offset = max(decoder.next_offset, fetches.low)
                for decoded in decoder.feed(chunk.data, chunk.aborted):
                    yield from rows.batches(decoded)
                del chunk
            for decoded in decoder.finish():
                yield from rows.batches(decoded)
            _count_skipped(decoder, each)


def _count_skipped(decoder: Decoder, each: OffsetRange) -> None:
    if decoder.skipped_batches:
        _logger.warning(
            "%d corrupt batches of topic %s, partition %d were skipped between the offsets %d and "
            "%d; the last: %s",
            decoder.skipped_batches,
            each.topic,
            each.partition,
            each.low,
            each.high,
            decoder.last_skipped,
        )


class _Fetches:
    """Chunks of ranges, of which one is always fetched ahead."""

    def __init__(
        self, reading: ReadSettings, session: Session, ahead: FetchAhead, ranges: Sequence[OffsetRange]
    ) -> None:
        self._reading = reading
        self._session = session
        self._ahead = ahead
        self._behind = iter(ranges)
        self.low = 0
        """Offset before which everything is lost."""
        self._begin_next()

    def of(self, each: OffsetRange) -> Iterator[FetchedChunk]:
        """Yield all chunks of a range; it must be the next one."""
        offset = self.low = each.low
        while True:
            chunk = self._receive(each, offset)
            if chunk is None:
                offset = each.high
            elif chunk.next_offset > offset:
                offset = chunk.next_offset
            else:
                self._settle_nothing(each, offset, chunk)
                offset = each.high
            if offset < each.high:
                self._ask(each, offset)
            else:
                self._begin_next()
            if chunk is not None:
                yield chunk
            chunk = None  # its memory is for the fetch after the next
            if offset >= each.high:
                return

    def _begin_next(self) -> None:
        following = next(self._behind, None)
        if following is not None:
            self._ask(following, following.low)

    def _ask(self, each: OffsetRange, offset: int, *, max_bytes: int | None = None) -> None:
        left_bytes = each.size_bytes * (each.high - offset) // each.offsets + _SLACK_BYTES
        self._ahead.send(
            FetchWanted(
                each.topic,
                each.topic_id,
                each.partition,
                offset,
                max_bytes or min(self._reading.fetch_bytes, left_bytes),
                self._reading.is_committed,
            )
        )

    def _receive(self, each: OffsetRange, offset: int) -> FetchedChunk | None:
        """Return a chunk. None: nothing of the range is there any more, and that is no failure."""
        try:
            return self._ahead.receive()
        except OffsetOutOfRange:
            return self._receive_what_is_left(each, offset)
        except CorruptBatch as error:
            return self._receive_around(each, offset, error)
        except (UnknownTopic, UnknownPartition) as error:
            self._settle(f"{each.topic_partition} was to be read on from offset {offset}: {error.text}")
            return None

    def _receive_what_is_left(self, each: OffsetRange, offset: int) -> FetchedChunk | None:
        """Receive the rest of a range whose log begins behind the offset, or ends before it."""
        extent = self._extent(each)
        if extent.start > offset:
            self._settle(loss.passed(each.topic_partition, offset, extent, each.high))
            if extent.start < each.high:
                self.low = extent.start
                self._ask(each, extent.start)
                return self._receive(each, extent.start)
        else:
            self._settle(loss.shrunk(each.topic_partition, offset, extent))
        return None

    def _receive_around(self, each: OffsetRange, offset: int, error: CorruptBatch) -> FetchedChunk | None:
        """Receive around damage so bad that the broker does not find the batches of the log: those
        before are read one by one, those behind from the next position that its index knows.
        """
        text = f"{each.topic_partition}, from offset {offset} on: {error.text}"
        if self._reading.fails_on_corrupt:
            raise CorruptBatch(text) from None
        while True:
            with suppress(CorruptBatch):
                self._ask(each, offset, max_bytes=1)
                return self._ahead.receive()
            self._settle_damage(text)
            point = [each.partition, offset, 1]
            (after,) = self._session.call("topic.reach", {"topic": each.topic, "points": [point]})["offsets"]
            if not offset < after < each.high:
                return None
            offset = after

    def _settle_nothing(self, each: OffsetRange, offset: int, chunk: FetchedChunk) -> None:
        """Handle a broker that has none of the records that existed when the range was planned."""
        end = chunk.stable_offset if self._reading.is_committed else chunk.end_offset
        if offset < end:
            self._settle_damage(
                f"{each.topic_partition}, from offset {offset} on: nothing can be read, and the log "
                f"ends at {end}"
            )
        else:
            self._settle(loss.shrunk(each.topic_partition, offset, Extent(chunk.start_offset, end)))

    def _settle_damage(self, text: str) -> None:
        if self._reading.fails_on_corrupt:
            raise CorruptBatch(text) from None
        _logger.warning("a damaged part of a log is skipped: %s", text)

    def _extent(self, each: OffsetRange) -> Extent:
        found = self._session.call("topic.watch", {"topics": [each.topic], "known": {}})
        for topic in found["topics"]:
            for partition, start, end in topic["partitions"]:
                if partition == each.partition:
                    return Extent(start, end)
        return Extent(0, 0)

    def _settle(self, text: str) -> None:
        loss.settle([text], is_failure=self._reading.fails_on_loss)
