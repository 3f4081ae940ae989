"""In which order flows run that run once: each after those whose sinks it reads."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from sparrow.base.errors import NotFound
from sparrow.base.faults import suggestion
from sparrow.spark.pipelines.model import TopicSink

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sparrow.spark.pipelines.model import Flow, Pipeline


def chosen(pipeline: Pipeline, names: Collection[str]) -> list[Flow]:
    """The flows of these names, all when there are none.

    Raises:
        NotFound: the pipeline has no such flow.
    """
    known = [flow.name for flow in pipeline.flows]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise NotFound(
            f"the pipeline {pipeline.name} has no flow {unknown[0]!r}{suggestion(unknown[0], known)}; it has {', '.join(known)}"
        )
    return [flow for flow in pipeline.flows if not names or flow.name in names]


def read_by(flows: Iterable[Flow]) -> dict[str, set[str]]:
    """By flow, the flows whose sinks it reads: those it names, and those that write to a topic that it names."""
    flows = list(flows)
    names = {flow.name for flow in flows}
    writers: dict[str, set[str]] = {}
    for flow in flows:
        if isinstance(flow.sink, TopicSink):
            writers.setdefault(flow.sink.topic, set()).add(flow.name)
    found = {}
    for flow in flows:
        named = {flow.source.flow} & names if flow.source.flow else set()
        by_topic = {name for topic in flow.source.topics for name in writers.get(topic, ())}
        found[flow.name] = (named | by_topic) - {flow.name}
    return {name: {each for each in others if each} for name, others in found.items()}


def generations(flows: Iterable[Flow]) -> list[list[Flow]]:
    """Flows that may run together, in the order in which one group follows the other."""
    flows = list(flows)
    by_name = {flow.name: flow for flow in flows}
    sorter = TopologicalSorter(read_by(flows))
    sorter.prepare()
    found = []
    while sorter.is_active():
        ready = sorter.get_ready()
        found.append(sorted((by_name[name] for name in ready), key=flows.index))
        sorter.done(*ready)
    return found
