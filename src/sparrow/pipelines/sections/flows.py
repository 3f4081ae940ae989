"""`flows`, and the parts of a flow beside its decoders, steps and sink: source, expectations,
trigger, mode.

    from: orders
    from: {pattern: 'orders\\..*', start: end, max_rows_per_trigger: 100000}
    from: {flow: clean}
"""

from __future__ import annotations

from typing import Any

from sparrow.base.faults import suggestion
from sparrow.base.settings import BOOLEAN, Kind, choice, integer, size
from sparrow.base.shapes import NAME, Part, list_of, named, section_of
from sparrow.pipelines.model import (
    BEGINNING,
    END,
    MODES,
    OTHERWISE,
    Every,
    Expectation,
    Flow,
    Once,
    Source,
    Unread,
)
from sparrow.pipelines.sections.decoders import DECODER
from sparrow.pipelines.sections.sinks import SINK
from sparrow.pipelines.sections.steps import STEPS
from sparrow.pipelines.sections.words import (
    DURATION,
    TEXTS_BY_NAME,
    TIMESTAMP,
    TOPIC,
    TOPICS,
    WORD,
    NodeSection,
    Variant,
    needed,
    one_of,
)

_START = NodeSection("a start", {"timestamp": needed(TIMESTAMP, blank=0)})
_UNREAD_SOURCE = Source(unread=frozenset(("topics", "pattern", "flow")))
_UNREAD_EXPECTATION = Expectation(name="", check="", unread=frozenset((NAME, "check", "otherwise")))


def _read_start(given: object) -> str | int:
    if isinstance(given, dict):
        timestamp_ms: int = _START.read(given)["timestamp"]
        return timestamp_ms
    if given not in (BEGINNING, END):
        close = suggestion(given.lower(), (BEGINNING, END)) if isinstance(given, str) else ""
        raise ValueError(f"{BEGINNING}, {END}, or {{timestamp: 2026-05-01T12:00:00Z}}{close}")
    return str(given)


_START_KIND: Kind[str | int] = Kind(
    "start", _read_start, schema={"anyOf": [{"enum": [BEGINNING, END]}, _START.schema()]}
)
_SOURCE = NodeSection(
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
_EXPECTATION = NodeSection(
    "an expectation",
    {
        NAME: needed(WORD),
        "check": needed(WORD),
        "otherwise": Part(choice(*OTHERWISE)),
    },
)
TRIGGER = one_of(
    "a trigger",
    {
        "once": Variant(NodeSection("the trigger once", {}), lambda _: Once()),
        "every": Variant(
            NodeSection("the trigger every", {"interval": needed(DURATION, blank=0)}, "interval"),
            lambda values: Every(interval_ms=values["interval"]),
        ),
        "continuous": Variant(NodeSection("the trigger continuous", {}), lambda _: Every(interval_ms=0)),
    },
)
_FLOW = NodeSection(
    "a flow",
    {
        "from": needed(section_of(_SOURCE, lambda values: Source(**values)), blank=_UNREAD_SOURCE),
        "decode": Part(DECODER),
        "key": Part(DECODER),
        "steps": Part(STEPS),
        "expect": Part(
            list_of(
                section_of(_EXPECTATION, lambda values: Expectation(**values)),
                "expectations",
                blank=_UNREAD_EXPECTATION,
            )
        ),
        "dead_letters": Part(TOPIC),
        "to": needed(SINK, blank=Unread()),
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


def _unread_flow(name: str) -> Flow:
    sink: Any = Unread()
    return Flow(name=name, source=_UNREAD_SOURCE, sink=sink, unread=frozenset(_FLOW.parts))


FLOWS = named(_FLOW, _flow, "flows", blank=_unread_flow)
