"""Numbers of repetitions of what tests draw by chance: examples of hypothesis, lives and faults by
seed, kills.

`make test` repeats each of them a few times, each time with other draws where nothing fixes the
seed; `make test-long` (`SPARROW_LONG_TESTS=1`) repeats them as often as their files say.
"""

from __future__ import annotations

import os

LONG = os.environ.get("SPARROW_LONG_TESTS", "") not in {"", "0"}
SHARE = 4
"""`make test` has one in so many."""


def repetitions(full: int, variable: str = "", *, least: int = 1) -> int:
    """Return how often to repeat: `full` times, or in `make test` a share of it, but at least
    `least` times. An environment variable of that name decides before both.
    """
    if variable in os.environ:
        return int(os.environ[variable])
    return full if LONG else min(full, max(least, full // SHARE))


CRASH_ROUNDS = repetitions(10, "SPARROW_CRASH_ROUNDS", least=5)
"""Rounds of kills and power failures; `make crash` runs hundreds."""
