"""A stream: from its position, as far as there are records or a limit allows, again and again.

Spark calls `latestOffset` in a loop. Where there is nothing new, the request waits at the broker,
so that a stream at rest costs next to nothing and new records are seen at once. The start of a new
stream is determined once, since Spark asks twice. Partitions and topics that appear later are read
from their beginning.

Topics are distinguished by id: one that was deleted and created again is a loss of the old one, and
then read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sparrow.spark.lag import Lag, introduce
from sparrow.spark.options.source import LATEST, check_stream, read_source_options
from sparrow.spark.plain_errors import rows_with_plain_errors, with_plain_errors
from sparrow.spark.source import loss
from sparrow.spark.source.batch import reading_of, sizes_of
from sparrow.spark.source.limits import limited, shares
from sparrow.spark.source.offsets import StreamOffset
from sparrow.spark.source.plan import OffsetRange, plan
from sparrow.spark.source.read_task import ReadSettings, ReadTask, read
from sparrow.spark.source.snapshot import Extent, Snapshot, TopicPartition, TopicState, extents, ids
from sparrow.spark.source.starts import starting
from sparrow.spark.source.topics import SourceSelection, SourceTopics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from sparrow.spark.lag import Introduction
    from sparrow.spark.options.declare import Values

Ends = dict[TopicPartition, int]


def stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a stream.

    Raises:
        InvalidArgument: options or schema do not fit.
    """
    values = read_source_options(given)
    check_stream(values)
    return StreamReader(values, reading_of(values, schema))


class StreamTask(ReadTask):
    """Ranges, and the reader they belong to."""

    def __init__(self, ranges: Sequence[OffsetRange], introduction: Introduction | None) -> None:
        super().__init__(ranges)
        self.introduction = introduction


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader, which lives on the driver as long as its query; tasks get a copy to read with.
    One call at a time.
    """

    def __init__(self, values: Values, reading: ReadSettings) -> None:
        self._values = values
        self._reading = reading
        self._topics = SourceTopics(
            reading.target, SourceSelection.of(values), is_committed=reading.is_committed
        )
        self._lag = Lag(
            reading.target,
            is_wanted=values["lag"],
            prefix=values["groupIdPrefix"],
            group=values["kafka.group.id"],
        )
        self._initial: dict[str, Any] | None = None
        self._last: Snapshot | None = None
        """The offsets at the last request."""
        self._target: Snapshot | None = None
        """The end of an available-now trigger."""

    # ── where ─────────────────────────────────────────────────────────────────────────────────────

    @with_plain_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._initial is None:
            self._values.warn()
            self._last = snapshot = self._topics.existing()
            starts = starting(self._values, snapshot, self._topics.at_time, LATEST)
            self._initial = StreamOffset(starts, ids(snapshot)).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        max_rows, max_bytes = self._values["maxOffsetsPerTrigger"], self._values["maxBytesPerTrigger"]
        if max_rows is not None:
            return ReadMaxRows(max_rows)
        return ReadAllAvailable() if max_bytes is None else ReadMaxBytes(max_bytes)

    @with_plain_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last = self._target = self._topics.snapshot()

    @with_plain_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begun = StreamOffset.of(start)
        snapshot = self._look(begun)
        self._settle(_vanished(begun, snapshot))
        there = extents(snapshot)
        starts = {partition: _base(begun, snapshot, partition, extent) for partition, extent in there.items()}
        # Lost records do not count for limits.
        bases = {partition: max(starts[partition], extent.start) for partition, extent in there.items()}
        ends = {partition: extent.end for partition, extent in there.items()}
        self._lag.reached(_by_topic(bases), is_caught_up=bases == ends)
        is_first = start == self._initial and bool(starts)
        found = StreamOffset(self._limit(bases, ends, limit), ids(snapshot), starts if is_first else None)
        return start if found.is_at(begun) else found.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        if self._last is None:
            return None
        ends = {partition: extent.end for partition, extent in extents(self._last).items()}
        return StreamOffset(ends, ids(self._last)).to_json()

    def _look(self, begun: StreamOffset) -> Snapshot:
        if self._target is not None:
            self._last = _until(self._target, self._topics.snapshot(), begun)
        else:
            self._last = self._topics.snapshot(begun, self._values["pollTimeout"])
        return self._last

    # ── how much ──────────────────────────────────────────────────────────────────────────────────

    def _limit(self, bases: Mapping[TopicPartition, int], ends: Ends, limit: ReadLimit) -> Ends:
        if isinstance(limit, ReadMaxRows):
            ends = limited(bases, ends, limit.max_rows)
            # Spark knows one limit; this class keeps the other.
            max_bytes = self._values["maxBytesPerTrigger"]
        else:
            max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return ends if max_bytes is None else self._limit_bytes(bases, ends, max_bytes)

    def _limit_bytes(self, bases: Mapping[TopicPartition, int], ends: Ends, max_bytes: int) -> Ends:
        waiting = [partition for partition, end in ends.items() if end > bases[partition]]
        ranges = [
            OffsetRange(partition.topic, "", partition.partition, bases[partition], ends[partition])
            for partition in waiting
        ]
        sizes = dict(zip(waiting, map(int, self._topics.estimate(ranges)), strict=True))
        taken = shares(sizes, max_bytes)
        points = {
            partition: (bases[partition], taken[partition])
            for partition in waiting
            if taken[partition] < sizes[partition]
        }
        reached = self._topics.estimated_ends(points) if points else {}
        return ends | {
            partition: min(ends[partition], max(offset, bases[partition] + 1))
            for partition, offset in reached.items()
        }

    # ── what ──────────────────────────────────────────────────────────────────────────────────────

    @with_plain_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun, ended = StreamOffset.of(start), StreamOffset.of(end)
        if ended.start is not None:
            begun = StreamOffset(ended.start, ended.ids)
        if self._last is None:
            # A micro-batch that was planned before a restart.
            self._last = self._topics.snapshot()
        ranges = self._ranges(begun, ended, self._last)
        tasks = plan(ranges, self._topics.estimate, sizes_of(self._values))
        return [StreamTask(task, self._lag.introduction) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, StreamTask):
            return iter(())
        return rows_with_plain_errors(self._read(partition))

    def _read(self, task: StreamTask) -> Iterator[Any]:
        introduce(self._reading.target, task.introduction)
        yield from read(self._reading, task.ranges)

    def stop(self) -> None:
        """Do nothing: the connection is the process's, which ends now."""

    def _ranges(self, begun: StreamOffset, ended: StreamOffset, snapshot: Snapshot) -> list[OffsetRange]:
        """Return the existing offsets among those that are wanted."""
        there = extents(snapshot)
        losses = list(_vanished(ended, snapshot))
        ranges = []
        for partition, high in ended.next.items():
            extent = there.get(partition)
            if extent is None or not _is_same(ended, snapshot, partition.topic):
                continue
            bounds, lost = loss.cut(partition, (_base(begun, snapshot, partition, extent), high), extent)
            losses += lost
            ranges.append(
                OffsetRange(partition.topic, snapshot[partition.topic].id, partition.partition, *bounds)
            )
        self._settle(losses)
        return ranges

    def _settle(self, losses: Sequence[str]) -> None:
        loss.settle(losses, is_failure=self._reading.fails_on_loss)


