"""Faults of the broker, by a seed.

Each ten rounds have a deck of faults in a seeded order, so that a short run meets all of them: kill
-9 more often than anything else, also while a killed broker recovers; SIGSTOP, short and longer
than the time-outs of sessions and leases; a stop in good order; and, where there is a disk that may
be filled, that it is full, with a second fault while it is.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from sparrow.base.errors import SparrowError
from sparrow.testing.running_broker import RunningBroker
from tests.crash.loads import Load

_PATIENCE_S = 180.0
_THREADS = 32
"""Number of threads: some loads have threads that work as long as they do; faults need one, too."""
_LONG_PAUSE_S = 3.5
"""Longer than sessions (2 and 3 s) and leases (1 to 3 s) of the loads."""
ROUNDS = 10
"""Most rounds of one batch, which has one broker and one seed."""


class Disk(Protocol):
    """The disk of the broker's data."""

    def fill(self, left_bytes: int) -> None:
        """Fill the disk up to this many free bytes."""
        ...

    def free(self) -> None: ...


class Endured:
    """A broker and its disk; None: a disk that is never filled."""

    def __init__(self, broker: RunningBroker, disk: Disk | None, dice: random.Random) -> None:
        self.broker = broker
        self.disk = disk
        self.dice = dice


async def kill(it: Endured) -> None:
    """Kill the broker with kill -9, and start it at once."""
    await asyncio.to_thread(it.broker.kill)
    await asyncio.to_thread(it.broker.restart)


async def kill_recovery(it: Endured) -> None:
    """Kill the broker with kill -9, and again while it recovers."""
    await asyncio.to_thread(it.broker.kill)
    starting = asyncio.create_task(asyncio.to_thread(it.broker.restart))
    await asyncio.sleep(it.dice.uniform(0.05, 0.9))
    await asyncio.to_thread(it.broker.kill)
    with suppress(SparrowError):  # it did not start, because it was killed
        await starting
    await asyncio.to_thread(it.broker.restart)


async def pause(it: Endured) -> None:
    """Stop the broker with SIGSTOP for a moment, as a machine that swaps or is moved."""
    await _stopped(it, it.dice.uniform(0.1, 0.8))


async def long_pause(it: Endured) -> None:
    """Stop the broker with SIGSTOP for longer than sessions and leases last."""
    await _stopped(it, _LONG_PAUSE_S)


async def pause_and_kill(it: Endured) -> None:
    """Stop the broker with SIGSTOP, so that unread data piles up, and kill it with kill -9 before
    it continues.
    """
    os.kill(it.broker.pid, signal.SIGSTOP)
    await asyncio.sleep(it.dice.uniform(0.1, 0.5))
    await kill(it)


async def restart(it: Endured) -> None:
    """End the broker with SIGTERM, and start it at once."""
    await asyncio.to_thread(it.broker.restart)


async def full(it: Endured) -> None:
    """Fill the disk for a while."""
    await _filled(it, lambda _: asyncio.sleep(it.dice.uniform(0.3, 0.8)))


async def full_and_kill(it: Endured) -> None:
    """Kill the broker with kill -9 while the disk is full."""
    await _filled(it, kill)


async def full_and_pause(it: Endured) -> None:
    """Stop the broker with SIGSTOP while the disk is full."""
    await _filled(it, pause)


async def full_and_restart(it: Endured) -> None:
    """End the broker with SIGTERM while the disk is full, and start it."""
    await _filled(it, restart)


