"""The wall clock of a broker in a cluster: the ledger's.

Leases of jobs, delays and expiries are stored as wall time, and go on at the next owner of the
shard. Each machine's own clock may be wrong, or jump: a job would be handed out while its first
worker still has it. So every owner counts from the ledger's time, by a clock that never jumps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.base.clock import SystemClock
from sparrow.cluster.ownership import boot_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.base.clock import Clock
    from sparrow.cluster.ledger import Ledger

MAX_ROUND_TRIP_S: Final = 0.5
"""An answer of the ledger that took longer says too little about its time."""
MAX_QUESTIONS: Final = 5
"""After so many answers that took longer, the quickest is better than none."""


class LedgerClock:
    """A `Clock`. Its wall time is the ledger's of the last `read`, and what passed since then.

    Args:
        machine: the source of monotonic time.
        now: seconds of a clock that runs also while the machine sleeps; for tests.
    """

    def __init__(self, machine: Clock | None = None, now: Callable[[], float] = boot_time) -> None:
        self.monotonic = (machine or SystemClock()).monotonic
        self._now = now
        self._zero_ms: float | None = None
        """The ledger's time when `now` was zero; None before the first answer."""

    async def read(self, ledger: Ledger) -> None:
        """Ask the ledger for its time, again while answers take long.

        If all of them do, the quickest counts where no time is known yet; else what is known stays.

        Raises:
            LedgerUnavailable
        """
        answers: list[tuple[float, float]] = []
        for _ in range(MAX_QUESTIONS):
            asked_at = self._now()
            ledger_ms = await ledger.now_ms()
            answered_at = self._now()
            answers.append((answered_at - asked_at, ledger_ms - 500 * (asked_at + answered_at)))
            if answers[-1][0] <= MAX_ROUND_TRIP_S:
                break
        took_s, zero_ms = min(answers)
        if took_s <= MAX_ROUND_TRIP_S or self._zero_ms is None:
            self._zero_ms = zero_ms

    def wall_ms(self) -> int:
        return int((self._zero_ms or 0.0) + self._now() * 1000)
