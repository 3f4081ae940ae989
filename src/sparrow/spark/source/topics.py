"""Requests of the driver to the broker: offsets, positions by time, sizes of ranges."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import OffsetOutOfRange, UnknownPartition, UnknownTopic
from sparrow.spark.source.offsets import StreamOffset
from sparrow.spark.source.snapshot import Extent, Snapshot, TopicPartition, TopicState
from sparrow.spark.wire import PATIENCE_S, borrowed

if TYPE_CHECKING:
    from sparrow.spark.options.declare import Values
    from sparrow.spark.source.plan import OffsetRange
    from sparrow.spark.wire import Target

_BY_TIME: Final = "timestamp"
_MAX_PLACES: Final = 10_000
"""Limit of partitions that the broker looks at in one call."""
_GONE: Final = (UnknownTopic, UnknownPartition, OffsetOutOfRange)
"""Errors of topics and partitions that existed a moment ago. The next look or read reports them as
a loss.
"""


@dataclass(frozen=True)
class SourceSelection:
    """The topics or partitions that are read."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None

    @classmethod
    def of(cls, values: Values) -> SourceSelection:
        assigned = values["assign"]
        topics = tuple(sorted(assigned)) if assigned is not None else values["subscribe"] or ()
        return cls(topics, values["subscribePattern"], assigned)


class SourceTopics:
    """The topics of a selection, at the broker. One connection at a time, lent by the process."""

    def __init__(self, target: Target, selection: SourceSelection, *, is_committed: bool) -> None:
        self.selection = selection
        self._target = target
        self._whole: Snapshot = {}
        """The last snapshot, with partitions that are not assigned."""
        self._isolation = "read_committed" if is_committed else "read_uncommitted"
        self._patience_s = 0.0
        """Patience with a broker that has answered before, since an error would end the query."""

    def snapshot(self, known: StreamOffset | None = None, wait_ms: int = 0) -> Snapshot:
        """Return the offsets; when they are those that are known, after a change or so long a
        wait.
        """
        names = self._names()
        if known is not None and not (names and known.next):
            # There is nothing that the broker could wait for.
            time.sleep(wait_ms / 1000)
        if names:
            found = self._call("topic.watch", self._watched(names, known or StreamOffset({}), wait_ms))
            self._whole = {
                name: _state(id_, partitions) for name, id_, partitions in map(_topic, found["topics"])
            }
        else:
            self._whole = {}
        return {name: self._assigned(name, state) for name, state in self._whole.items()}

    def existing(self) -> Snapshot:
        """Return the offsets of topics that must exist.

        Raises:
            UnknownTopic, UnknownPartition: one does not.
        """
        found = self.snapshot()
        missing = [name for name in self.selection.topics if name not in found]
        if missing:
            raise UnknownTopic(_no_topics(missing))
        for topic, partitions in (self.selection.partitions or {}).items():
            lacking = [str(p) for p in partitions if p not in found[topic].partitions]
            if lacking:
                raise UnknownPartition(f"topic {topic} has no partition {', '.join(lacking)}")
        return found

    def at_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """Return by partition the first offset of that time or later, or -1."""
        arguments = {"name": topic, "at": _BY_TIME, "value": timestamp_ms}
        return {
            partition: offset for partition, offset, _ in self._call("topic.offsets", arguments)["offsets"]
        }

    def estimate(self, ranges: Sequence[OffsetRange]) -> list[int]:
        """Return about how many bytes each range has; what is gone has none."""
        found: list[int] = [0] * len(ranges)
        for topic, numbers in _by_topic([each.topic for each in ranges]):
            asked = [[ranges[n].partition, ranges[n].low, ranges[n].high] for n in numbers]
            with suppress(*_GONE):
                sizes = self._call("topic.weigh", {"topic": topic, "ranges": asked})["bytes"]
                for number, size in zip(numbers, sizes, strict=True):
                    found[number] = size
        return found

    def estimated_ends(self, points: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """Return, by partition, the offset at which about this many bytes from an offset end.
        Deleted topics and partitions are left out.
        """
        found: dict[TopicPartition, int] = {}
        keys = list(points)
        for topic, numbers in _by_topic([key.topic for key in keys]):
            asked = [[keys[n].partition, *points[keys[n]]] for n in numbers]
            with suppress(*_GONE):
                offsets = self._call("topic.reach", {"topic": topic, "points": asked})["offsets"]
                found |= {keys[number]: offset for number, offset in zip(numbers, offsets, strict=True)}
        return found

    def _names(self) -> list[str]:
        if self.selection.pattern is None:
            return list(self.selection.topics)
        listed = self._call("topic.list", {})["topics"]
        return [topic["name"] for topic in listed if re.fullmatch(self.selection.pattern, topic["name"])]

    def _watched(self, names: Sequence[str], known: StreamOffset, wait_ms: int) -> dict[str, Any]:
        ends: dict[str, dict[int, int]] = {}
        for (topic, partition), end in known.next.items():
            ends.setdefault(topic, {})[partition] = end
        for topic in self.selection.partitions or () if known.next else ():
            # The broker looks at all partitions of a topic.
            seen = self._whole[topic].partitions if topic in self._whole else {}
            ends[topic] = {p: extent.end for p, extent in seen.items()} | ends.get(topic, {})
        return {
            "topics": list(names),
            "known": ends,
            "ids": dict(known.ids),
            "isolation": self._isolation,
            "wait_ms": wait_ms,
        }

    def _assigned(self, name: str, state: TopicState) -> TopicState:
        """Return the assigned partitions of an assigned topic."""
        if self.selection.partitions is None:
            return state
        wanted = self.selection.partitions[name]
        return TopicState(state.id, {p: extent for p, extent in state.partitions.items() if p in wanted})

    def _call(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        with borrowed(self._target, patience_s=self._patience_s) as session:
            response = session.call(verb, arguments)
        self._patience_s = PATIENCE_S
        return response


def _by_topic(topics: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield each topic with its positions in the list, as many at a time as one call may ask
    for.
    """
    positions: dict[str, list[int]] = {}
    for number, topic in enumerate(topics):
        positions.setdefault(topic, []).append(number)
    for topic, numbers in positions.items():
        for first in range(0, len(numbers), _MAX_PLACES):
            yield topic, numbers[first : first + _MAX_PLACES]


def _topic(found: Mapping[str, Any]) -> tuple[str, str, Sequence[tuple[int, int, int]]]:
    return found["name"], found["id"], found["partitions"]


def _state(id_: str, partitions: Sequence[tuple[int, int, int]]) -> TopicState:
    return TopicState(id_, {partition: Extent(start, end) for partition, start, end in partitions})


def _no_topics(missing: Sequence[str]) -> str:
    if len(missing) == 1:
        return (
            f"there is no topic {missing[0]!r}; create it (`sparrow topic create {missing[0]}`), or "
            "correct subscribe or assign"
        )
    return f"there are no topics {', '.join(map(repr, missing))}; create them, or correct subscribe or assign"
