"""Kinds of small values in a pipeline's file: columns, durations with units, points in time, SQL,
paths; and a mapping whose key says its kind.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.base import shapes
from sparrow.base.faults import Fault, Misfit, faults_of, misfit, shown, suggestion
from sparrow.base.settings import PAIRS, TEXT, TEXT_SCHEMA, TEXTS_SCHEMA, Kind, schema_of
from sparrow.base.shapes import Part, built, rest_of
from sparrow.base.units import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_UNIT_WORDS = re.compile(
    r"\s*(?<![a-z])(milliseconds?|seconds?|minutes?|hours?|days?|weeks?)\b", re.IGNORECASE
)
_UNITS = {"millisecond": "ms", "second": "s", "minute": "min", "hour": "h", "day": "d", "week": "w"}
_MAX_MS = 100 * 366 * 86_400_000
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _read_text(given: object) -> str:
    text = TEXT.read(given)
    if not text.strip():
        raise ValueError("a text that is not empty")
    return text


def _read_column(given: object) -> str:
    text = _read_text(given)
    if not text.isprintable():
        raise ValueError("the name of a column, of printable characters")
    return text


def _read_columns(given: object) -> tuple[str, ...]:
    texts = given if isinstance(given, list | tuple) else [given]
    return tuple(_read_column(text) for text in texts)


def _read_topic(given: object) -> str:
    text = TEXT.read(given)
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        raise ValueError("the name of a topic: up to 249 of a-z, A-Z, 0-9, '.', '_' and '-'")
    return text


def _read_topics(given: object) -> tuple[str, ...]:
    texts = given if isinstance(given, list | tuple) else [given]
    if not texts:
        raise ValueError("at least one topic")
    return tuple(_read_topic(text) for text in texts)


def read_duration_ms(given: object) -> int:
    """Return the milliseconds of "10 minutes", "1h30m", "500 ms", or of any duration that
    `base.units` takes.

    Raises:
        ValueError: says what is allowed.
    """
    text = _UNIT_WORDS.sub(lambda found: _UNITS[found[1].lower().rstrip("s")], str(given))
    try:
        duration_ms = parse_duration_ms(text)
    except ValueError:
        raise ValueError('a duration such as "500 ms", "90 seconds", "10 minutes" or "1h30m"') from None
    if duration_ms > _MAX_MS:
        raise ValueError("at most 100 years")
    return duration_ms


def _read_positive_ms(given: object) -> int:
    duration_ms = read_duration_ms(given)
    if duration_ms == 0:
        raise ValueError("a duration of more than nothing")
    return duration_ms


def read_timestamp_ms(given: object) -> int:
    """Return the milliseconds since 1970 of a point in time as YAML or ISO 8601 has it (UTC unless
    it says otherwise), or of a number of milliseconds.

    Raises:
        ValueError: says what is allowed.
    """
    moment: object = given
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << 53:
        return given
    if isinstance(given, str):
        try:
            moment = dt.datetime.fromisoformat(given.strip())
        except ValueError:
            moment = None
    if isinstance(moment, dt.date) and not isinstance(moment, dt.datetime):
        moment = dt.datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001 - made aware below
    if not isinstance(moment, dt.datetime):
        raise ValueError("a point in time such as 2026-05-01T12:00:00Z, or milliseconds since 1970")  # noqa: TRY004 - what readers raise
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return round(aware.timestamp() * 1000)


def _read_texts_by_name(given: object) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ValueError("a mapping of names to texts")  # noqa: TRY004 - what readers raise
    return PAIRS.read(given)


WORD: Kind[str] = Kind("text", _read_text, schema=TEXT_SCHEMA)
COLUMN: Kind[str] = Kind("column", _read_column, schema=TEXT_SCHEMA)
COLUMNS: Kind[tuple[str, ...]] = Kind("columns", _read_columns, schema=TEXTS_SCHEMA)
TOPIC: Kind[str] = Kind("topic", _read_topic, schema=TEXT_SCHEMA)
TOPICS: Kind[tuple[str, ...]] = Kind("topics", _read_topics, schema=TEXTS_SCHEMA)
_DURATION_SCHEMA: Mapping[str, object] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "examples": ["10 minutes"]}]
}
DURATION: Kind[int] = Kind("duration", read_duration_ms, schema=_DURATION_SCHEMA)
POSITIVE_DURATION: Kind[int] = Kind("duration", _read_positive_ms, schema=_DURATION_SCHEMA)
TIMESTAMP: Kind[int] = Kind("point in time", read_timestamp_ms, schema={"type": ["string", "integer"]})
TEXTS_BY_NAME: Kind[dict[str, str]] = Kind(
    "mapping of texts",
    _read_texts_by_name,
    schema={"type": ["object", "null"], "additionalProperties": {"type": ["string", "number", "boolean"]}},
)


class NodeSection(shapes.Section, frozen=True):
    """A section of a pipeline's file: its correct parts are checked even if other parts are
    wrong.
    """

    keeps_rest: bool = True


def needed(kind: Kind[Any], *, is_secret: bool = False, blank: object = "") -> Part:
    """Declare a required part; `blank` is used in its place if it is missing."""
    return Part(kind, is_required=True, is_secret=is_secret, blank=blank)


@dataclass(frozen=True, slots=True)
class Variant:
    """One kind of a thing that has several.

    Args:
        section: the section that reads its settings.
        make: called with the settings that are present.
        is_nested: the settings are under the key; otherwise beside it, and the key is one of them.
    """

    section: NodeSection
    make: Callable[[dict[str, Any]], Any]
    is_nested: bool = True

    def read(self, word: str, given: dict[str, Any]) -> Any:
        """Read the settings from a mapping that has the key."""
        if not self.is_nested:
            return built(self.section, self.make, given)
        faults = [
            Fault(
                (str(key),),
                f": {self.section.noun} takes nothing beside {word!r}; its settings belong under it",
            )
            for key in given
            if key != word
        ]
        try:
            made = built(self.section, self.make, {} if given[word] is None else given[word])
        except ValueError as error:
            faults += [each.under(word) for each in faults_of(error, given[word])]
            made = rest_of(error)
        if faults:
            raise Misfit(faults, made)
        return made

    def schema(self, word: str) -> dict[str, object]:
        """Return the JSON Schema."""
        if not self.is_nested:
            return {**self.section.schema(), "required": [word]}
        body: list[object] = [self.section.schema(), {"type": "null"}]
        if self.section.short:
            body.append(dict(schema_of(self.section.parts[self.section.short].kind)))
        return {
            "type": "object",
            "properties": {word: {"anyOf": body}},
            "required": [word],
            "additionalProperties": False,
        }


@dataclass(frozen=True, slots=True)
class _OneOf:
    noun: str
    variants: Mapping[str, Variant]
    advice: Mapping[str, str]

    def read(self, given: object) -> Any:
        if isinstance(given, str) and given in self.variants and self.variants[given].is_nested:
            given = {given: None}
        words = ", ".join(self.variants)
        if isinstance(given, str) and (given in self.advice or suggestion(given.lower(), self.variants)):
            raise misfit(self._strange(given))
        if not isinstance(given, dict):
            raise misfit(f"{self.noun} is a mapping of one of {words}, not {shown(given)}")
        found = [word for word in self.variants if word in given]
        if len(found) > 1:
            raise misfit(f"{self.noun} is one of {words}; here are {' and '.join(found)}")
        if not found:
            raise self._without_word([str(key) for key in given], words)
        return self.variants[found[0]].read(found[0], given)

    def _without_word(self, keys: list[str], words: str) -> ValueError:
        for key in keys:
            if key in self.advice or suggestion(key.lower(), self.variants):
                return misfit(self._strange(key), key)
        strange = f"; {', '.join(map(repr, keys))} is none of them" if keys else ""
        return misfit(f"{self.noun} needs one of {words}{strange}")

    def _strange(self, word: str) -> str:
        """Return the error text for a key that is similar to a known one."""
        if word in self.advice:
            return self.advice[word]
        close = suggestion(word.lower(), self.variants)
        return f"there is no {self.noun.partition(' ')[2]} {word!r}{close}"

    def schema(self) -> dict[str, object]:
        made: list[object] = [variant.schema(word) for word, variant in self.variants.items()]
        bare = [word for word, variant in self.variants.items() if variant.is_nested]
        return {"anyOf": [*made, {"enum": bare}]} if bare else {"anyOf": made}


def one_of(noun: str, variants: Mapping[str, Variant], advice: Mapping[str, str] | None = None) -> Kind[Any]:
    """Return the kind of a mapping that has one of some keys, which decides its other settings; a
    bare word has no settings.

    Args:
        noun: the thing's name in errors: "a step".
        variants: the kinds by key.
        advice: likely but wrong key → what to do instead.
    """
    choice = _OneOf(noun, variants, advice or {})
    return Kind(noun, choice.read, schema=choice.schema)
