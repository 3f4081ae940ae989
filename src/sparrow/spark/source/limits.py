"""Limits of a micro-batch.

A limit is spread over the partitions by how much each has waiting, so that all reach their ends
together; each that has something takes at least one offset, so that none starves. With more
partitions than the limit has rows, a micro-batch is that much larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def shares(waiting: Mapping[K, int], limit: int) -> dict[K, int]:
    """Return how much each partition takes, from how much each has: all of it, or together about
    `limit`.
    """
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    return {key: min(size, max(1, limit * size // total)) if size else 0 for key, size in waiting.items()}


def limited(starts: Mapping[K, int], ends: Mapping[K, int], max_offsets: int) -> dict[K, int]:
    """Return the offsets where a micro-batch of `max_offsets` records ends. A partition without a
    start has nothing waiting.
    """
    waiting = {key: max(0, end - starts.get(key, end)) for key, end in ends.items()}
    taken = shares(waiting, max_offsets)
    return {key: starts[key] + taken[key] if waiting[key] else end for key, end in ends.items()}
