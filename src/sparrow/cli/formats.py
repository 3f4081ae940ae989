"""Formats in which `consume` writes messages.

text  the value as UTF-8, one line each; other bytes are escaped, on a terminal control characters
      as well
raw   the value's bytes as they are, a line end after each
json  one object per line, as `publish --ndjson` reads it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.cli.ndjson import format_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TextIO

    from sparrow.records.record import Record

_NULL = "null"


def _text(record: Record) -> bytes:
    value = _NULL if record.value is None else record.value.decode("utf-8", "backslashreplace")
    return value.encode()


def _terminal_text(record: Record) -> bytes:
    """Escape what would move the cursor or change colours."""
    text = _text(record).decode()
    if text.isprintable():
        return text.encode()
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text
    ).encode()


def _raw(record: Record) -> bytes:
    return record.value or b""


FORMATS: dict[str, Callable[[Record], bytes]] = {"text": _text, "raw": _raw, "json": format_line}


def formatter(name: str, stream: TextIO) -> Callable[[list[Record]], None]:
    """Return a function that writes messages to the stream and flushes it."""
    write_one = _terminal_text if name == "text" and stream.isatty() else FORMATS[name]
    return lambda records: write_lines(map(write_one, records), stream)


def write_lines(lines: Iterable[bytes], stream: TextIO) -> None:
    """Write lines, each with its end, and flush the stream."""
    out = stream.buffer
    rest = memoryview(b"".join([line + b"\n" for line in lines]))
    while rest:  # with PYTHONUNBUFFERED there is no buffer, and a write may be short
        rest = rest[out.write(rest) :]
    out.flush()
