"""Levels of the broker's loggers, under Kafka's names of levels; they can be changed at run time
(KIP-412).

Loggers are those of the standard `logging`: the root and all under "sparrow". A change is valid
until the process ends.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from sparrow.base.errors import InvalidArgument, InvalidConfig
from sparrow.broker.configs.changes import ConfigChange, ConfigOperation

ROOT: Final = "root"
_PACKAGE: Final = "sparrow"
_LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}


def levels() -> dict[str, str]:
    """Return every logger with its effective level, by name."""
    return {name: _name_of(logger.getEffectiveLevel()) for name, logger in sorted(_loggers().items())}


def check_level_changes(changes: Sequence[ConfigChange]) -> None:
    """Refuse invalid changes.

    Raises:
        InvalidConfig: there is no such logger or level.
        InvalidArgument: a level is not a list, and the root's cannot be removed.
    """
    known = _loggers()
    for change in changes:
        if change.operation not in {ConfigOperation.SET, ConfigOperation.DELETE}:
            raise InvalidArgument(f"{change.operation.value} is not for loggers: SET a level, or DELETE it")
        if change.name not in known:
            raise InvalidConfig(f"there is no logger {change.name!r}; there are {', '.join(sorted(known))}")
        if change.operation is ConfigOperation.DELETE and change.name == ROOT:
            raise InvalidArgument(
                "the level of the root logger cannot be deleted, since all others have theirs from it"
            )
        if change.operation is ConfigOperation.SET and change.value not in _LEVELS:
            raise InvalidConfig(f"{change.value!r} is no level of a logger; there are {', '.join(_LEVELS)}")


def change_levels(changes: Sequence[ConfigChange]) -> None:
    """Set levels, or remove them, so that loggers inherit. Check the changes first."""
    known = _loggers()
    for change in changes:
        is_set = change.operation is ConfigOperation.SET
        known[change.name].setLevel(_LEVELS[change.value or ""] if is_set else logging.NOTSET)


def _loggers() -> dict[str, logging.Logger]:
    known = list(logging.root.manager.loggerDict.items())
    under = {n: one for n, one in known if n.startswith(_PACKAGE + ".") and isinstance(one, logging.Logger)}
    return {ROOT: logging.getLogger(), _PACKAGE: logging.getLogger(_PACKAGE), **under}


def _name_of(level: int) -> str:
    for name, known in _LEVELS.items():
        if level <= known:
            return name
    return "OFF"
