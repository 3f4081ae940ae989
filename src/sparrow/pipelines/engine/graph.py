"""Order of flows that run once: each after the flows whose topics and files it reads."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from sparrow.base.errors import NotFound
from sparrow.base.faults import suggestion
from sparrow.pipelines.graph import edges

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sparrow.pipelines.model import Flow, PipelineModel


def chosen(pipeline: PipelineModel, names: Collection[str]) -> list[Flow]:
    """Return the flows of these names, or all if there are no names.

    Raises:
        NotFound: the pipeline has no such flow.
    """
    known = [flow.name for flow in pipeline.flows]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise NotFound(
            f"the pipeline {pipeline.name} has no flow "
            f"{unknown[0]!r}{suggestion(unknown[0], known)}; it has {', '.join(known)}"
        )
    return [flow for flow in pipeline.flows if not names or flow.name in names]


def generations(flows: Iterable[Flow]) -> list[list[Flow]]:
    """Return groups of flows: the flows of a group may run together, and groups run one after the
    other.
    """
    flows = list(flows)
    by_name = {flow.name: flow for flow in flows}
    fed_by = edges(flows)
    sorter = TopologicalSorter({name: set(feeders) - {name} for name, feeders in fed_by.items()})
    sorter.prepare()
    found = []
    while sorter.is_active():
        ready = sorter.get_ready()
        found.append(sorted((by_name[name] for name in ready), key=flows.index))
        sorter.done(*ready)
    return found
