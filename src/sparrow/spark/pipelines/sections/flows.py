"""`flows`, and what a flow has beside its decoders, steps and sink: source, expectations, trigger, mode.

from: orders
from: {pattern: 'orders\\..*', start: end, max_rows_per_trigger: 100000}
from: {flow: clean}
"""

from __future__ import annotations

from typing import Any

from sparrow.base.faults import misfit
from sparrow.base.options import BOOLEAN, Kind, choice, integer, size
from sparrow.base.shapes import NAME, Part, Section, list_of, named, section_of
from sparrow.spark.pipelines.model import (
    BEGINNING,
    END,
    MODES,
    OTHERWISE,
    Every,
    Expectation,
    Flow,
    Once,
    Source,
)
from sparrow.spark.pipelines.sections.decoders import DECODER
from sparrow.spark.pipelines.sections.sinks import SINK
from sparrow.spark.pipelines.sections.steps import STEPS
from sparrow.spark.pipelines.sections.words import (
    DURATION,
    TEXTS_BY_NAME,
    TIMESTAMP,
    TOPIC,
    TOPICS,
    WORD,
    Variant,
    one_of,
)

_WHAT = ("topics", "pattern", "flow")
_START = Section("a start", {"timestamp": Part(TIMESTAMP, is_required=True)})


def _read_start(given: object) -> str | int:
    if isinstance(given, dict):
        timestamp_ms: int = _START.read(given)["timestamp"]
        return timestamp_ms
    if given not in (BEGINNING, END):
        raise ValueError(f"{BEGINNING}, {END}, or {{timestamp: 2026-05-01T12:00:00Z}}")
    return str(given)


def _source(values: dict[str, Any]) -> Source:
    found = [word for word in _WHAT if word in values]
    if len(found) != 1:
        here = f"; here are {' and '.join(found)}" if found else ""
        raise misfit(f"a source is one of {', '.join(_WHAT)}{here}")
    if "topics" in values and not values["topics"]:
        raise misfit("needs at least one topic", "topics")
    return Source(**values)


_START_KIND: Kind[str | int] = Kind(
    "start", _read_start, schema={"anyOf": [{"enum": [BEGINNING, END]}, _START.schema()]}
)
_SOURCE = Section(
    "a source",
    {
        "topics": Part(TOPICS),
        "pattern": Part(WORD),
        "flow": Part(WORD),
        "start": Part(_START_KIND),
        "max_rows_per_trigger": Part(integer(1, 2**62)),
        "max_bytes_per_trigger": Part(size(1, 2**62)),
        "headers": Part(BOOLEAN),
        "options": Part(TEXTS_BY_NAME),
    },
    "topics",
    {"topic": "say 'topics', which may be one or a list"},
)
_EXPECTATION = Section(
    "an expectation",
    {
        NAME: Part(WORD, is_required=True),
        "check": Part(WORD, is_required=True),
        "otherwise": Part(choice(*OTHERWISE)),
    },
)
TRIGGER = one_of(
    "a trigger",
    {
        "once": Variant(Section("the trigger once", {}), lambda _: Once()),
        "every": Variant(
            Section("the trigger every", {"interval": Part(DURATION, is_required=True)}, "interval"),
            lambda values: Every(interval_ms=values["interval"]),
        ),
        "continuous": Variant(Section("the trigger continuous", {}), lambda _: Every(interval_ms=0)),
    },
)
_FLOW = Section(
    "a flow",
    {
        "from": Part(section_of(_SOURCE, _source), is_required=True),
        "decode": Part(DECODER),
        "key": Part(DECODER),
        "steps": Part(STEPS),
        "expect": Part(
            list_of(section_of(_EXPECTATION, lambda values: Expectation(**values)), "expectations")
        ),
        "dead_letters": Part(TOPIC),
        "to": Part(SINK, is_required=True),
        "mode": Part(choice(*MODES)),
        "trigger": Part(TRIGGER),
    },
    advice={
        "source": "the source of a flow is called 'from'",
        "sink": "the sink of a flow is called 'to'",
        "sql": "SQL is a step: steps: [sql: SELECT … FROM input]",
        "checkpoint": "checkpoints are the pipeline's: 'checkpoints' at the top of the file",
    },
)


def _flow(values: dict[str, Any]) -> Flow:
    renamed = {"from": "source", "to": "sink"}
    return Flow(**{renamed.get(name, name): value for name, value in values.items()})


FLOWS = named(_FLOW, _flow, "flows")
