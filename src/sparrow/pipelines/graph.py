"""Graph of which flow feeds which: by name (`from: {flow: …}`), or because one reads a topic that
the other writes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparrow.pipelines.model import TopicSink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparrow.pipelines.model import Flow, Source


def written_topics(flow: Flow) -> tuple[str, ...]:
    """Return the topics that a flow writes: the one of its sink, and the one of its dead
    letters.
    """
    sink = (flow.sink.topic,) if isinstance(flow.sink, TopicSink) else ()
    return (*sink, flow.dead_letters) if flow.dead_letters else sink


def reads(source: Source, topic: str) -> bool:
    """Return True if a source reads the topic, by its name or its pattern."""
    if source.pattern is None:
        return topic in source.topics
    try:
        return re.fullmatch(source.pattern, topic) is not None
    except (re.error, OverflowError, RecursionError):
        return False


def feeders(flows: Iterable[Flow], flow: Flow) -> tuple[str, ...]:
    """Return the names of the flows that write what the flow reads, including the flow itself if it
    reads its own output.
    """
    return tuple(
        each.name
        for each in flows
        if each.name == flow.source.flow or any(reads(flow.source, topic) for topic in written_topics(each))
    )


def edges(flows: Sequence[Flow]) -> dict[str, tuple[str, ...]]:
    """Return, for each flow, the flows that feed it."""
    return {flow.name: feeders(flows, flow) for flow in flows}


def cycles(fed_by: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Return each cycle of flows once, as a path that ends where it began."""
    seen: set[frozenset[str]] = set()
    for start in fed_by:
        path = _path_back(fed_by, start)
        if path and frozenset(path) not in seen:
            seen.add(frozenset(path))
            yield path


def _path_back(fed_by: Mapping[str, Sequence[str]], start: str) -> tuple[str, ...]:
    """Return the shortest path from a flow through the flows that it feeds back to itself, or () if
    there is none.
    """
    came_from: dict[str, str] = {}
    waiting = [start]
    while waiting:
        at = waiting.pop(0)
        for feeder in fed_by.get(at, ()):
            if feeder == start:
                return _walked(came_from, at, start)
            if feeder not in came_from and feeder in fed_by:
                came_from[feeder] = at
                waiting.append(feeder)
    return ()


def _walked(came_from: Mapping[str, str], last: str, start: str) -> tuple[str, ...]:
    path = [start, last]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return tuple(path)
