"""Reader of a pipeline's YAML file, and the JSON Schema of such a file for editors.

Reports every fault of a file at once, each with its line: those of the syntax are found here, those
of the meaning by `checks`.
"""

from __future__ import annotations

import os
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import Misfit, by_line, dotted
from sparrow.base.settings import Located
from sparrow.base.shapes import Part, Rest, section_of
from sparrow.base.yamlfile import YamlFile
from sparrow.pipelines.checks import faults
from sparrow.pipelines.locations import with_locations_of
from sparrow.pipelines.model import Broker, Location, Node
from sparrow.pipelines.pipeline import Pipeline
from sparrow.pipelines.sections.flows import FLOWS, TRIGGER
from sparrow.pipelines.sections.tables import TABLES
from sparrow.pipelines.sections.words import TEXTS_BY_NAME, WORD, NodeSection, needed

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
"""Fields that are paths, by the class of the node; the file of a Python step is a path, too."""

_NOT_HERE = "a secret does not belong in this file; name a file that has it by"
_BROKER = NodeSection(
    "the broker",
    {"url": Part(WORD, is_secret=True), "user": Part(WORD), **{name: Part(WORD) for name in _BROKER_FILES}},
    "url",
    {"password": f"{_NOT_HERE} 'password_file'", "token": f"{_NOT_HERE} 'token_file'"},
)
_PIPELINE = NodeSection(
    "a pipeline",
    {
        "name": needed(WORD),
        "broker": Part(section_of(_BROKER, lambda values: Broker(**values))),
        "checkpoints": Part(WORD),
        "trigger": Part(TRIGGER),
        "spark": Part(TEXTS_BY_NAME),
        "tables": Part(TABLES),
        "flows": needed(FLOWS, blank=()),
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
        InvalidConfig: every fault of the file, one per line, each with file and line. If parts
            cannot be read, these include the faults that `checks` find in the other parts.
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
    unread = {key for key, each in found.items() if each.faults and each.value is None}
    values: dict[str, Any] = {}
    try:
        values = _PIPELINE.read({key: each.value for key, each in found.items()})
    except Misfit as error:
        if isinstance(error.rest, Rest):
            values, unread = error.rest.values, unread | error.rest.unread
        errors += [
            f"{located.location_of(fault.path)}: {dotted(fault.path)}{fault.text}".replace(": : ", ": ")
            for fault in error.faults
            # A document that is not YAML was already reported.
            if not (
                fault.path and found[str(fault.path[0])].faults and found[str(fault.path[0])].value is None
            )
        ]
    values.setdefault("checkpoints", _CHECKPOINTS)
    whole = with_locations_of(Pipeline(**values, unread=frozenset(unread), file=path), located)
    pipeline = _at_home(whole, os.path.dirname(os.path.abspath(path)))
    if errors:
        raise InvalidConfig("\n".join(by_line((*errors, *faults(pipeline)))))
    return pipeline


def file_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a pipeline's file. Everything that can be read is valid
    by it; reading is stricter.
    """
    return {"$schema": DIALECT, "title": "A pipeline of Sparrow", **_PIPELINE.schema()}


def _as_one(path: str, found: Mapping[str, Located]) -> Located:
    """Merge the lines of the sources into those of the whole file."""
    lines: dict[Path, int] = {}
    for key, each in found.items():
        lines[(key,)] = int(each.location.rpartition(":")[2])
        lines |= {(key, *map(_spelled, inner)): line for inner, line in each.lines.items()}
    return Located(None, f"{path}:1", lines)


def _spelled(part: str | int) -> str | int:
    """Return the key as written: YAML 1.1 makes True of the `on` of a join."""
    return "on" if part == "True" else part


def _at_home(node: T, directory: str) -> T:
    """Return a node, and all in it, with paths that are relative in the file made absolute."""
    if not is_dataclass(node) or isinstance(node, Location):
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
