"""The wall clock of an owner is the ledger's, whatever the clocks of its machine do."""

from __future__ import annotations

import time

import pytest

from sparrow.base.clock import ManualClock
from sparrow.cluster.clock import MAX_QUESTIONS, MAX_ROUND_TRIP_S, LedgerClock
from sparrow.cluster.ledger_model import LedgerState, MemoryLedger
from sparrow.cluster.ownership import Ownership, boot_time
from tests.cluster.simulation.world import World

LEDGER_MS = 1_800_000_000_000


class SlowLedger(MemoryLedger):
    """Its first answers take some seconds; its time is that of the middle of those that take one at
    most, and of the end of others.
    """

    def __init__(self, machine: ManualClock, ledger_clock: ManualClock, seconds: list[float]) -> None:
        super().__init__(LedgerState(ledger_clock))
        self._machine = machine
        self._seconds = seconds
        self.asked = 0

    async def now_ms(self) -> int:
        self.asked += 1
        took_s = self._seconds.pop(0)
        self._advance(took_s / 2 if took_s <= 1 else took_s)
        found = await super().now_ms()
        self._advance(took_s / 2 if took_s <= 1 else 0)
        return found

    def _advance(self, seconds: float) -> None:
        for clock in (self._machine, self.state.clock):
            assert isinstance(clock, ManualClock)
            clock.advance(seconds)


async def test_wall_time_is_that_of_the_ledger_and_goes_on_without_it() -> None:
    machine, ledger = ManualClock(), LedgerState(ManualClock(LEDGER_MS))
    clock = LedgerClock(machine, machine.monotonic)
    await clock.read(MemoryLedger(ledger))
    assert clock.wall_ms() == LEDGER_MS
    machine.advance(12.5)
    assert clock.wall_ms() == LEDGER_MS + 12_500
    assert clock.monotonic() == machine.monotonic()


async def test_answers_that_took_long_are_asked_for_again() -> None:
    machine, ledger_clock = ManualClock(), ManualClock(LEDGER_MS)
    ledger = SlowLedger(machine, ledger_clock, [3.0, 4 * MAX_ROUND_TRIP_S, MAX_ROUND_TRIP_S])
    clock = LedgerClock(machine, machine.monotonic)
    await clock.read(ledger)
    assert ledger.asked == 3
    assert clock.wall_ms() == ledger_clock.wall_ms()


async def test_the_quickest_of_slow_answers_counts_only_where_no_time_is_known() -> None:
    machine, ledger_clock = ManualClock(), ManualClock(LEDGER_MS)
    ledger = SlowLedger(machine, ledger_clock, [3.0, 1.0, 2.0, 3.0, 4.0])
    clock = LedgerClock(machine, machine.monotonic)
    await clock.read(ledger)
    assert ledger.asked == MAX_QUESTIONS
    assert clock.wall_ms() == ledger_clock.wall_ms()
    ledger_clock.advance(5.0)  # the ledger's time jumps, and no answer is quick enough to tell
    await clock.read(SlowLedger(machine, ledger_clock, [1.0] * MAX_QUESTIONS))
    assert clock.wall_ms() == ledger_clock.wall_ms() - 5000


def test_leases_end_in_time_though_the_clocks_of_machines_jump() -> None:
    """Two seeds of the simulation in which jobs were handed out twice while owners went by the
    clocks of their machines.
    """
    for seed in (10001, 10018):
        World(seed).run()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no CLOCK_BOOTTIME")
def test_leases_and_wall_time_go_by_the_clock_that_runs_while_the_machine_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boot_time() <= time.clock_gettime(time.CLOCK_BOOTTIME)
    asked: list[int] = []

    def read(clock: int) -> float:
        asked.append(clock)
        return 5.0

    monkeypatch.setattr(time, "clock_gettime", read)
    ownership = Ownership(MemoryLedger(LedgerState(ManualClock())), {})
    assert ownership._now() == LedgerClock()._now() == 5.0
    assert set(asked) == {time.CLOCK_BOOTTIME}
