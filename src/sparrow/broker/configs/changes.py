"""Changes of a configuration (KIP-339), as a function of what is set now. No I/O.

A resource's configuration is a map of the values that were set on it; what is not in the map has a default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from sparrow.base.errors import InvalidArgument, InvalidConfig
from sparrow.broker.configs.values import ConfigType, Kind, items


class ConfigOperation(Enum):
    """What to do with a value; Kafka's names. APPEND and SUBTRACT are for lists."""

    SET = "SET"
    DELETE = "DELETE"
    APPEND = "APPEND"
    SUBTRACT = "SUBTRACT"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change. `value` is not looked at by DELETE."""

    name: str
    operation: ConfigOperation
    value: str | None = None


def replacing(current: Mapping[str, str], values: Mapping[str, str | None]) -> list[ConfigChange]:
    """The changes that leave `values` and nothing else set."""
    gone = [ConfigChange(name, ConfigOperation.DELETE) for name in current if name not in values]
    return gone + [ConfigChange(name, ConfigOperation.SET, value) for name, value in values.items()]


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """Refuse what makes no sense whatever the configuration is.

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
        raise InvalidArgument(f"a null value is no value; to take the default, delete: {', '.join(empty)}")


def changed(
    current: Mapping[str, str],
    changes: Sequence[ConfigChange],
    kind_of: Callable[[str], Kind],
    default_of: Callable[[str], str | None],
) -> dict[str, str]:
    """What is set after the changes.

    Args:
        kind_of: the kind of a configuration; raises InvalidConfig where there is none of that name.
        default_of: what holds where nothing is set; APPEND and SUBTRACT begin with it.

    Raises:
        InvalidConfig: an unknown name, or APPEND or SUBTRACT on something that is no list.
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


def _list_after(change: ConfigChange, kind: Kind, now: list[str]) -> list[str]:
    if kind.type is not ConfigType.LIST:
        raise InvalidConfig(
            f"{change.operation.value} is for lists, and {change.name} is no list but of type {kind.type.value}"
        )
    given = items(change.value or "")
    if change.operation is ConfigOperation.SUBTRACT:
        return [item for item in now if item not in given]
    return now + [item for item in dict.fromkeys(given) if item not in now]
