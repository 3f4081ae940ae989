"""The positions of a reader of a topic as one short text: the id of an event.

    3:18,0:7      next offsets: 18 in partition 3, 7 in partition 0, 0 in all others

The partition of the event is first, so that the text behind it is the same for all readers at the
same positions, and the event itself can be rendered once for all of them. Partitions at 0 are left
out: a topic of a thousand partitions of which ten are in use has short ids. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CHARACTERS: Final = 64 << 10
_MAX_PARTITION: Final = (1 << 31) - 1
_MAX_OFFSET: Final = (1 << 63) - 1
_TEXT: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,19}(,[0-9]{1,10}:[0-9]{1,19})*")


def format_positions(positions: Mapping[int, int]) -> str:
    """Return the text of all positions (partition → next offset). It is never empty, as an empty id
    would mean none.
    """
    moved = [(partition, offset) for partition, offset in sorted(positions.items()) if offset]
    return ",".join(
        f"{partition}:{offset}" for partition, offset in moved or [(min(positions, default=0), 0)]
    )


def format_others(positions: Mapping[int, int], but: int) -> str:
    """Return the text behind the entry of partition `but`: nothing, or a comma and the other
    positions.
    """
    return "".join(
        f",{partition}:{offset}"
        for partition, offset in sorted(positions.items())
        if offset and partition != but
    )


def is_positions(text: str) -> bool:
    """Return True if a text has the form of positions, and not of another start position."""
    return ":" in text and text[:1].isdigit()


def parse_positions(text: str) -> dict[int, int]:
    """Parse positions; partitions that are not named are at 0.

    Raises:
        InvalidArgument: the text does not have this form.
    """
    if len(text) > MAX_CHARACTERS or _TEXT.fullmatch(text) is None:
        raise _wrong(text)
    positions: dict[int, int] = {}
    for entry in text.split(","):
        partition, _, offset = entry.partition(":")
        if int(partition) in positions or int(partition) > _MAX_PARTITION or int(offset) > _MAX_OFFSET:
            raise _wrong(text)
        positions[int(partition)] = int(offset)
    return positions


def _wrong(text: str) -> InvalidArgument:
    return InvalidArgument(
        f"{text[:60]!r} is not the id of an event of a stream: those look like 0:17,1:4 "
        "(partition:offset); send the last one back as"
        " it came, or none to start again"
    )
