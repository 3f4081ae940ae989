"""Waiting at the ends of several partitions at once, with the partitions that had something new.
Costs nothing while nothing is appended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from sparrow.broker.partition import Partition

K = TypeVar("K", bound="Hashable")


class Alarm(Generic[K]):
    """A waiter at several partitions, until `close`. Loop thread only.

    Args:
        partitions: the partitions, by keys of the caller's choice.
    """

    def __init__(self, partitions: dict[K, Partition]) -> None:
        self.partitions = partitions
        self._bells = {key: _Bell(self, key) for key in partitions}
        self.woken: set[K] = set()
        self.rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when a partition woke the alarm, or `ring` was called."""
        self._arm(partitions)

    def ring(self) -> None:
        """Wake the waiting task for a reason other than a partition."""
        if not self.rung.done():
            self.rung.set_result(None)

    def wake(self, key: K) -> None:
        """Wake the waiting task: the partition has more records, or was deleted."""
        self.woken.add(key)
        self.ring()

    def take(self) -> set[K]:
        """Return the partitions that woke it, and wait at them again."""
        woken, self.woken = self.woken, set()
        self.rung = asyncio.get_running_loop().create_future()
        self._arm(woken)
        return woken

    def close(self) -> None:
        """Stop waiting."""
        for key, partition in self.partitions.items():
            partition.stop_waiting(self._bells[key])

    def _arm(self, keys: Iterable[K]) -> None:
        for key in keys:
            self.partitions[key].wait(self._bells[key])


class _Bell(Generic[K]):
    """The waiter at one partition."""

    __slots__ = ("_alarm", "_key")

    def __init__(self, alarm: Alarm[K], key: K) -> None:
        self._alarm = alarm
        self._key = key

    def wake(self) -> None:
        self._alarm.wake(self._key)
