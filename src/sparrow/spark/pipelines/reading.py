"""A pipeline out of its YAML file: every fault of the file at once, each with its line; and the JSON Schema of such a file, for editors.

Read here is what stands in the file. Whether it makes sense is for `checks`, which gets the places from here.
"""

from __future__ import annotations

import os
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import Misfit, by_line, dotted
from sparrow.base.options import Located
from sparrow.base.shapes import Part, Section, section_of
from sparrow.base.yamlfile import YamlFile
from sparrow.spark.pipelines.model import (
    Broker,
    DeltaSink,
    IcebergSink,
    Node,
    ParquetSink,
    Pipeline,
    Place,
    TopicSink,
)
from sparrow.spark.pipelines.sections.flows import FLOWS, TRIGGER
from sparrow.spark.pipelines.sections.tables import TABLES
from sparrow.spark.pipelines.sections.words import TEXTS_BY_NAME, WORD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.base.faults import Path

T = TypeVar("T")

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CHECKPOINTS = "checkpoints"
_BROKER_FILES = ("token_file", "password_file", "ca_file", "certificate_file", "key_file")
_PATHS: Mapping[str, tuple[str, ...]] = {
    "Broker": _BROKER_FILES,
    "FileTable": ("path",),
    "DeltaTable": ("path",),
    "JdbcTable": ("password_file",),
    "AvroDecoder": ("schema_file",),
    "ProtobufDecoder": ("descriptor_file",),
    "ParquetSink": ("path",),
    "DeltaSink": ("path",),
    "JdbcSink": ("password_file",),
    "Pipeline": ("checkpoints",),
}
"""Fields that are paths, by the class of the node; beside them the file of a Python step."""
_KEYS = {"source": "from", "sink": "to"}
"""What fields are called in the file, where it is something else."""
_BESIDE = (TopicSink, ParquetSink, DeltaSink, IcebergSink)
"""Nodes whose settings stand beside the word that tells their kind."""

_NOT_HERE = "a secret does not stand in this file; name a file that has it by"
_BROKER = Section(
    "the broker",
    {"url": Part(WORD, is_secret=True), "user": Part(WORD), **{name: Part(WORD) for name in _BROKER_FILES}},
    "url",
    {"password": f"{_NOT_HERE} 'password_file'", "token": f"{_NOT_HERE} 'token_file'"},
)
_PIPELINE = Section(
    "a pipeline",
    {
        "name": Part(WORD, is_required=True),
        "broker": Part(section_of(_BROKER, lambda values: Broker(**values))),
        "checkpoints": Part(WORD),
        "trigger": Part(TRIGGER),
        "spark": Part(TEXTS_BY_NAME),
        "tables": Part(TABLES),
        "flows": Part(FLOWS, is_required=True),
    },
    advice={
        "sources": "there is no 'sources'; each flow names its own by 'from'",
        "sinks": "there is no 'sinks'; each flow names its own by 'to'",
        "url": "the broker's address is 'broker'",
    },
)


def load(path: str) -> Pipeline:
    """Read a pipeline's file.

    Raises:
        InvalidConfig: every fault of the file, one per line, each with file and line.
    """
    file = YamlFile(
        path,
        noun="the pipeline's file",
        example="name: orders",
        remedy="give the path of a YAML file that describes a pipeline",
    )
    found = file.flat(file.sections)
    errors = [sentence for each in found.values() for sentence in each.faults]
    located = _as_one(path, found)
    values: dict[str, Any] = {}
    try:
        values = _PIPELINE.read({key: each.value for key, each in found.items() if not each.faults})
    except Misfit as error:
        # What is missing may stand in a part that could not be read.
        errors += [
            f"{located.place_of(fault.path)}: {dotted(fault.path)}{fault.text}".replace(": : ", ": ")
            for fault in error.faults
            if fault.path or not errors
        ]
    if errors:
        raise InvalidConfig("\n".join(by_line(errors)))
    values.setdefault("checkpoints", _CHECKPOINTS)
    return _at_home(_placed(Pipeline(**values, file=path), located), os.path.dirname(os.path.abspath(path)))


