"""Where reading begins and ends, of the options and of what is there.

By Kafka's rules: a timestamp for all partitions comes before timestamps by partition, and these before offsets. Who names offsets or timestamps by
partition names every partition, so that none is forgotten; -2 is its earliest offset and -1 its latest. A place by time is the first record of that
time or later; there may be none, which `startingOffsetsByTimestampStrategy` decides for the beginning, and which is the end for the end.
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
    """Where each partition begins.

    Raises:
        InvalidArgument: partitions are missing or too many; no record is as late as was said.
    """
    must_be = values["startingOffsetsByTimestampStrategy"] == "error"
    return _places(values, snapshot, lookup, ("starting", default, must_be))


def ending(values: Values, snapshot: Snapshot, lookup: Lookup) -> dict[TopicPartition, int]:
    """Where each partition ends.

    Raises:
        InvalidArgument: partitions are missing or too many.
    """
    return _places(values, snapshot, lookup, ("ending", LATEST, False))


def _places(
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
        return {place: extent.start for place, extent in there.items()}
    if given == LATEST:
        return {place: extent.end for place, extent in there.items()}
    offsets = _by_partition(f"{which}Offsets", given, there)
    return {place: _meant(offset, there[place]) for place, offset in offsets.items()}


def _meant(offset: int, extent: Extent) -> int:
    return {AT_START: extent.start, AT_END: extent.end}.get(offset, offset)


def _by_partition(
    name: str, given: Mapping[str, Mapping[int, int]], there: Mapping[TopicPartition, Any]
) -> dict[TopicPartition, int]:
    """What was given for each partition, if it was for each."""
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


def _listed(places: list[TopicPartition]) -> str:
    shown = [f"{topic}-{partition}" for topic, partition in places[:5]]
    more = f" and {len(places) - 5} more" if len(places) > 5 else ""
    return f"{', '.join(shown)}{more} {'are' if len(places) > 1 else 'is'}"


def _by_time(
    times: Mapping[TopicPartition, int],
    there: Mapping[TopicPartition, Extent],
    lookup: Lookup,
    must_be: str,
) -> dict[TopicPartition, int]:
    """`must_be`: the option to blame where no record is that late; empty: there it is the end."""
    answers = {each: lookup(*each) for each in {(place.topic, time_ms) for place, time_ms in times.items()}}
    found: dict[TopicPartition, int] = {}
    for place, time_ms in times.items():
        offset = answers[place.topic, time_ms].get(place.partition, -1)
        if offset < 0 and must_be:
            raise InvalidArgument(
                f"{must_be}: {place} has no record of {time_ms} ms or later; "
                "set startingOffsetsByTimestampStrategy=latest to begin at its end"
            )
        end = there[place].end
        found[place] = end if offset < 0 else min(offset, end)
    return found
