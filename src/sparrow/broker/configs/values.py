"""Kinds of configuration values, named by the types that clients see.

Values are sent and stored as text, as in Kafka. A kind's `read` converts the text to a value or
raises ValueError that says what is allowed ("a whole number from 0 to 9").
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from sparrow.base import settings
from sparrow.base.settings import Kind

MAX_INT: Final = (1 << 31) - 1
MAX_LONG: Final = (1 << 63) - 1


class ConfigType(StrEnum):
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


def items(text: str) -> list[str]:
    """Return the items of a list value: "a, b" is ["a", "b"], "" is []."""
    return [item.strip() for item in text.split(",") if item.strip()]


def integer(low: int, high: int = MAX_INT) -> Kind[int]:
    """Return the kind of whole numbers of 32 bits."""
    return Kind(ConfigType.INT, settings.integer(low, high).read)


def long(low: int, high: int = MAX_LONG) -> Kind[int]:
    """Return the kind of whole numbers of 64 bits."""
    return Kind(ConfigType.LONG, settings.integer(low, high).read)


def fraction(low: float = 0.0, high: float = 1.0) -> Kind[float]:
    """Return the kind of numbers with a decimal point."""
    return Kind(ConfigType.DOUBLE, settings.decimal(low, high).read)


def one_of(*choices: str) -> Kind[str]:
    """Return the kind of one word of several."""
    return Kind(ConfigType.STRING, settings.choice(*choices).read)


def list_of(*choices: str, advice: str) -> Kind[frozenset[str]]:
    """Return the kind of words with commas between them, or none. `advice` says which words are
    allowed.
    """

    def read(given: object) -> frozenset[str]:
        chosen = frozenset(items(str(given)))
        if not chosen <= frozenset(choices):
            raise ValueError(advice)
        return chosen

    return Kind(ConfigType.LIST, read)


def _boolean(given: object) -> bool:
    if str(given).lower() not in ("true", "false"):
        raise ValueError("true or false")
    return str(given).lower() == "true"


def _only_false(given: object) -> bool:
    if _boolean(given):
        raise ValueError("false alone: this broker does not have it")
    return False


def _throttled_replicas(given: object) -> tuple[str, ...]:
    entries = tuple(items(str(given)))
    if entries != ("*",) and not all(re.fullmatch(r"[0-9]+:[0-9]+", entry) for entry in entries):
        raise ValueError("partition:broker pairs with commas between them, or *")
    return entries


BOOLEAN: Final = Kind(ConfigType.BOOLEAN, _boolean)
ONLY_FALSE: Final = Kind(ConfigType.BOOLEAN, _only_false)
STRING: Final = Kind(ConfigType.STRING, str)
PASSWORD: Final = Kind(ConfigType.PASSWORD, str)
LIST: Final = Kind(ConfigType.LIST, lambda given: items(str(given)))
THROTTLED_REPLICAS: Final = Kind(ConfigType.LIST, _throttled_replicas)