async def _stopped(it: Endured, seconds: float) -> None:
    os.kill(it.broker.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(it.broker.pid, signal.SIGCONT)


async def _filled(it: Endured, then: Callable[[Endured], Awaitable[object]]) -> None:
    """Fill the disk, up to the broker's reserve or to the last byte; cause another fault; then free
    it.

    If other files took the last byte, the broker may end with an error and fail to start. Once
    there is space again, it starts with everything that was acknowledged.
    """
    assert it.disk is not None
    left_bytes = it.dice.choice((2 << 20, 1 << 20, 0))
    print(f" with {left_bytes} bytes left", end="")
    await asyncio.to_thread(it.disk.fill, left_bytes)
    is_down = False
    try:
        await asyncio.sleep(it.dice.uniform(0, 0.3))
        await then(it)
    except SparrowError as error:
        if left_bytes:
            raise
        print(f" ({error.text.strip().rpartition(chr(10))[2][:120]})", end="")
        is_down = True
    finally:
        await asyncio.to_thread(it.disk.free)
    if is_down:
        await asyncio.to_thread(it.broker.restart)


Fault = Callable[[Endured], Awaitable[None]]
_ALWAYS: Sequence[Fault] = (kill, kill, kill, kill_recovery, long_pause, pause_and_kill)
_OFTEN: Sequence[Fault] = (kill, kill, pause, restart)
_OF_DISKS: Sequence[Fault] = (full, full_and_kill, full_and_pause, full_and_restart)

KINDS = len({*_ALWAYS, *_OF_DISKS})
"""Rounds that have each kind of fault once, where there is a disk that can be filled."""
ENDURED: Counter[str] = Counter()
"""The number of faults of each kind in this process, for the summary at the end."""
FAULTS = {*_ALWAYS, *_OFTEN, *_OF_DISKS}


def deck(dice: random.Random, *, has_disk: bool) -> Iterator[Fault]:
    """Yield faults without an end, ten at a time: each kind once before one of them comes again."""
    while True:
        ten = [*_ALWAYS, *(_OF_DISKS if has_disk else _OFTEN)]
        dice.shuffle(ten)
        kinds = list(dict.fromkeys(ten))
        for kind in kinds:
            ten.remove(kind)
        yield from (*kinds, *ten)


async def torment(
    broker: RunningBroker,
    loads: Sequence[Load],
    rounds: int,
    seed: int,
    disk: Disk | None = None,
    *,
    chosen: Callable[[random.Random], Iterator[Fault]] | None = None,
) -> Counter[str]:
    """Run the loads, and cause a fault in each round once every load has made progress since the
    last one. Return the number of faults of each kind.

    Each round is printed; pytest shows that when a test fails. `chosen` replaces the deck of
    faults.
    """
    dice = random.Random(seed)
    it = Endured(broker, disk, dice)
    faults = deck(dice, has_disk=disk is not None) if chosen is None else chosen(dice)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
    for load in loads:
        await load.prepare(broker)
    stop, done, start_s = asyncio.Event(), Counter[str](), time.monotonic()
    async with _named_failures(), asyncio.TaskGroup() as group:
        for load in loads:
            group.create_task(_named(load, broker, stop), name=load.name)
        for fault in (next(faults) for _ in range(rounds)):
            await _until_all_got_on(loads)
            await asyncio.sleep(dice.uniform(0, 0.15))
            began_s = time.monotonic()
            print(f"{began_s - start_s:7.2f} s: {fault.__name__}", end="", flush=True)
            await fault(it)
            print(f", {time.monotonic() - began_s:.2f} s")
            done[fault.__name__] += 1
            ENDURED[fault.__name__] += 1
        await _until_all_got_on(loads)
        stop.set()
    print(f"{time.monotonic() - start_s:7.2f} s: all is settled")
    return done


async def _named(load: Load, broker: RunningBroker, stop: asyncio.Event) -> None:
    try:
        await load.run(broker, stop)
    except Exception as error:
        error.add_note(f"in {load.name}")
        raise


@asynccontextmanager
async def _named_failures() -> AsyncIterator[None]:
    """Say in one sentence what failed in a group of tasks, and in which load."""
    try:
        yield
    except BaseExceptionGroup as group:
        leaves: list[BaseException] = []
        groups: list[BaseExceptionGroup[BaseException]] = [group]
        while groups:
            for each in groups.pop().exceptions:
                if isinstance(each, BaseExceptionGroup):
                    groups.append(each)
                else:
                    leaves.append(each)
        said = [f"{each!r} {' '.join(getattr(each, '__notes__', []))}".rstrip() for each in leaves]
        raise AssertionError("; ".join(said)) from group


async def _until_all_got_on(loads: Sequence[Load]) -> None:
    before = {load.name: load.progress for load in loads}
    began_s = time.monotonic()
    waits: dict[str, float] = {}
    stuck = set(before)
    while stuck:
        for load in [each for each in loads if each.name in stuck and each.progress != before[each.name]]:
            stuck.remove(load.name)
            waits[load.name] = time.monotonic() - began_s
        if time.monotonic() - began_s > _PATIENCE_S:
            raise AssertionError(f"{sorted(stuck)} did not get on within {_PATIENCE_S:g} s")
        await asyncio.sleep(0.005)
    slowest = sorted(waits, key=waits.__getitem__)[-3:]
    print("           got on: " + ", ".join(f"{name} after {waits[name]:.2f} s" for name in slowest))
