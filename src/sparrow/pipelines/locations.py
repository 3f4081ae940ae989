"""Locations of a pipeline's nodes in its file, for the errors that name them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from sparrow.base.settings import Located
from sparrow.pipelines.model import (
    DeltaSink,
    IcebergSink,
    Location,
    Node,
    ParquetSink,
    PipelineModel,
    TopicSink,
)

T = TypeVar("T")
AnyPipeline = TypeVar("AnyPipeline", bound=PipelineModel)

_KEYS = {"source": "from", "sink": "to"}
"""Keys of the file by the name of the field, where the two differ."""
_BESIDE = (TopicSink, ParquetSink, DeltaSink, IcebergSink)
"""Nodes whose settings are beside the key that names their kind, not under it."""


def with_locations(pipeline: AnyPipeline) -> AnyPipeline:
    """Return the pipeline with locations in it. A pipeline made in Python gets paths without
    lines.
    """
    return pipeline if pipeline.location is not None else with_locations_of(pipeline, Located(None, ""))


def with_locations_of(pipeline: AnyPipeline, located: Located) -> AnyPipeline:
    root = Location(located)
    flows = tuple(
        _with_location(flow, _of_name(root.inside("flows"), flow.name, at))
        for at, flow in enumerate(pipeline.flows)
    )
    tables = tuple(_with_location(table, root.inside("tables", table.name)) for table in pipeline.tables)
    return replace(
        pipeline,
        location=root,
        flows=flows,
        tables=tables,
        broker=_with_location(pipeline.broker, root.inside("broker")),
        trigger=_with_location(pipeline.trigger, root.inside("trigger")),
    )


def _of_name(location: Location, name: str, index: int) -> Location:
    """Return the path of a named item: its name in a mapping, or its index in a list."""
    return location.inside(index) if location.has(index) else location.inside(name)


def _with_location(node: T, location: Location) -> T:
    """Return a node with locations in it and in all nodes below."""
    assert isinstance(node, Node)
    changed: dict[str, Any] = {"location": location}
    for each in fields(node):
        value = getattr(node, each.name)
        inside = location.inside(_KEYS.get(each.name, each.name))
        if isinstance(value, Node):
            changed[each.name] = _with_location(value, _under_word(inside, value))
        elif isinstance(value, tuple | list) and value and all(isinstance(one, Node) for one in value):
            changed[each.name] = tuple(
                _with_location(
                    one,
                    _under_word(inside.inside(index) if inside.has(0) or not inside.has() else inside, one),
                )
                for index, one in enumerate(value)
            )
    made: T = replace(node, **changed)
    return made


def _under_word(location: Location, node: Node) -> Location:
    """Return the path of a kind's settings: under its key, unless the key is one of the
    settings.
    """
    is_under = node.KEY and location.has(node.KEY) and not isinstance(node, _BESIDE)
    return location.inside(node.KEY) if is_under else location
