"""The options and the log of the server that runs the broker, for administrators to look at."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal
from sparrow.model.server import LogLine, OptionDescription

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.access.access import Access

MAX_LINES: Final = 500
MAX_CHARACTERS: Final = 2_000
"""Limit of one line; a longer one is cut."""
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class RecentLog(logging.Handler):
    """Keeps the last lines of the log in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[LogLine] = deque(maxlen=MAX_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.lines.append(_line(record))
        except Exception:  # noqa: BLE001 - a bad line must not fail what logs it
            self.handleError(record)


def _line(record: logging.LogRecord) -> LogLine:
    fields = [f"{name}={value}" for name, value in vars(record).items() if name not in _USUAL]
    text = " ".join([record.getMessage(), *fields])
    if record.exc_info and record.exc_info[1] is not None:
        text += f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
    return LogLine(round(record.created * 1000), record.levelname.lower(), record.name, text[:MAX_CHARACTERS])


class ServerView:
    """The service, `broker.server`. Loop thread only."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.describe_options: Callable[[], list[OptionDescription]] = list
        """Set by the server; without one there are none."""
        self.log = RecentLog()

    def options(self, *, principal: Principal = ANONYMOUS) -> list[OptionDescription]:
        """Return every option with its value and source; secrets are hidden.

        Raises:
            NotAuthorized: needs DESCRIBE_CONFIGS on the cluster.
        """
        self._access.require_cluster(principal, Operation.DESCRIBE_CONFIGS)
        return self.describe_options()

    def recent_log(self, *, principal: Principal = ANONYMOUS) -> list[LogLine]:
        """Return the last lines of the log, oldest first.

        Raises:
            NotAuthorized: needs DESCRIBE_CONFIGS on the cluster.
        """
        self._access.require_cluster(principal, Operation.DESCRIBE_CONFIGS)
        return list(self.log.lines)