def _until(target: Snapshot, now: Snapshot, begun: StreamOffset) -> Snapshot:
    """Return the offsets now, but no more than at the last request. A new stream may have begun a
    little behind that.
    """

    def end(topic: str, partition: int, extent: Extent) -> int:
        old = target.get(topic)
        if old is None or old.id != now[topic].id:
            return extent.start
        before = old.partitions[partition].end if partition in old.partitions else extent.start
        base = _base(begun, now, TopicPartition(topic, partition), extent)
        return min(extent.end, max(extent.start, before, base))

    return {
        topic: TopicState(
            state.id,
            {p: Extent(extent.start, end(topic, p, extent)) for p, extent in state.partitions.items()},
        )
        for topic, state in now.items()
    }


def _is_same(known: StreamOffset, snapshot: Snapshot, topic: str) -> bool:
    """Return True if the offsets are of the topic as it is now."""
    return topic in snapshot and known.ids.get(topic, snapshot[topic].id) == snapshot[topic].id


def _base(begun: StreamOffset, snapshot: Snapshot, partition: TopicPartition, extent: Extent) -> int:
    """Return where a partition continues; a new one at its beginning."""
    if not _is_same(begun, snapshot, partition.topic):
        return extent.start
    return begun.next.get(partition, extent.start)


def _vanished(known: StreamOffset, snapshot: Snapshot) -> list[str]:
    """Yield topics, or partitions of them, that are not there any more."""
    losses = []
    for topic in dict.fromkeys(partition.topic for partition in sorted(known.next)):
        offsets = {
            partition.partition: offset
            for partition, offset in sorted(known.next.items())
            if partition.topic == topic
        }
        state = snapshot.get(topic)
        if state is None:
            losses.append(loss.gone(topic, offsets))
        elif not _is_same(known, snapshot, topic):
            losses.append(loss.remade(topic, known.ids[topic], state.id, offsets))
        elif lacking := {p: offset for p, offset in offsets.items() if p not in state.partitions}:
            losses.append(loss.gone(topic, lacking))
    return losses


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[partition] = offset
    return found
