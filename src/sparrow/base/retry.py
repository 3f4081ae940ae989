"""Delays between attempts: exponential backoff with full jitter.

Each delay is drawn evenly between 0 and a ceiling that doubles from `initial_s` to `max_s`, so that
a thousand clients of a broker that restarts do not come back in step (Brooker, "Exponential backoff
and jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


_system_random: Final = random.SystemRandom().random
"""Without a state that a program may have seeded, and that processes share after a fork."""


class Backoff:
    """Delays of one series of attempts. Not thread-safe."""

    __slots__ = ("_attempts", "_initial_s", "_max_s", "_random")

    def __init__(self, initial_s: float, max_s: float, uniform: Callable[[], float] = _system_random) -> None:
        """Create a series. `uniform` returns numbers in [0, 1); injectable for tests."""
        self._initial_s = initial_s
        self._max_s = max_s
        self._random = uniform
        self._attempts = 0

    @property
    def ceiling_s(self) -> float:
        """The longest possible next delay."""
        # 2**64 intervals are longer than any maximum; the bound keeps the power a float.
        return min(self._max_s, self._initial_s * 2.0 ** min(self._attempts, 64))

    def next_delay_s(self) -> float:
        """Return the delay before the next attempt."""
        delay_s = self._random() * self.ceiling_s
        self._attempts += 1
        return delay_s

    def reset(self) -> None:
        """Start again at the shortest delay, after a success."""
        self._attempts = 0
