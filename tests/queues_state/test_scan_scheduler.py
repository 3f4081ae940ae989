"""Work of many queues in slices: each has its slice, and the loop is free in between."""

from __future__ import annotations

import asyncio
import time

from sparrow.broker.queues.scheduler import CooperativeScheduler


async def test_each_is_called_once_in_the_order_in_which_they_asked() -> None:
    scheduler = CooperativeScheduler()
    called: list[int] = []
    for number in range(5):
        scheduler.soon(lambda number=number: called.append(number))
    assert called == []
    await asyncio.sleep(0)
    assert called == [0, 1, 2, 3, 4]
    await asyncio.sleep(0)
    assert len(called) == 5


async def test_work_that_has_more_to_do_waits_for_the_next_iteration() -> None:
    scheduler = CooperativeScheduler()
    called = 0

    def again() -> None:
        nonlocal called
        called += 1
        scheduler.soon(again)

    scheduler.soon(again)
    for expected in (1, 2, 3):
        await asyncio.sleep(0)
        assert called == expected


async def test_long_work_of_many_leaves_the_loop_to_others_in_between() -> None:
    scheduler = CooperativeScheduler()
    called: list[int] = []

    def work(number: int) -> None:
        time.sleep(0.003)
        called.append(number)

    for number in range(4):
        scheduler.soon(lambda number=number: work(number))
    for done in (1, 2, 3, 4):
        await asyncio.sleep(0)
        assert called == list(range(done))


async def test_a_failure_of_one_does_not_stop_the_others() -> None:
    scheduler = CooperativeScheduler()
    called: list[int] = []

    def wrong() -> None:
        raise ValueError("wrong")

    scheduler.soon(wrong)
    scheduler.soon(lambda: called.append(1))
    loop = asyncio.get_running_loop()
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert called == [1]
    assert [str(error) for error in errors] == ["wrong"]
