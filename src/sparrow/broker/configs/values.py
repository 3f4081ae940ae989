"""Kinds of configuration values: a type that clients see, and a check of the text.

Values are sent and stored as text, as in Kafka. A kind's `parse` converts the text to a value or
raises ValueError that says what is allowed ("a whole number from 0 to 9").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

MAX_INT: Final = (1 << 31) - 1
MAX_LONG: Final = (1 << 63) - 1
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")


class ConfigType(Enum):
    """Types of values; Kafka's names."""

    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    SHORT = "short"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"
    CLASS = "class"
    PASSWORD = "password"  # noqa: S105 - Kafka's name


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A type of values with its check."""

    type: ConfigType
    parse: Callable[[str], Any]


def items(text: str) -> list[str]:
    """Return the items of a list value: "a, b" is ["a", "b"], "" is []."""
    return [item.strip() for item in text.split(",") if item.strip()]


def integer(low: int, high: int = MAX_INT) -> ValueKind:
    """Return the kind of whole numbers of 32 bits."""
    return ValueKind(ConfigType.INT, _whole(low, high))


def long(low: int, high: int = MAX_LONG) -> ValueKind:
    """Return the kind of whole numbers of 64 bits."""
    return ValueKind(ConfigType.LONG, _whole(low, high))


def fraction(low: float = 0.0, high: float = 1.0) -> ValueKind:
    """Return the kind of numbers with a decimal point."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise ValueError(f"a number from {low:g} to {high:g}")
        return value

    return ValueKind(ConfigType.DOUBLE, parse)


def one_of(*choices: str) -> ValueKind:
    """Return the kind of one word of several."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return text

    return ValueKind(ConfigType.STRING, parse)


def list_of(*choices: str, advice: str) -> ValueKind:
    """Return the kind of words with commas between them, or none. `advice` says which words are
    allowed.
    """

    def parse(text: str) -> frozenset[str]:
        chosen = frozenset(items(text))
        if not chosen <= frozenset(choices):
            raise ValueError(advice)
        return chosen

    return ValueKind(ConfigType.LIST, parse)


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text) if _WHOLE.fullmatch(text.strip()) else None
        if value is None or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _only_false(text: str) -> bool:
    if _boolean(text):
        raise ValueError("false alone: this broker does not have it")
    return False


def _throttled_replicas(text: str) -> tuple[str, ...]:
    entries = tuple(items(text))
    if entries != ("*",) and not all(re.fullmatch(r"[0-9]+:[0-9]+", entry) for entry in entries):
        raise ValueError("partition:broker pairs with commas between them, or *")
    return entries


def _text(text: str) -> str:
    return text


BOOLEAN: Final = ValueKind(ConfigType.BOOLEAN, _boolean)
ONLY_FALSE: Final = ValueKind(ConfigType.BOOLEAN, _only_false)
STRING: Final = ValueKind(ConfigType.STRING, _text)
PASSWORD: Final = ValueKind(ConfigType.PASSWORD, _text)
LIST: Final = ValueKind(ConfigType.LIST, items)
THROTTLED_REPLICAS: Final = ValueKind(ConfigType.LIST, _throttled_replicas)
