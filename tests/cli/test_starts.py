"""Times and start positions as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import typer

from sparrow.cli.starts import parse_start
from sparrow.cli.times import format_time, parse_time_ms


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", "beginning"),
        ("end", "end"),
        ("0", 0),
        ("12345", 12345),
        ("1777636800000", datetime(2026, 5, 1, 12, tzinfo=UTC)),
        ("2026-05-01T12:00:00Z", datetime(2026, 5, 1, 12, tzinfo=UTC)),
        ("2026-05-01T14:00:00+02:00", datetime(2026, 5, 1, 12, tzinfo=UTC)),
        ("2026-05-01", datetime(2026, 5, 1, tzinfo=UTC)),
    ],
)
def test_start_is_read(text, start):
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "-1", "start", "2026-13-01", "9" * 30])
def test_invalid_start_is_refused_with_an_example(text):
    with pytest.raises(typer.BadParameter, match="2026-05-01T12:00:00Z"):
        parse_start(text)


def test_time_is_written_in_utc():
    assert format_time(parse_time_ms("2026-05-01T14:00:00.25+02:00")) == "2026-05-01T12:00:00.250Z"
    assert format_time(-1) == "-"
