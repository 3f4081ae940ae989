"""Start positions as queries and bodies write them: `beginning`, `end`, an offset, or
`timestamp:<ms>`.
"""

from __future__ import annotations

from typing import Final

from sparrow.base.errors import InvalidArgument
from sparrow.broker.reading.positions import BEGINNING, END, OFFSET, TIMESTAMP, StartPosition

START_POSITION_TEXT: Final = "`beginning`, `end`, an offset, or `timestamp:<ms since the epoch>`."
_MAX: Final = (1 << 62) - 1
_MAX_DIGITS: Final = 19


def parse_start_position(text: str, *, offsets: bool = True) -> StartPosition:
    """Parse a start position.

    Args:
        offsets: True if an offset is accepted.

    Raises:
        InvalidArgument: the text is not a start position.
    """
    if text in (BEGINNING, END):
        return StartPosition(text)
    kind, colon, digits = text.rpartition(":")
    is_known = kind == TIMESTAMP if colon else offsets
    if (
        is_known
        and digits.isascii()
        and digits.isdigit()
        and len(digits) <= _MAX_DIGITS
        and int(digits) <= _MAX
    ):
        return StartPosition(TIMESTAMP if colon else OFFSET, int(digits))
    others = "an offset, " if offsets else ""
    raise InvalidArgument(
        f"{text[:80]!r} is not a start position; use {BEGINNING}, {END}, {others}or "
        f"{TIMESTAMP}:<ms since the epoch>"
    )
