"""Rings of samples: 15 minutes in steps of 5 s, and 24 hours in steps of 5 min. Pure: the caller
brings the time.

Values are 4-byte floats. The rings of the broker have 13 series (30 KB); up to `MAX_QUEUES` queues
that did something lately have 4 series of the short ring each (5 KB), about 200 KB in all. Nothing
of it is stored: a restart loses it, and `since_ms` says when that was.
"""

from __future__ import annotations

from array import array
from math import isnan, nan
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

INTERVAL_MS: Final = 5_000
"""Time between two samples, that of `maintenance.RECORD_INTERVAL_MS`."""
SHORT_SAMPLES: Final = 180
LONG_SAMPLES: Final = 288
JOINED: Final = 60
"""Samples of the short ring whose mean is one of the long ring."""
MAX_QUEUES: Final = 40


class Ring:
    """The last samples of several series."""

    def __init__(self, names: Sequence[str], size: int) -> None:
        self.names = tuple(names)
        self._size = size
        self._times = array("d")
        self._values = {name: array("f") for name in names}
        self._next = 0

    def __len__(self) -> int:
        return len(self._times)

    def add(self, time_ms: int, values: Mapping[str, float]) -> None:
        """Add a sample; a series without a value gets none."""
        if len(self._times) < self._size:
            self._times.append(time_ms)
            for name, column in self._values.items():
                column.append(values.get(name, nan))
            return
        self._times[self._next] = time_ms
        for name, column in self._values.items():
            column[self._next] = values.get(name, nan)
        self._next = (self._next + 1) % self._size

    def times_ms(self) -> list[int]:
        """Return the times of the samples, oldest first."""
        return [int(each) for each in self._in_order(self._times)]

    def series(self, name: str) -> list[float | None]:
        """Return the values of one series, oldest first; None where there is none."""
        return [None if isnan(each) else round(each, 3) for each in self._in_order(self._values[name])]

    def last(self, name: str) -> float:
        """Return the newest value of a series; 0 without one."""
        column = self._values[name]
        if not column:
            return 0.0
        value = column[self._next - 1]
        return 0.0 if isnan(value) else float(value)

    def mean_of_last(self, count: int) -> dict[str, float]:
        """Return the mean of the last samples of each series that has values there."""
        means = {}
        for name, column in self._values.items():
            known = [each for each in self._in_order(column)[-count:] if not isnan(each)]
            if known:
                means[name] = sum(known) / len(known)
        return means

    def _in_order(self, column: array[float]) -> Sequence[float]:
        return [*column[self._next :], *column[: self._next]]


class Histories:
    """The rings of a broker, and those of queues that did something lately."""

    def __init__(self, names: Iterable[str], queue_names: Iterable[str]) -> None:
        self._queue_names = tuple(queue_names)
        self.short = Ring(tuple(names), SHORT_SAMPLES)
        self.long = Ring(self.short.names, LONG_SAMPLES)
        self.queues: dict[str, Ring] = {}
        """By the id of the queue, the one that did something last at the end."""
        self._unjoined = 0

    def add(self, time_ms: int, values: Mapping[str, float]) -> None:
        """Add a sample of the broker."""
        self.short.add(time_ms, values)
        self._unjoined += 1
        if self._unjoined == JOINED:
            self._unjoined = 0
            self.long.add(time_ms, self.short.mean_of_last(JOINED))

    def add_of_queue(
        self, queue_id: str, time_ms: int, values: Mapping[str, float], *, is_busy: bool
    ) -> None:
        """Add a sample of a queue. One that is not busy and not known gets no ring."""
        ring = self.queues.pop(queue_id, None)
        if ring is None:
            if not is_busy:
                return
            ring = Ring(self._queue_names, SHORT_SAMPLES)
            if len(self.queues) >= MAX_QUEUES:
                del self.queues[next(iter(self.queues))]
        ring.add(time_ms, values)
        if is_busy:
            self.queues[queue_id] = ring
        else:
            self.queues = {queue_id: ring, **self.queues}

    def keep_queues(self, ids: frozenset[str]) -> None:
        """Forget the rings of all other queues."""
        for gone in [each for each in self.queues if each not in ids]:
            del self.queues[gone]
