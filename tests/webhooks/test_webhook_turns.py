"""Whose request is next when many endpoints want to send."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sparrow.frontends.webhook.turns import Turns


async def taken(turns: Turns, who: str) -> asyncio.Task[None]:
    task = asyncio.create_task(turns.take(who))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_slow_endpoints_keep_nobody_out() -> None:
    turns = Turns(8)
    slow = [await taken(turns, name) for name in "ab" for _ in range(8)]
    assert sum(task.done() for task in slow) == 7  # six, and the first of b
    other = await taken(turns, "c")
    assert other.done()
    late = await taken(turns, "d")
    assert not late.done()
    turns.give_back("a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert late.done()
    for task in slow:
        task.cancel()
    await asyncio.wait(slow)


@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["take", "give", "cancel"])), max_size=60),
)
def test_no_more_are_under_way_than_there_may_be_and_none_is_lost(
    most: int, steps: list[tuple[str, str]]
) -> None:
    asyncio.run(_walk(most, steps))


async def _walk(most: int, steps: list[tuple[str, str]]) -> None:
    turns = Turns(most)
    tasks: list[tuple[str, asyncio.Task[None]]] = []
    held: Counter[str] = Counter()

    def count() -> None:
        for who, task in [each for each in tasks if each[1].done()]:
            tasks.remove((who, task))
            held[who] += not task.cancelled()

    for who, step in steps:
        if step == "take":
            tasks.append((who, await taken(turns, who)))
        elif step == "give" and held[who]:
            turns.give_back(who)
            held[who] -= 1
            if len(tasks) % 2:  # one that has its turn and does not know it yet
                tasks[0][1].cancel()
        elif step == "cancel" and tasks:
            tasks[-1][1].cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        count()
        assert held.total() + turns.free == most
        assert turns.free >= 0
    while held.total():
        who = next(iter(+held))
        turns.give_back(who)
        held[who] -= 1
        for _ in range(3):
            await asyncio.sleep(0)
        count()
    assert not tasks
    assert turns.free == most
