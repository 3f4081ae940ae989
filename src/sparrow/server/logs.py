"""Logging of the server: every module logs through the standard `logging` under "sparrow".

Human lines on a terminal, JSON lines otherwise. Fields go by `extra={...}`. Libraries and the
client never configure logging; only `sparrow serve` calls this.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing import TextIO

AUDIT_LOGGER: Final = "sparrow.audit"
_NOT_EXTRA: Final = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))
"""Attributes that every record of `logging` has."""
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_COLORS: Final = {"debug": "\x1b[32m", "info": "\x1b[32m", "warning": "\x1b[33m"}
_ERROR_COLOR: Final = "\x1b[31m"


def configure_logging(level: str, style: str, stream: TextIO) -> None:
    """Send all log messages to `stream`.

    Args:
        level: "debug", "info", "warning" or "error".
        style: "text", "json", or "auto" (text if the stream is a terminal).
        stream: where to write, usually stderr.
    """
    as_text = stream.isatty() if style == "auto" else style == "text"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter(has_colors=stream.isatty()) if as_text else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # The audit log is written whatever log.level leaves out.
    logging.getLogger(AUDIT_LOGGER).setLevel(logging.INFO)
    set_level(level)


def set_level(level: str) -> None:
    """Log only messages of this level and above."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(max(root.level, logging.WARNING))


class JsonFormatter(logging.Formatter):
    """One JSON object for each record, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
            **_extra(record),
            "timestamp": _time(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=repr)


class TextFormatter(logging.Formatter):
    """Lines for people: time, level, message, logger, fields; a traceback below."""

    def __init__(self, *, has_colors: bool) -> None:
        super().__init__()
        self._has_colors = has_colors

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        fields = (f"{name}={_shown(value)}" for name, value in _extra(record).items())
        line = " ".join(
            (
                self._colored(_DIM, _time(record)),
                f"[{self._colored(_COLORS.get(level, _ERROR_COLOR), f'{level:9}')}]",
                self._colored(_BOLD, f"{record.getMessage():30}"),
                f"[{record.name}]",
                *fields,
            )
        )
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"

    def _colored(self, color: str, text: str) -> str:
        return f"{color}{text}{_RESET}" if self._has_colors else text


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that the caller passed as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _NOT_EXTRA}


def _time(record: logging.LogRecord) -> str:
    return f"{datetime.fromtimestamp(record.created, UTC).isoformat(timespec='microseconds')[:-6]}Z"


def _shown(value: object) -> str:
    """Return a field's value; a text that could be misread is quoted."""
    is_plain = isinstance(value, str) and value and not set(value) & set(" \t=\r\n\"'")
    return str(value) if is_plain else repr(value)
