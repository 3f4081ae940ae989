"""Changes of a configuration (KIP-339), as a function of the values that are set now. No I/O.

A resource's configuration is a map of the values that were set on it; all others have their
defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparrow.base.errors import InvalidArgument, InvalidConfig
from sparrow.broker.configs.values import ConfigType, items

if TYPE_CHECKING:
    from sparrow.base.settings import Kind


class ConfigOperation(Enum):
    """Changes of a value; Kafka's names. APPEND and SUBTRACT are for lists."""

    SET = "SET"
    DELETE = "DELETE"
    APPEND = "APPEND"
    SUBTRACT = "SUBTRACT"


class ConfigChange(Struct, frozen=True):
    """One change. DELETE ignores `value`."""

    name: str
    operation: ConfigOperation
    value: str | None = None


def replacing(current: Mapping[str, str], values: Mapping[str, str | None]) -> list[ConfigChange]:
    """Return the changes that leave exactly `values` set."""
    gone = [ConfigChange(name, ConfigOperation.DELETE) for name in current if name not in values]
    return gone + [ConfigChange(name, ConfigOperation.SET, value) for name, value in values.items()]


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """Refuse changes that are invalid for every configuration.

    Raises:
        InvalidArgument: a name twice, or no value where one is needed.
    """
    names = [change.name for change in changes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(
            f"each configuration may be changed once, not several times: {', '.join(twice)}"
        )
    empty = [c.name for c in changes if c.value is None and c.operation is not ConfigOperation.DELETE]
    if empty:
        raise InvalidArgument(f"a value cannot be null; to take the default, delete: {', '.join(empty)}")


def changed(
    current: Mapping[str, str],
    changes: Sequence[ConfigChange],
    kind_of: Callable[[str], Kind[Any]],
    default_of: Callable[[str], str | None],
) -> dict[str, str]:
    """Return the values that are set after the changes.

    Args:
        kind_of: returns the kind of a configuration; raises InvalidConfig if there is none of that
            name.
        default_of: returns the value of a configuration that is not set; APPEND and SUBTRACT begin
            with it.

    Raises:
        InvalidConfig: an unknown name, or APPEND or SUBTRACT on a value that is no list.
    """
    values = dict(current)
    for change in changes:
        kind = kind_of(change.name)
        if change.operation is ConfigOperation.DELETE:
            values.pop(change.name, None)
        elif change.operation is ConfigOperation.SET:
            values[change.name] = change.value or ""
        else:
            before = values.get(change.name)
            now = items((default_of(change.name) if before is None else before) or "")
            values[change.name] = ",".join(_list_after(change, kind, now))
    return values


def _list_after(change: ConfigChange, kind: Kind[Any], now: list[str]) -> list[str]:
    if kind.name != ConfigType.LIST:
        raise InvalidConfig(
            f"{change.operation.value} is for lists, and {change.name} is no list but of type {kind.name}"
        )
    given = items(change.value or "")
    if change.operation is ConfigOperation.SUBTRACT:
        return [item for item in now if item not in given]
    return now + [item for item in dict.fromkeys(given) if item not in now]
