"""Start positions of readers: beginning, end, an offset or a timestamp, and their offset in a
partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from sparrow.broker.partition import Partition

BEGINNING = "beginning"
END = "end"
OFFSET = "offset"
TIMESTAMP = "timestamp"
_POSITIONS = (BEGINNING, END, OFFSET, TIMESTAMP)


class StartPosition(Struct, frozen=True):
    """A position in a log: `at` is "beginning", "end", "offset" or "timestamp"; `value` the offset,
    or the time in ms.
    """

    at: str = END
    value: int = -1


AT_END = StartPosition()


def check_start(start: StartPosition) -> StartPosition:
    """Return the start position if it is valid.

    Raises:
        InvalidArgument: `at` is unknown, or an offset or timestamp is negative.
    """
    if start.at not in _POSITIONS:
        raise InvalidArgument(f"reading cannot start at {start.at!r}; use {', '.join(_POSITIONS)}")
    if start.at in (OFFSET, TIMESTAMP) and start.value < 0:
        raise InvalidArgument(f"reading cannot start at {start.at} {start.value}: it is negative")
    return start


async def locate(partition: Partition, start: StartPosition) -> tuple[int, int]:
    """Return the (offset, timestamp) of a start position now; the timestamp is -1 unless a record
    was looked up.

    A timestamp later than all records gives the end. An offset is not checked against the log's
    bounds.
    """
    check_start(start)
    if start.at == OFFSET:
        return start.value, -1
    log = await partition.opened()
    if start.at == BEGINNING:
        return partition.start_offset, -1
    if start.at == TIMESTAMP:
        found = await log.offset_for_timestamp(start.value)
        if found is not None:
            return found
    return partition.visible_end, -1
