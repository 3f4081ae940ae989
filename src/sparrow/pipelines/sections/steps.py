"""`steps` of a flow: each is a mapping of one key, the kind of step, to its settings."""

from __future__ import annotations

from typing import Any

from sparrow.base.faults import misfit, shown
from sparrow.base.settings import Kind, choice
from sparrow.base.shapes import Part, list_of
from sparrow.pipelines.model import (
    JOINS,
    DeduplicateStep,
    JoinStep,
    PythonStep,
    SqlStep,
    Unread,
    WatermarkStep,
    WindowStep,
)
from sparrow.pipelines.sections.words import (
    COLUMN,
    COLUMNS,
    DURATION,
    POSITIVE_DURATION,
    TEXTS_BY_NAME,
    WORD,
    NodeSection,
    Variant,
    needed,
    one_of,
)

_ONLY_WITH_STATIC = (
    "a stream joins a table that does not change by one of inner, left, left_semi and left_anti"
)


class _JoinSection(NodeSection, frozen=True):
    """YAML 1.1 reads the bare word `on` as true."""

    def read(self, given: object) -> dict[str, Any]:
        if isinstance(given, dict) and True in given and "on" not in given:
            given = {"on" if key is True else key: value for key, value in given.items()}
        return super().read(given)


def _watermark(values: dict[str, Any]) -> WatermarkStep:
    return WatermarkStep(column=values["column"], delay_ms=values["delay"])


def _deduplicate(values: dict[str, Any]) -> DeduplicateStep:
    return DeduplicateStep(by=values.get("by", ()), within_ms=values.get("within"))


def _window(values: dict[str, Any]) -> WindowStep:
    return WindowStep(
        column=values["column"],
        length_ms=values["length"],
        slide_ms=values.get("slide"),
        by=values.get("by", ()),
        select=values["select"],
    )


def _read_how(given: object) -> str:
    word = str(given)
    if word in ("right", "full", "outer", "cross"):
        raise misfit(f"cannot be {shown(given)}: {_ONLY_WITH_STATIC}")
    return choice(*JOINS).read(given)


_QUERY = NodeSection("the step sql", {"query": needed(WORD)}, "query")
_FUNCTION = NodeSection("the step python", {"function": needed(WORD)}, "function")
_WATERMARK = NodeSection("the step watermark", {"column": needed(COLUMN), "delay": needed(DURATION, blank=0)})
_DEDUPLICATE = NodeSection(
    "the step deduplicate",
    {"by": Part(COLUMNS), "within": Part(POSITIVE_DURATION)},
    advice={"column": "name the columns by 'by'", "columns": "name the columns by 'by'"},
)
_WINDOW = NodeSection(
    "the step window",
    {
        "column": needed(COLUMN),
        "length": needed(POSITIVE_DURATION, blank=0),
        "slide": Part(POSITIVE_DURATION),
        "by": Part(COLUMNS),
        "select": needed(TEXTS_BY_NAME, blank={}),
    },
)
_JOIN = _JoinSection(
    "the step join",
    {
        "table": needed(WORD),
        "on": needed(COLUMNS, blank=()),
        "how": Part(Kind("|".join(JOINS), _read_how, schema={"enum": list(JOINS)})),
    },
)
STEP = one_of(
    "a step",
    {
        "sql": Variant(_QUERY, lambda values: SqlStep(**values)),
        "python": Variant(_FUNCTION, lambda values: PythonStep(**values)),
        "watermark": Variant(_WATERMARK, _watermark),
        "deduplicate": Variant(_DEDUPLICATE, _deduplicate),
        "window": Variant(_WINDOW, _window),
        "join": Variant(_JOIN, lambda values: JoinStep(**values)),
    },
    {
        "filter": "there is no step 'filter'; say sql: SELECT * FROM input WHERE …",
        "where": "there is no step 'where'; say sql: SELECT * FROM input WHERE …",
        "select": "there is no step 'select'; say sql: SELECT … FROM input",
        "query": "there is no step 'query'; say sql: SELECT … FROM input",
        "dedup": "there is no step 'dedup'; did you mean 'deduplicate'?",
        "expect": "expectations are beside the steps, as 'expect' of the flow",
    },
)
STEPS = list_of(STEP, "steps", blank=Unread())
