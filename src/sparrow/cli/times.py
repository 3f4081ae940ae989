"""Points in time on a command line."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time_ms(given: int | str) -> int:
    """Parse milliseconds since the epoch from a number of them or from ISO 8601
    ("2026-05-01T12:00:00Z"); no zone means UTC.

    Raises:
        ValueError: says what is allowed.
    """
    text = str(given).strip()
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time; write ISO 8601 as 2026-05-01T12:00:00Z, or milliseconds since 1970"
        ) from None
    zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
    return round(zoned.timestamp() * 1000)


def format_time(timestamp_ms: int) -> str:
    """Return a record's time for people, in UTC; "-" if there is none."""
    if timestamp_ms < 0:
        return "-"
    shown = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return shown.isoformat(timespec="milliseconds").replace("+00:00", "Z")
