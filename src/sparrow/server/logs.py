"""Logging of the server: every module logs through the standard `logging` under "sparrow",
structlog renders to stderr.

Human lines on a terminal, JSON lines otherwise. Fields go by `extra={...}`. Libraries and the
client never configure logging; only `sparrow serve` calls this.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final

AUDIT_LOGGER: Final = "sparrow.audit"

if TYPE_CHECKING:
    from types import ModuleType
    from typing import TextIO

    from structlog.typing import Processor


def configure_logging(level: str, style: str, stream: TextIO) -> None:
    """Send all log messages to `stream`.

    Args:
        level: "debug", "info", "warning" or "error".
        style: "text", "json", or "auto" (text if the stream is a terminal).
        stream: where to write, usually stderr.
    """
    as_text = stream.isatty() if style == "auto" else style == "text"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(as_text, stream.isatty()))
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


def _formatter(as_text: bool, colors: bool) -> logging.Formatter:
    structlog = _structlog()
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    return _make(structlog, shared, _text(structlog, colors) if as_text else _json(structlog))


def _make(structlog: ModuleType, shared: list[Processor], renderers: list[Any]) -> logging.Formatter:
    made: logging.Formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )
    return made


def _text(structlog: ModuleType, colors: bool) -> list[Any]:
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]


def _json(structlog: ModuleType) -> list[Any]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _structlog() -> ModuleType:
    """Import structlog without Rich: its pretty tracebacks are not used here, and importing them
    costs 0.25 s of the start.
    """
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog
    finally:
        if hidden:
            del sys.modules["rich"]
    return structlog
