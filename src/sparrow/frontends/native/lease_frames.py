"""A lease as LEASED frames: one frame, unless it does not fit.

A lease that does not fit is cut between its batches. If the ranges of a batch make the head too
large, they are halved until it fits. A single record that does not fit was published through
another frontend and cannot be delivered through this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import FrameTooLarge
from sparrow.protocol.native import messages as m
from sparrow.records.batch import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.broker.queues.rules.settlement import Leased
    from sparrow.protocol.native.frames import Buffer

    Send = Callable[[m.Leased, Buffer], None]


def send_leased(leased: Leased, ref: int, send: Send) -> list[tuple[int, int]]:
    """Send a lease in as few frames as possible.

    Args:
        send: raises FrameTooLarge, and then has sent nothing.

    Returns:
        (first, last) offsets of the records that do not fit into a frame; they were not sent.
    """
    try:
        _send(leased, ref, send)
    except FrameTooLarge:
        return [unsent for part in _batches_of(leased) for unsent in _send_parts(part, ref, send)]
    return []


def _send(leased: Leased, ref: int, send: Send) -> None:
    send(m.Leased(ref, leased.topic, leased.partition, leased.lease_ms, leased.ranges), leased.data)


def _send_parts(leased: Leased, ref: int, send: Send) -> list[tuple[int, int]]:
    ranges = leased.ranges
    try:
        _send(leased, ref, send)
    except FrameTooLarge:
        if len(ranges) == 1:
            return [ranges[0][:2]]
        half = len(ranges) // 2
        return _send_parts(leased._replace(ranges=ranges[:half]), ref, send) + _send_parts(
            leased._replace(ranges=ranges[half:]), ref, send
        )
    return []


def _batches_of(leased: Leased) -> Iterator[Leased]:
    """Yield the lease batch by batch."""
    for header, data in split(leased.data):
        base, last = header.base_offset, header.last_offset
        ranges = [
            (max(a, base), min(b, last), count) for a, b, count in leased.ranges if a <= last and b >= base
        ]
        if ranges:
            yield leased._replace(ranges=ranges, data=data)
