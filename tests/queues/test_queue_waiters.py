"""Wake-ups of consumers when records are ready."""

import asyncio

import pytest

from sparrow.broker.queues.waiters import Waiters


async def start(waiters: Waiters, may_take=lambda: True, timeout_s: float = 60.0) -> asyncio.Task[bool]:
    task = asyncio.create_task(waiters.wait(may_take, timeout_s))
    await asyncio.sleep(0)
    return task


async def test_as_many_are_woken_as_there_are_records_in_their_order() -> None:
    waiters = Waiters(lambda: None)
    tasks = [await start(waiters) for _ in range(5)]
    waiters.wake(2)
    await asyncio.sleep(0)
    assert [task.done() for task in tasks] == [True, True, False, False, False]
    assert len(waiters) == 3
    waiters.wake_all()
    assert await asyncio.gather(*tasks) == [True] * 5


async def test_a_consumer_that_may_not_take_keeps_its_position() -> None:
    waiters = Waiters(lambda: None)
    is_full = True
    full = await start(waiters, lambda: not is_full)
    other, last = await start(waiters), await start(waiters)
    waiters.wake(1)
    assert await other
    is_full = False
    waiters.wake(1)
    assert await full
    assert not last.done()
    waiters.wake_all()
    await last


async def test_a_woken_consumer_that_goes_away_wakes_another() -> None:
    waiters = Waiters(lambda: waiters.wake(1))
    first, second = await start(waiters), await start(waiters)
    waiters.wake(1)
    first.cancel()
    assert await second
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_wait_ends_with_its_time() -> None:
    waiters = Waiters(lambda: None)
    assert not await waiters.wait(lambda: True, 0.01)
    assert not await waiters.wait(lambda: True, 0)
    assert len(waiters) == 0


async def test_a_consumer_that_goes_away_takes_no_wake_up() -> None:
    waiters = Waiters(lambda: waiters.wake(1))
    first = asyncio.create_task(waiters.wait(lambda: True, 60))
    second = asyncio.create_task(waiters.wait(lambda: True, 60))
    await asyncio.sleep(0)
    first.cancel()
    waiters.wake(1)
    async with asyncio.timeout(10):
        assert await second


async def test_a_consumer_whose_time_is_over_takes_no_wake_up() -> None:
    waiters = Waiters(lambda: waiters.wake(1))
    first = asyncio.create_task(waiters.wait(lambda: True, 60))
    second = asyncio.create_task(waiters.wait(lambda: True, 60))
    await asyncio.sleep(0)
    next(iter(waiters._waiting)).set_result(False)  # as its timer does
    waiters.wake(1)
    async with asyncio.timeout(10):
        assert await second
    assert not await first
