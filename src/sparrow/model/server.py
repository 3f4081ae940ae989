"""The server that runs a broker: its options and its log."""

from __future__ import annotations

from sparrow.model.result import Result


class OptionDescription(Result, frozen=True):
    """An option of `sparrow serve`."""

    key: str
    value: str
    """As people write it; "(hidden)" for a secret that is set."""
    default: str
    source: str
    """ "default", or the flag, variable, or line of the file that set it."""
    help: str


class LogLine(Result, frozen=True):
    """A line of the log."""

    time_ms: int
    level: str
    logger: str
    text: str
