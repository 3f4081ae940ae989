"""Start positions on the command line: `--from`, `--to`."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from sparrow.cli.times import parse_time_ms

_MS_DIGITS = 12
"""Digits from which on a number is a time in ms (1973 and later); no log is that long."""


def parse_start(text: str) -> str | int | datetime:
    """Parse "beginning", "end", an offset, or a point in time.

    Raises:
        typer.BadParameter: any other text.
    """
    if text in {"beginning", "end"}:
        return text
    if text.isdecimal() and len(text) < _MS_DIGITS:
        return int(text)
    try:
        return datetime.fromtimestamp(parse_time_ms(text) / 1000, UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no place to begin; say beginning, end, an offset, or a time such as "
            "2026-05-01T12:00:00Z"
        ) from None
