"""What happens to the broker, by a seed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence

from sparrow.testing.running import RunningBroker
from tests.crash.loads import Load

_PATIENCE_S = 60.0


async def kill(broker: RunningBroker, _: random.Random) -> None:
    """kill -9, and a start at once."""
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.restart)


async def pause(broker: RunningBroker, dice: random.Random) -> None:
    """SIGSTOP for a moment, as a machine that swaps or is moved."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(dice.uniform(0.1, 0.8))
    finally:
        os.kill(broker.pid, signal.SIGCONT)


async def restart(broker: RunningBroker, _: random.Random) -> None:
    """SIGTERM, and a start at once."""
    await asyncio.to_thread(broker.restart)


Fault = Callable[[RunningBroker, random.Random], Awaitable[None]]
FAULTS: Sequence[tuple[Fault, float]] = ((kill, 0.7), (pause, 0.2), (restart, 0.1))


async def torment(broker: RunningBroker, loads: Sequence[Load], rounds: int, seed: int) -> list[str]:
    """Run the loads, and do something to the broker in each round when every load has got on since the last one; what was done, in order."""
    dice = random.Random(seed)
    for load in loads:
        await load.prepare(broker)
    stop, done = asyncio.Event(), []
    async with asyncio.TaskGroup() as group:
        for load in loads:
            group.create_task(load.run(broker, stop), name=load.name)
        for _ in range(rounds):
            await _until_all_got_on(loads)
            await asyncio.sleep(dice.uniform(0, 0.15))
            (fault,) = dice.choices([each for each, _ in FAULTS], [share for _, share in FAULTS])
            done.append(fault.__name__)
            await fault(broker, dice)
        await _until_all_got_on(loads)
        stop.set()
    return done


async def _until_all_got_on(loads: Sequence[Load]) -> None:
    before = {load.name: load.progress for load in loads}
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while stuck := [load.name for load in loads if load.progress == before[load.name]]:
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{stuck} did not get on within {_PATIENCE_S:g} s") from None
