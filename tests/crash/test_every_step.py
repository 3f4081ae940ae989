"""Power is lost at every step of a broker's life, the log's steps and the meta store's alike: what
was promised until then holds.

A life is filmed: before each call that changes the disk, what the disk holds and what had been
promised is kept. Then each picture loses its power, by a seed (or the process is killed, and the
power fails later); a broker starts on what is left, and the stories say whether it is what they
were promised.

`make test` looks at some of the pictures, `make crash` (SPARROW_CRASH_ROUNDS) at all, and in every
way.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pytest

from sparrow.base.clock import ManualClock
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.storage.options import StorageOptions
from tests.crash.machine.disk import Disk
from tests.crash.machine.sqlite_vfs import sqlite_on, why_unavailable
from tests.crash.machine.stores import log_store, meta_store
from tests.crash.stories import WALL_MS, Story
from tests.crash.stories.entries import Entries
from tests.crash.stories.jobs import Family, Jobs
from tests.crash.stories.keys import Keys
from tests.crash.stories.records import Records
from tests.crash.stories.sinks import Sinks
from tests.crash.stories.transactions import Transactions
from tests.repetitions import CRASH_ROUNDS

ROUNDS = CRASH_ROUNDS
SEED = int(os.environ.get("SPARROW_CRASH_SEED", "1"))
PICTURES = 20 if ROUNDS <= 10 else 1 << 30
"""The number of pictures of each life that are checked."""

_NEVER_MS = 1 << 40
_QUIET = BrokerConfig(tick_interval_ms=_NEVER_MS, retention_check_interval_ms=_NEVER_MS, default_partitions=1)
_ON_THE_LOOP = StorageOptions(flush_threads=0, worker_threads=0, reserve_bytes=0)
_WAL_BYTES = 64 << 10
"""Small, so that checkpoints come often."""
_LATER_S = 1000.0

STORIES: Sequence[Callable[[], Story]] = (Records, Entries, Jobs, Family, Transactions, Sinks, Keys)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "-"),
]


@dataclass(frozen=True)
class Picture:
    """The disk before one of its changes, and how long each story's notes were."""

    call: int
    packed_image: bytes
    noted: tuple[int, ...]


class Film(Disk):
    """Takes a picture before each change, while it is rolling."""

    def __init__(self, stories: Sequence[Story], pictures: list[Picture]) -> None:
        super().__init__(SEED)
        self._stories = stories
        self._pictures = pictures
        self.is_rolling = True

    def _count_call(self, path: str) -> None:
        super()._count_call(path)
        if not self.is_rolling:
            return
        noted = tuple(len(story.notes.entries) for story in self._stories)
        self._pictures.append(Picture(self.calls, zlib.compress(self.image(), 1), noted))


async def start(disk: Disk, vfs: str, clock: ManualClock) -> Broker:
    logs = log_store(disk, clock, _ON_THE_LOOP)
    broker = Broker(
        config=_QUIET, clock=clock, log_store=logs, meta_store=meta_store(disk, vfs, wal_bytes=_WAL_BYTES)
    )
    await broker.start()
    return broker


async def filmed(stories: Sequence[Story], kind: type[Film] = Film) -> list[Picture]:
    """Return a film from the first start on an empty disk, a clean stop, the first act, a kill and
    the second act, to another clean stop.
    """
    pictures: list[Picture] = []
    film, clock = kind(stories, pictures), ManualClock(WALL_MS)
    with sqlite_on(film) as vfs:
        await (await start(film, vfs, clock)).close()
        broker = await start(film, vfs, clock)
        lives = [story.live(broker) for story in stories]
        await asyncio.gather(*(anext(life) for life in lives))
        film.is_rolling = False
        left = film.image()
        await broker.close()
    film = kind(stories, pictures)
    film.load(left)
    with sqlite_on(film) as vfs:
        broker = await start(film, vfs, clock)
        await asyncio.gather(*(_to_the_end(life, broker) for life in lives))
        await broker.close()
    return pictures


async def _to_the_end(life: AsyncGenerator[None, Broker], broker: Broker) -> None:
    with suppress(StopAsyncIteration):
        await life.asend(broker)
        raise AssertionError("a story has more than two acts")


def after_kill(image: bytes) -> Disk:
    disk = Disk()
    disk.load(image)
    return disk


def after_power_failure(image: bytes, seed: int) -> Disk:
    disk = after_kill(image)
    disk._rng.seed(seed)
    disk.crash()
    return disk


_TURNS = (
    (False, False, False),
    (True, True, False),
    (False, True, True),
    (True, True, True),
    (False, True, False),
)
"""Choices of a crash: a kill instead of a power failure; a second failure, of power; the second one
right after the start.
"""


async def look_at(picture: Picture, stories: Sequence[Story], turn: int) -> None:
    """Check a picture after a power failure or a kill, and mostly after another power failure."""
    kills, again, at_once = _TURNS[turn]
    seed = (SEED << 32) + 2 * picture.call
    image, clock = zlib.decompress(picture.packed_image), ManualClock(WALL_MS)
    disk = after_kill(image) if kills else after_power_failure(image, seed)
    started, looked = await look(disk, clock, picture, stories)
    if again:
        disk = after_power_failure(started if at_once else looked, seed + 1)
        await look(disk, clock, picture, stories)


async def look(
    disk: Disk, clock: ManualClock, picture: Picture, stories: Sequence[Story]
) -> tuple[bytes, bytes]:
    """Start and check; return the disk as it was in between and at the end."""
    clock.advance(_LATER_S)
    with sqlite_on(disk) as vfs:
        broker = await start(disk, vfs, clock)
        try:
            started = disk.image()
            for story, noted in zip(stories, picture.noted, strict=True):
                await story.check(broker, story.notes.upto(noted))
            return started, disk.image()
        finally:
            await broker.close()


async def run(stories: Sequence[Story]) -> None:
    pictures = await filmed(stories)
    stride = max(1, len(pictures) // PICTURES)
    for picture in pictures[SEED % stride :: stride]:
        for turn in range(len(_TURNS)) if stride == 1 else (picture.call % len(_TURNS),):
            try:
                await look_at(picture, stories, turn)
            except BaseException as error:
                error.add_note(f"stopped before change {picture.call} of {len(pictures)}, turn {turn}")
                raise
    print(f"{len(pictures)} changes, every {stride}. looked at")


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.lower())
async def test_promises_hold_whenever_power_is_lost(story: Callable[[], Story]) -> None:
    await run([story()])


async def test_promises_hold_with_all_clients_at_the_same_time() -> None:
    await run([story() for story in STORIES])
