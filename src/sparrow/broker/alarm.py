"""Waiting at the ends of several partitions at once, and knowing which of them woke one. Costs nothing while nothing is appended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from sparrow.broker.partition import Partition

K = TypeVar("K", bound="Hashable")


class Alarm(Generic[K]):
    """Waits from when it is made until `close`. Loop thread only.

    Args:
        partitions: where to wait, by a name of the caller's.
    """

    def __init__(self, partitions: dict[K, Partition]) -> None:
        self.partitions = partitions
        self._bells = {key: _Bell(self, key) for key in partitions}
        self.woken: set[K] = set()
        self.rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when any of them woke it, or somebody else rang."""
        self._arm(partitions)

    def ring(self) -> None:
        """Wake who waits, for a reason of one's own."""
        if not self.rung.done():
            self.rung.set_result(None)

    def wake(self, key: K) -> None:
        """There is more at one of them, or it is gone."""
        self.woken.add(key)
        self.ring()

    def take(self) -> set[K]:
        """Which of them woke it; from here on it waits at them again."""
        woken, self.woken = self.woken, set()
        self.rung = asyncio.get_running_loop().create_future()
        self._arm(woken)
        return woken

    def close(self) -> None:
        """Wait no longer."""
        for key, partition in self.partitions.items():
            partition.stop_waiting(self._bells[key])

    def _arm(self, keys: Iterable[K]) -> None:
        for key in keys:
            self.partitions[key].wait(self._bells[key])


class _Bell(Generic[K]):
    """What waits at one partition for an alarm."""

    __slots__ = ("_alarm", "_key")

    def __init__(self, alarm: Alarm[K], key: K) -> None:
        self._alarm = alarm
        self._key = key

    def wake(self) -> None:
        self._alarm.wake(self._key)