def file_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a pipeline's file. It allows whatever is read; reading is stricter."""
    return {"$schema": DIALECT, "title": "A pipeline of Sparrow", **_PIPELINE.schema()}


def placed(pipeline: Pipeline) -> Pipeline:
    """The same with places in it, also if it was made in Python: then they have paths, and no lines."""
    return pipeline if pipeline.place is not None else _placed(pipeline, Located(None, ""))


def _as_one(path: str, found: Mapping[str, Located]) -> Located:
    """The lines of the whole file."""
    lines: dict[Path, int] = {}
    for key, each in found.items():
        lines[(key,)] = int(each.place.rpartition(":")[2])
        lines |= {(key, *map(_spelled, inner)): line for inner, line in each.lines.items()}
    return Located(None, f"{path}:1", lines)


def _spelled(part: str | int) -> str | int:
    """YAML 1.1 makes true of the `on` of a join."""
    return "on" if part == "True" else part


def _placed(pipeline: Pipeline, located: Located) -> Pipeline:
    root = Place(located)
    flows = tuple(
        _with_place(flow, _of_name(root.inside("flows"), flow.name, at))
        for at, flow in enumerate(pipeline.flows)
    )
    tables = tuple(_with_place(table, root.inside("tables", table.name)) for table in pipeline.tables)
    return replace(
        pipeline,
        place=root,
        flows=flows,
        tables=tables,
        broker=_with_place(pipeline.broker, root.inside("broker")),
        trigger=_with_place(pipeline.trigger, root.inside("trigger")),
    )


def _of_name(place: Place, name: str, index: int) -> Place:
    """Where a thing of a name stands: under it in a mapping, or at its index in a list."""
    return place.inside(index) if place.has(index) else place.inside(name)


def _with_place(node: T, place: Place) -> T:
    """A node and all nodes in it with their places."""
    assert isinstance(node, Node)
    changed: dict[str, Any] = {"place": place}
    for each in fields(node):
        value = getattr(node, each.name)
        inside = place.inside(_KEYS.get(each.name, each.name))
        if isinstance(value, Node):
            changed[each.name] = _with_place(value, _under_word(inside, value))
        elif isinstance(value, tuple | list) and value and all(isinstance(one, Node) for one in value):
            changed[each.name] = tuple(
                _with_place(
                    one,
                    _under_word(inside.inside(index) if inside.has(0) or not inside.has() else inside, one),
                )
                for index, one in enumerate(value)
            )
    made: T = replace(node, **changed)
    return made


def _under_word(place: Place, node: Node) -> Place:
    """Where the settings of a kind stand: under its word, unless that is one of them."""
    is_under = node.KEY and place.has(node.KEY) and not isinstance(node, _BESIDE)
    return place.inside(node.KEY) if is_under else place


def _at_home(node: T, directory: str) -> T:
    """A node, and all in it, with paths that are relative in the file made absolute."""
    if not is_dataclass(node) or isinstance(node, Place):
        return node
    changed: dict[str, Any] = {}
    paths = _PATHS.get(type(node).__name__, ())
    for each in fields(node):
        value = getattr(node, each.name)
        if each.name in paths and value is not None:
            changed[each.name] = _absolute(value, directory)
        elif each.name == "function":
            changed[each.name] = _absolute_function(value, directory)
        elif isinstance(value, Node):
            changed[each.name] = _at_home(value, directory)
        elif isinstance(value, tuple) and any(isinstance(one, Node) for one in value):
            changed[each.name] = tuple(_at_home(one, directory) for one in value)
    made: T = replace(node, **changed) if changed else node  # type: ignore[type-var]
    return made


def _absolute(path: str, directory: str) -> str:
    if "://" in path:
        return path
    return os.path.normpath(os.path.join(directory, os.path.expanduser(path)))


def _absolute_function(function: object, directory: str) -> object:
    if isinstance(function, str) and ".py:" in function:
        path, _, name = function.rpartition(":")
        return f"{_absolute(path, directory)}:{name}"
    return function
