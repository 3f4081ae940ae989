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

    Send = Callable[[m.Leased, int, Buffer], None]


def send_leased(leased: Leased, ref: int, send: Send, channel: int) -> list[tuple[int, int]]:
    """Send a lease in as few frames as possible.

    Args:
        send: sends a frame on the channel; raises FrameTooLarge, and then has sent nothing.

    Returns:
        (first, last) offsets of the records that do not fit into a frame; they were not sent.
    """
    ranges = leased.ranges
    try:
        send(m.Leased(ref, leased.topic, leased.partition, leased.lease_ms, ranges), channel, leased.data)
    except FrameTooLarge:
        parts = _parts_of(leased)
        if not parts:
            return [ranges[0][:2]]
        return [unsent for part in parts for unsent in send_leased(part, ref, send, channel)]
    return []


def _parts_of(leased: Leased) -> list[Leased]:
    """Return the batches of a lease, or the halves of one batch; nothing if there is one range."""
    batches = list(_batches_of(leased))
    if len(batches) > 1 or (batches and len(batches[0].data) < len(leased.data)):
        return batches
    ranges = leased.ranges
    half = len(ranges) // 2
    return [leased._replace(ranges=ranges[:half]), leased._replace(ranges=ranges[half:])] if half else []


def _batches_of(leased: Leased) -> Iterator[Leased]:
    """Yield the lease batch by batch."""
    for header, data in split(leased.data):
        base, last = header.base_offset, header.last_offset
        ranges = [
            (max(a, base), min(b, last), count) for a, b, count in leased.ranges if a <= last and b >= base
        ]
        if ranges:
            yield leased._replace(ranges=ranges, data=data)
