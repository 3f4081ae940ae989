"""A place in a topic, as queries and bodies write it: `beginning`, `end`, an offset, or `timestamp:<ms>`."""

from __future__ import annotations

from typing import Final

from sparrow.base.errors import InvalidArgument
from sparrow.broker.positions import BEGINNING, END, OFFSET, TIMESTAMP, Start

PLACE_TEXT: Final = "`beginning`, `end`, an offset, or `timestamp:<ms since the epoch>`."
_MAX: Final = (1 << 62) - 1
_MAX_DIGITS: Final = 19


def parse_place(text: str, *, offsets: bool = True) -> Start:
    """The place that a text says.

    Args:
        offsets: whether an offset is one.

    Raises:
        InvalidArgument: it says none.
    """
    if text in (BEGINNING, END):
        return Start(text)
    kind, colon, digits = text.rpartition(":")
    is_known = kind == TIMESTAMP if colon else offsets
    if (
        is_known
        and digits.isascii()
        and digits.isdigit()
        and len(digits) <= _MAX_DIGITS
        and int(digits) <= _MAX
    ):
        return Start(TIMESTAMP if colon else OFFSET, int(digits))
    others = "an offset, " if offsets else ""
    raise InvalidArgument(
        f"{text[:80]!r} is no place; write {BEGINNING}, {END}, {others}or {TIMESTAMP}:<ms since the epoch>"
    )
