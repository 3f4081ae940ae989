"""Which flow feeds which: by name (`from: {flow: …}`), or because one reads a topic that the other writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparrow.spark.pipelines.model import TopicSink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparrow.spark.pipelines.model import Flow, Source


def written_topics(flow: Flow) -> tuple[str, ...]:
    """The topics that a flow writes: that of its sink, and its dead letters."""
    sink = (flow.sink.topic,) if isinstance(flow.sink, TopicSink) else ()
    return (*sink, flow.dead_letters) if flow.dead_letters else sink


def reads(source: Source, topic: str) -> bool:
    """Whether a source reads the topic, by its name or its pattern."""
    if source.pattern is None:
        return topic in source.topics
    try:
        return re.fullmatch(source.pattern, topic) is not None
    except (re.error, OverflowError, RecursionError):
        return False


def feeders(flows: Iterable[Flow], flow: Flow) -> tuple[str, ...]:
    """The names of the flows that write what the flow reads; its own is among them if it reads what it writes."""
    return tuple(
        each.name
        for each in flows
        if each.name == flow.source.flow or any(reads(flow.source, topic) for topic in written_topics(each))
    )


def edges(flows: Sequence[Flow]) -> dict[str, tuple[str, ...]]:
    """Flow → those of the flows that feed it."""
    return {flow.name: feeders(flows, flow) for flow in flows}


def cycles(fed_by: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Each circle of flows once, as a path that ends where it began."""
    seen: set[frozenset[str]] = set()
    for start in fed_by:
        path = _path_back(fed_by, start)
        if path and frozenset(path) not in seen:
            seen.add(frozenset(path))
            yield path


def _path_back(fed_by: Mapping[str, Sequence[str]], start: str) -> tuple[str, ...]:
    """The shortest way from a flow over those that it feeds back to itself; () if there is none."""
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
