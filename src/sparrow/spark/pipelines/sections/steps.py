"""`steps` of a flow: each is a mapping of one word, what to do, to how."""

from __future__ import annotations

from typing import Any

from sparrow.base.faults import misfit, shown
from sparrow.base.options import Kind, choice
from sparrow.base.shapes import Part, Section, list_of
from sparrow.spark.pipelines.model import (
    JOINS,
    DeduplicateStep,
    JoinStep,
    PythonStep,
    SqlStep,
    WatermarkStep,
    WindowStep,
)
from sparrow.spark.pipelines.sections.words import (
    COLUMN,
    COLUMNS,
    DURATION,
    POSITIVE_DURATION,
    TEXTS_BY_NAME,
    WORD,
    Variant,
    one_of,
)

_ONLY_WITH_STATIC = (
    "a stream joins a table that does not change by one of inner, left, left_semi and left_anti"
)


class _JoinSection(Section):
    """YAML 1.1 reads the bare word `on` as true."""

    __slots__ = ()

    def read(self, given: object) -> dict[str, Any]:
        if isinstance(given, dict) and True in given and "on" not in given:
            given = {"on" if key is True else key: value for key, value in given.items()}
        return super().read(given)


def _watermark(values: dict[str, Any]) -> WatermarkStep:
    return WatermarkStep(column=values["column"], delay_ms=values["delay"])


def _deduplicate(values: dict[str, Any]) -> DeduplicateStep:
    return DeduplicateStep(by=values.get("by", ()), within_ms=values.get("within"))


def _window(values: dict[str, Any]) -> WindowStep:
    length_ms, slide_ms = values["length"], values.get("slide")
    if slide_ms is not None and slide_ms > length_ms:
        raise misfit("is longer than the window, so that rows between windows would be lost", "slide")
    if not values["select"]:
        raise misfit("needs at least one aggregate, such as {total: sum(amount)}", "select")
    return WindowStep(
        column=values["column"],
        length_ms=length_ms,
        slide_ms=slide_ms,
        by=values.get("by", ()),
        select=values["select"],
    )


def _read_how(given: object) -> str:
    word = str(given)
    if word in ("right", "full", "outer", "cross"):
        raise misfit(f"cannot be {shown(given)}: {_ONLY_WITH_STATIC}")
    return choice(*JOINS).read(given)


def _needed(kind: Kind[Any]) -> Part:
    return Part(kind, is_required=True)


_QUERY = Section("the step sql", {"query": _needed(WORD)}, "query")
_FUNCTION = Section("the step python", {"function": _needed(WORD)}, "function")
_WATERMARK = Section("the step watermark", {"column": _needed(COLUMN), "delay": _needed(DURATION)})
_DEDUPLICATE = Section(
    "the step deduplicate",
    {"by": Part(COLUMNS), "within": Part(POSITIVE_DURATION)},
    advice={"column": "name the columns by 'by'", "columns": "name the columns by 'by'"},
)
_WINDOW = Section(
    "the step window",
    {
        "column": _needed(COLUMN),
        "length": _needed(POSITIVE_DURATION),
        "slide": Part(POSITIVE_DURATION),
        "by": Part(COLUMNS),
        "select": _needed(TEXTS_BY_NAME),
    },
)
_JOIN = _JoinSection(
    "the step join",
    {
        "table": _needed(WORD),
        "on": _needed(COLUMNS),
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
        "expect": "expectations stand beside the steps, as 'expect' of the flow",
    },
)
STEPS = list_of(STEP, "steps")
