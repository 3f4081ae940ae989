"""Pipelines of the configuration file: each has a name and a file, which must exist and be a YAML
mapping.

The content of that file, and running it, is the matter of `sparrow pipeline`, which takes the name
instead of the file; the broker only knows which pipelines there are.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sparrow.base.errors import SparrowError
from sparrow.base.faults import misfit
from sparrow.base.settings import PATH, TEXT_SCHEMA, Kind
from sparrow.base.shapes import NAME, Part, Section, named


class PipelineDeclaration(Struct, frozen=True):
    """A declared pipeline and its file."""

    name: str
    file: str


def _read_file(given: object) -> str:
    from sparrow.base.yamlfile import YamlFile

    path = PATH.read(given)
    try:
        YamlFile(
            path,
            noun="the pipeline's file",
            example="name: orders",
            remedy="create it or correct the path, which counts from the configuration file",
        )
    except SparrowError as error:
        raise misfit(error.text) from None
    return path


def _make(values: dict[str, Any]) -> PipelineDeclaration:
    if not values[NAME] or not values[NAME].isprintable():
        raise misfit("a pipeline needs a name of printable characters")
    return PipelineDeclaration(values[NAME], values["file"])


_PIPELINE = Section(
    "a pipeline", {"file": Part(Kind("path", _read_file, schema=TEXT_SCHEMA), is_required=True)}
)
PIPELINES = named(_PIPELINE, _make, "pipelines")
