"""Filters on topic, partition, offset and timestamp, as limits of what is read.

Topics, partitions and bounds of offsets are applied to the row, so that Spark need not filter
again. A bound of the time can only say where to begin: records before the first one of that time or
later are earlier, but those behind it may also be earlier. So Spark filters by time again, and an
upper bound limits nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    from sparrow.spark.source.plan import OffsetRange
    from sparrow.spark.source.starts import Lookup

_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The process that Spark asks for filters, which it starts only when pushing them is switched
on.
"""
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestamptype"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EQUAL: Final = (EqualTo, EqualNullSafe)
_MIN: Final = -(1 << 63)
_MAX: Final = (1 << 63) - 1


def is_offered(option: str) -> bool:
    """Return True if filters are taken: where they are wanted, or where Spark is about to ask for
    them.
    """
    if option == "auto":
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        return _WORKER in sys.argv or (main is not None and main.name == _WORKER)
    return option == "true"


@dataclass
class Pushed:
    """The limits that filters impose. `take` returns True for a filter that is fully applied."""

    low: int = _MIN
    high: int = _MAX
    """Offsets from `low` to `high`, both included."""
    since_ms: int = _MIN
    topics: set[str] | None = None
    """None: all."""
    partitions: set[int] | None = None
    tests: list[Filter] = field(default_factory=list)
    """Bounds of the partition's number."""

    def take(self, given: Filter) -> bool:
        path: tuple[str, ...] = getattr(given, "attribute", ())
        column = path[0].lower() if len(path) == 1 else ""
        if isinstance(given, IsNotNull):
            return column in _NEVER_NULL
        takes = {
            "topic": self._take_topic,
            "partition": self._take_partition,
            "offset": self._take_offset,
            "timestamp": self._take_timestamp,
        }.get(column)
        return takes is not None and takes(given)

    def limit(self, ranges: Iterable[OffsetRange], lookup: Lookup) -> list[OffsetRange]:
        """Return the ranges, cut to the limits."""
        left = [
            replace(each, low=max(each.low, self.low), high=min(each.high, min(self.high, _MAX - 1) + 1))
            for each in ranges
            if self._has(each)
        ]
        left = [each for each in left if each.offsets > 0]
        return left if self.since_ms == _MIN else self._since(left, lookup)

    def _has(self, each: OffsetRange) -> bool:
        if self.topics is not None and each.topic not in self.topics:
            return False
        if self.partitions is not None and each.partition not in self.partitions:
            return False
        return all(_is_met(test, each.partition) for test in self.tests)

    def _since(self, ranges: list[OffsetRange], lookup: Lookup) -> list[OffsetRange]:
        time_ms = max(0, self.since_ms)
        firsts = {topic: lookup(topic, time_ms) for topic in {each.topic for each in ranges}}
        found = []
        for each in ranges:
            first = firsts[each.topic].get(each.partition, -1)
            if first >= 0:
                found.append(replace(each, low=max(each.low, first)))
        return found

    def _take_topic(self, given: Filter) -> bool:
        words = _words(given, str)
        if words is None:
            return False
        self.topics = words if self.topics is None else self.topics & words
        return True

    def _take_partition(self, given: Filter) -> bool:
        numbers = _words(given, int)
        if numbers is not None:
            self.partitions = numbers if self.partitions is None else self.partitions & numbers
            return True
        if not _is_bound(given):
            return False
        self.tests.append(given)
        return True

    def _take_offset(self, given: Any) -> bool:
        numbers = _words(given, int)
        if numbers is not None:
            self._bound(min(numbers, default=_MAX), max(numbers, default=_MIN))
            return len(numbers) <= 1
        if not _is_bound(given):
            return False
        value = given.value
        if isinstance(given, GreaterThan | GreaterThanOrEqual):
            self._bound(value + isinstance(given, GreaterThan), _MAX)
        else:
            self._bound(_MIN, value - isinstance(given, LessThan))
        return True

    def _take_timestamp(self, given: Filter) -> bool:
        value = getattr(given, "value", None)
        if isinstance(value, datetime) and isinstance(given, (GreaterThan, GreaterThanOrEqual, *_EQUAL)):
            self.since_ms = max(self.since_ms, _milliseconds(value))
        return False

    def _bound(self, low: int, high: int) -> None:
        self.low, self.high = max(self.low, low), min(self.high, high)


def _words(given: Filter, kind: type) -> set[Any] | None:
    """Return the values that a filter allows."""
    if isinstance(given, In):
        values = set(given.value)
    elif isinstance(given, _EQUAL):
        values = {given.value}
    else:
        return None
    return values if all(_is(value, kind) for value in values) else None


def _is_bound(given: Filter) -> bool:
    bounds = GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
    return isinstance(given, bounds) and _is(given.value, int)


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_met(test: Any, value: int) -> bool:
    if isinstance(test, GreaterThan | GreaterThanOrEqual):
        return bool(value > test.value or (isinstance(test, GreaterThanOrEqual) and value == test.value))
    return bool(value < test.value or (isinstance(test, LessThanOrEqual) and value == test.value))


def _milliseconds(value: datetime) -> int:
    """Return milliseconds, rounded down. Spark passes UTC; a time without a zone is also UTC."""
    zoned = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(milliseconds=1)
