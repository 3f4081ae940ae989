"""Where reading begins: beginning, end, an offset, a timestamp, as an offset of one partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from sparrow.broker.partition import Partition

BEGINNING = "beginning"
END = "end"
OFFSET = "offset"
TIMESTAMP = "timestamp"
_PLACES = (BEGINNING, END, OFFSET, TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Start:
    """A place in a log: `at` is "beginning", "end", "offset" or "timestamp"; `value` the offset, or the time in ms."""

    at: str = END
    value: int = -1


AT_END = Start()


def check_start(start: Start) -> Start:
    """The start itself.

    Raises:
        InvalidArgument: no such place, or a negative offset or timestamp.
    """
    if start.at not in _PLACES:
        raise InvalidArgument(f"reading cannot start at {start.at!r}; it can at {', '.join(_PLACES)}")
    if start.at in (OFFSET, TIMESTAMP) and start.value < 0:
        raise InvalidArgument(f"reading cannot start at {start.at} {start.value}: it is negative")
    return start


async def locate(partition: Partition, start: Start) -> tuple[int, int]:
    """(offset, timestamp) that `start` means now; the timestamp is -1 unless a record was looked up.

    A timestamp later than all records gives the end. An offset is not checked against the log's bounds.
    """
    check_start(start)
    if start.at == BEGINNING:
        return partition.start_offset, -1
    if start.at == OFFSET:
        return start.value, -1
    if start.at == TIMESTAMP:
        found = await partition.log.offset_for_timestamp(start.value)
        if found is not None:
            return found
    return partition.visible_end, -1
