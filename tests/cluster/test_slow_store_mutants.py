"""The slow store of the broker's tests finds two faults that are put back: cold partitions that are
read one after the other, and logs that are opened on the loop.

`tests/storage/test_pending_append_mutants.py` does so for the faults of pending appends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sparrow.broker.partition import Partition
from sparrow.broker.reading import fetch, reader
from tests.broker.reading import test_slow_store as checks

Check = Callable[[checks.Slow], Awaitable[None]]
HANGS_AFTER_S = 1.0
"""A check that reads nothing for as long has found a cursor that holds up the others."""


async def fetches(slow: checks.Slow) -> None:
    await checks.test_a_fetch_of_many_cold_partitions_reads_some_of_them_at_once(slow)


async def reads(slow: checks.Slow) -> None:
    await checks.test_a_cold_cursor_that_waits_holds_up_no_other(slow, committed=False)


async def opens(slow: checks.Slow) -> None:
    await checks.test_offsets_descriptions_and_housekeeping_open_logs_in_threads(slow)


async def run(check: Check, limit_s: float) -> None:
    slow = checks.Slow()
    await slow.start()
    try:
        async with asyncio.timeout(limit_s):
            await check(slow)
    finally:
        slow.store.on_read = no_wait
        await slow.broker.close()


async def no_wait(_: object) -> None:
    """A read that does not wait."""


@pytest.mark.parametrize("check", [fetches, reads, opens])
async def test_the_broker_as_it_is_passes(check: Check) -> None:
    await run(check, 60)


async def test_a_fetch_that_reads_cold_partitions_one_after_the_other_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_by_one = property(lambda self: bool(self._waiting))
    monkeypatch.setattr(fetch._Reading, "is_waiting_enough", one_by_one)
    with pytest.raises(AssertionError):
        await run(fetches, 60)


@pytest.mark.slow
async def test_a_cold_cursor_that_holds_up_the_others_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "READS_AT_ONCE", 1)
    with pytest.raises((AssertionError, TimeoutError)):
        await run(reads, HANGS_AFTER_S)


async def test_a_log_that_is_opened_on_the_loop_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opened(self: Partition) -> object:
        return self.log

    monkeypatch.setattr(Partition, "opened", opened)
    with pytest.raises(AssertionError):
        await run(opens, 60)
