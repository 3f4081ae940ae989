"""Topics of the broker before a built-in pipeline reads them: their names and ids, and the offset
ranges of their partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidArgument, UnknownTopic
from sparrow.base.faults import suggestion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrow.spark.wire.session import Session

Ranges = Mapping[str, Mapping[int, tuple[int, int]]]
"""Topic → partition → [first, end)."""
_WILD: Final = frozenset("*?")
_COMMITTED: Final = "read_committed"


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic as it is now."""

    name: str
    id: str
    starts: Mapping[int, int] = field(default_factory=dict)
    """The first offset of each partition."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """The end of the committed records of each partition."""


@contextmanager
def connected(connection: Mapping[str, str]) -> Iterator[Session]:
    """Connect to the broker, by the options of a source.

    Raises:
        InvalidArgument: an option is wrong.
        ConnectionLost, NotAuthenticated: the broker does not answer, or refuses the credentials.
    """
    from sparrow.spark.options.connection import target_of, with_connection
    from sparrow.spark.wire import connect

    with connect(target_of(with_connection(()).read(connection))) as session:
        yield session


def topics_named(session: Session, names: Sequence[str]) -> list[SourceTopic]:
    """Return the topics of these names; `*` and `?` are wildcards.

    Raises:
        InvalidArgument: no name at all.
        UnknownTopic: names all topics that do not exist.
    """
    if not names:
        raise InvalidArgument("name at least one topic")
    wanted = list(dict.fromkeys(name for given in names for name in _matching(session, given)))
    response = session.call(
        "topic.watch", {"topics": wanted, "known": {}, "isolation": _COMMITTED, "wait_ms": 0}
    )
    if response["missing"]:
        raise UnknownTopic(_missing(session, response["missing"]))
    return [_topic(found) for found in response["topics"]]


def _matching(session: Session, given: str) -> list[str]:
    if not _WILD & set(given):
        return [given]
    found = sorted(topic["name"] for topic in session.call("topic.list", {"pattern": given})["topics"])
    if not found:
        raise UnknownTopic(f"no topic's name matches {given!r}")
    return found


def _missing(session: Session, missing: Iterable[str]) -> str:
    known = [topic["name"] for topic in session.call("topic.list", {"pattern": "*"})["topics"]]
    return ", ".join(f"there is no topic {name!r}{suggestion(name, known)}" for name in missing)


def _topic(found: Mapping[str, Any]) -> SourceTopic:
    starts = {partition: start for partition, start, _ in found["partitions"]}
    ends = {partition: max(start, end) for partition, start, end in found["partitions"]}
    return SourceTopic(found["name"], found["id"], starts, ends)


def offsets_at(session: Session, topic: SourceTopic, time_ms: int) -> dict[int, int]:
    """Return the first offset of that time or later, per partition; the end if there is none."""
    response = session.call("topic.offsets", {"name": topic.name, "at": "timestamp", "value": time_ms})
    found = {partition: offset for partition, offset, *_ in response["offsets"] if offset >= 0}
    return {partition: min(found.get(partition, end), end) for partition, end in topic.ends.items()}


def ranges_between(
    session: Session, topics: Iterable[SourceTopic], since_ms: int | None, until_ms: int | None
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return the offset ranges of topics, now or between two times."""
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    for topic in topics:
        firsts = dict(topic.starts) if since_ms is None else offsets_at(session, topic, since_ms)
        ends = topic.ends if until_ms is None else offsets_at(session, topic, until_ms)
        ranges[topic.name] = {
            partition: (max(start, firsts[partition]), max(start, ends[partition]))
            for partition, start in topic.starts.items()
        }
    return ranges


def count_of(ranges: Ranges) -> int:
    """Return the number of offsets in all ranges."""
    return sum(max(0, end - first) for each in ranges.values() for first, end in each.values())


def read(
    spark: SparkSession,
    connection: Mapping[str, str],
    ranges: Ranges,
    *columns: str,
    with_headers: bool = False,
) -> DataFrame:
    """Read exactly these ranges of topics, committed records only."""
    full = {name: {p: r for p, r in each.items() if r[0] < r[1]} for name, each in ranges.items()}
    full = {name: each for name, each in full.items() if each}
    options = {
        **connection,
        "assign": json.dumps({name: sorted(each) for name, each in full.items()}),
        "startingOffsets": _positions(full, 0),
        "endingOffsets": _positions(full, 1),
        "includeHeaders": str(with_headers).lower(),
        "isolation.level": _COMMITTED,
    }
    if columns:
        options["columns"] = ",".join(columns)
    return spark.read.format("sparrow").options(**options).load()


def _positions(ranges: Ranges, side: int) -> str:
    return json.dumps(
        {
            name: {str(partition): each[side] for partition, each in partitions.items()}
            for name, partitions in ranges.items()
        }
    )
