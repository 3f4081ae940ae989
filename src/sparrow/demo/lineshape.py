"""What the lines of a file look like: which part tells the kind of a line (a level, the class of an HTTP status, a program, a field), and in which form it has its time.

Found out by looking at the first lines. Each rule exists twice, as SQL for the pipeline and in Python for the comparison.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sparrow.demo.kinds import KINDS, LEVEL, LEVELS, OTHER, STATUS, WORD, Kind
from sparrow.demo.sqltext import field_sql
from sparrow.demo.stamps import ISO, NO_YEAR, STAMPS, Stamp

if TYPE_CHECKING:
    from datetime import datetime

_MOST_KINDS: Final = 40
_ENOUGH: Final = 0.5
"""The share of lines that a rule must fit to be taken before one that fits more."""
_FIELD_KINDS: Final = (
    "level",
    "severity",
    "loglevel",
    "log_level",
    "log.level",
    "levelname",
    "status",
    "status_code",
    "type",
    "event",
    "event_type",
    "kind",
    "action",
    "method",
    "category",
    "name",
)
_FIELD_TIMES: Final = ("@timestamp", "timestamp", "time", "ts", "datetime", "date", "at", "created_at", "t")


@dataclass(frozen=True)
class Shape:
    """How lines tell their kind and their time.

    Args:
        time_field: of a JSON object; "" for the line itself.
        stamp: None if lines have no time.
    """

    kind: Kind = LEVELS
    stamp: Stamp | None = ISO
    time_field: str = ""

    def read(self, line: str) -> tuple[str, datetime | None]:
        """The kind and the time of a line."""
        fields = read_fields(line) if self._has_fields else {}
        kind = self.kind.read(fields.get(self.kind.field) if self.kind.field else line)
        text = fields.get(self.time_field) if self.time_field else line
        return kind, self.stamp.read(text) if self.stamp is not None and text is not None else None

    def word_step(self) -> str:
        """The first step: what is looked for in a line."""
        time = self.stamp.sql(field_sql(self.time_field)) if self.stamp else "CAST(NULL AS timestamp)"
        return f"SELECT _message_id AS id, {time} AS time, {self.kind.word_sql()} AS word, value AS line FROM input"  # noqa: S608

    def kind_step(self) -> str:
        """The second: the kind that the word means."""
        return f"SELECT id, time, {self.kind.sql()} AS kind, line FROM input"  # noqa: S608

    @cached_property
    def _has_fields(self) -> bool:
        return bool(self.kind.field or self.time_field)


def shape_of(lines: Sequence[str], *, is_json: bool, year: int) -> Shape:
    """The shape that fits the most of these lines.

    Args:
        year: of times that do not tell it.
    """
    stamps = [replace(each, prefix=f"{year} ") if each.prefix == NO_YEAR else each for each in STAMPS]
    return _json_shape(lines, stamps) if is_json else _text_shape(lines, stamps)


def read_fields(line: str) -> dict[str, str | None]:
    """The fields of a JSON object as texts; {} for something else. What follows behind the object does not count, as for Spark."""
    try:
        found, _ = _DECODER.raw_decode(line.lstrip())
    except (ValueError, RecursionError):
        return {}
    return {name: _text(value) for name, value in found.items()} if isinstance(found, dict) else {}


_DECODER: Final = json.JSONDecoder(
    parse_int=str,
    parse_float=lambda text: str(float(text)),
    object_pairs_hook=lambda pairs: dict(reversed(pairs)),
)


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "{}"
    return None if value is None else str(value)


def _text_shape(lines: Sequence[str], stamps: Iterable[Stamp]) -> Shape:
    kind = _best([(each, [each.read(line) != OTHER for line in lines]) for each in KINDS])
    stamp = _best([(each, [each.read(line) is not None for line in lines]) for each in stamps])
    return Shape(kind or LEVELS, stamp)


def _json_shape(lines: Sequence[str], stamps: Sequence[Stamp]) -> Shape:
    objects = [read_fields(line) for line in lines]
    field = _kind_field(objects)
    values = [each[field] or "" for each in objects if field in each]
    made_of = WORD
    if values and all(re.search("^[1-5][0-9][0-9]$", each) for each in values):
        made_of = STATUS
    elif "level" in field or field == "severity":
        made_of = LEVEL
    times = [
        ((name, stamp), [stamp.read(each.get(name) or "") is not None for each in objects])
        for name in _known(objects, _FIELD_TIMES)
        for stamp in stamps
    ]
    time_field, stamp = _best(times) or ("", None)
    return Shape(Kind("", made_of, field), stamp, time_field)


def _kind_field(objects: Sequence[Mapping[str, str | None]]) -> str:
    """The field that a person would count by: one that is called so, else the one with the fewest values, if these are few."""
    values: dict[str, Counter[str | None]] = {}
    for each in objects:
        for name, value in each.items():
            values.setdefault(name, Counter())[value] += 1
    few = {
        name: len(found)
        for name, found in values.items()
        if len(found) <= _MOST_KINDS and found.total() >= len(objects) * _ENOUGH and _is_path(name)
    }
    named = [name for name in _FIELD_KINDS if name in few]
    several = sorted((count, name) for name, count in few.items() if 1 < count < max(2, len(objects) // 2))
    return named[0] if named else several[0][1] if several else _FIELD_KINDS[0]


def _known(objects: Sequence[Mapping[str, str | None]], names: Iterable[str]) -> list[str]:
    return [name for name in names if any(name in each for each in objects)]


def _is_path(name: str) -> bool:
    """Whether Spark finds a field of this name by a path."""
    return name != "" and name.isprintable() and not set(name) & set("'?\\\"*[]")


def _best(candidates: Sequence[tuple[Any, Sequence[bool]]]) -> Any:
    """The first that fits at least half, else the one that fits most; None: none fits at all."""
    shares = [(sum(fits) / max(1, len(fits)), each) for each, fits in candidates]
    for share, each in shares:
        if share >= _ENOUGH:
            return each
    share, best = max(shares, key=lambda pair: pair[0], default=(0, None))
    return best if share > 0 else None
