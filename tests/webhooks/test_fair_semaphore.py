"""The order of requests when many endpoints want to send."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sparrow.frontends.webhook.fair_semaphore import FairSemaphore


async def taken(semaphore: FairSemaphore, owner: str) -> asyncio.Task[None]:
    task = asyncio.create_task(semaphore.acquire(owner))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_slow_endpoints_exclude_no_other() -> None:
    semaphore = FairSemaphore(8)
    slow = [await taken(semaphore, name) for name in "ab" for _ in range(8)]
    assert sum(task.done() for task in slow) == 7  # six, and the first of b
    other = await taken(semaphore, "c")
    assert other.done()
    late = await taken(semaphore, "d")
    assert not late.done()
    semaphore.release("a")
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
    permits: int, steps: list[tuple[str, str]]
) -> None:
    asyncio.run(_walk(permits, steps))


async def _walk(permits: int, steps: list[tuple[str, str]]) -> None:
    semaphore = FairSemaphore(permits)
    tasks: list[tuple[str, asyncio.Task[None]]] = []
    granted: Counter[str] = Counter()

    def count() -> None:
        for owner, task in [each for each in tasks if each[1].done()]:
            tasks.remove((owner, task))
            granted[owner] += not task.cancelled()

    for owner, step in steps:
        if step == "take":
            tasks.append((owner, await taken(semaphore, owner)))
        elif step == "give" and granted[owner]:
            semaphore.release(owner)
            granted[owner] -= 1
            if len(tasks) % 2:  # one that has a permit and does not know it yet
                tasks[0][1].cancel()
        elif step == "cancel" and tasks:
            tasks[-1][1].cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        count()
        assert granted.total() + semaphore.free == permits
        assert semaphore.free >= 0
    while granted.total():
        owner = next(iter(+granted))
        semaphore.release(owner)
        granted[owner] -= 1
        for _ in range(3):
            await asyncio.sleep(0)
        count()
    assert not tasks
    assert semaphore.free == permits
