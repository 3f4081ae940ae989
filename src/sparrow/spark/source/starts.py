"""Beginning and end of reading, from the options and the existing offsets.

By Kafka's rules: a timestamp for all partitions comes before timestamps by partition, and these
before offsets. Offsets or timestamps by partition must name every partition, so that none is
forgotten; -2 is its earliest offset and -1 its latest. A position by time is the first record of
that time or later; there may be none, which `startingOffsetsByTimestampStrategy` decides for the
beginning, and which is the end for the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import InvalidArgument
from sparrow.spark.options.source import AT_END, AT_START, EARLIEST, LATEST
from sparrow.spark.source.snapshot import Snapshot, TopicPartition, extents

if TYPE_CHECKING:
    from sparrow.spark.options.declare import Values
    from sparrow.spark.source.snapshot import Extent

Lookup = Callable[[str, int], Mapping[int, int]]
"""(topic, ms) → the first offset of that time or later by partition, -1 where there is none."""


def starting(values: Values, snapshot: Snapshot, lookup: Lookup, default: str) -> dict[TopicPartition, int]:
    """Return where each partition begins.

    Raises:
        InvalidArgument: partitions are missing or too many; no record is as late as was asked.
    """
    must_be = values["startingOffsetsByTimestampStrategy"] == "error"
    return _positions(values, snapshot, lookup, ("starting", default, must_be))


def ending(values: Values, snapshot: Snapshot, lookup: Lookup) -> dict[TopicPartition, int]:
    """Return where each partition ends.

    Raises:
        InvalidArgument: partitions are missing or too many.
    """
    return _positions(values, snapshot, lookup, ("ending", LATEST, False))


def _positions(
    values: Values, snapshot: Snapshot, lookup: Lookup, wanted: tuple[str, str, bool]
) -> dict[TopicPartition, int]:
    which, default, must_be = wanted
    there = extents(snapshot)
    if values[f"{which}Timestamp"] is not None:
        times = dict.fromkeys(there, values[f"{which}Timestamp"])
        return _by_time(times, there, lookup, f"{which}Timestamp" if must_be else "")
    name = f"{which}OffsetsByTimestamp"
    if values[name] is not None:
        return _by_time(_by_partition(name, values[name], there), there, lookup, name if must_be else "")
    given: Any = default if values[f"{which}Offsets"] is None else values[f"{which}Offsets"]
    if given == EARLIEST:
        return {key: extent.start for key, extent in there.items()}
    if given == LATEST:
        return {key: extent.end for key, extent in there.items()}
    offsets = _by_partition(f"{which}Offsets", given, there)
    return {key: _meant(offset, there[key]) for key, offset in offsets.items()}


def _meant(offset: int, extent: Extent) -> int:
    return {AT_START: extent.start, AT_END: extent.end}.get(offset, offset)


def _by_partition(
    name: str, given: Mapping[str, Mapping[int, int]], there: Mapping[TopicPartition, Any]
) -> dict[TopicPartition, int]:
    """Return the value of each partition, if there is one for each."""
    found = {TopicPartition(topic, p): value for topic, each in given.items() for p, value in each.items()}
    missing, unknown = sorted(there.keys() - found.keys()), sorted(found.keys() - there.keys())
    if missing or unknown:
        parts = []
        if missing:
            parts.append(f"{_listed(missing)} missing (say -2 for the earliest, -1 for the latest offset)")
        if unknown:
            parts.append(f"{_listed(unknown)} not among what is read")
        raise InvalidArgument(f"{name} must name the partitions that are read: {'; '.join(parts)}")
    return found


def _listed(partitions: list[TopicPartition]) -> str:
    shown = [f"{topic}-{partition}" for topic, partition in partitions[:5]]
    more = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
    return f"{', '.join(shown)}{more} {'are' if len(partitions) > 1 else 'is'}"


def _by_time(
    times: Mapping[TopicPartition, int],
    there: Mapping[TopicPartition, Extent],
    lookup: Lookup,
    must_be: str,
) -> dict[TopicPartition, int]:
    """Return positions by time. `must_be`: the option to name where no record is that late; empty:
    the position is the end.
    """
    offsets = {each: lookup(*each) for each in {(key.topic, time_ms) for key, time_ms in times.items()}}
    found: dict[TopicPartition, int] = {}
    for key, time_ms in times.items():
        offset = offsets[key.topic, time_ms].get(key.partition, -1)
        if offset < 0 and must_be:
            raise InvalidArgument(
                f"{must_be}: {key} has no record of {time_ms} ms or later; "
                "set startingOffsetsByTimestampStrategy=latest to begin at its end"
            )
        end = there[key].end
        found[key] = end if offset < 0 else min(offset, end)
    return found
