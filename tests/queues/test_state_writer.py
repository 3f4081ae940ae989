"""The writer of a queue's changes: each caller learns of the write that has its change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from sparrow.base.errors import DiskFull
from sparrow.broker.queues.persistence.state_writer import StateWriter
from sparrow.meta.store import Put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.base.errors import SparrowError
    from sparrow.broker.queues.persistence.state_store import StateStore
    from sparrow.meta.store import Write


class HeldStore:
    """A store whose writes end when the test says so."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Write]] = []
        self.ends: list[Callable[[SparrowError | None], None]] = []

    def append_then(self, writes: Sequence[Write], then: Callable[[SparrowError | None], None]) -> None:
        self.batches.append(writes)
        self.ends.append(then)


def writer_to(store: HeldStore) -> StateWriter:
    return StateWriter(cast("StateStore", store), lambda: [Put("page", str(len(store.ends)), b"")])


async def test_a_write_that_fails_before_an_earlier_one_ends_fails_its_own_callers_only() -> None:
    store = HeldStore()
    writer = writer_to(store)
    first = writer.flushed("first")
    await asyncio.sleep(0)
    second = writer.flushed("second")
    await asyncio.sleep(0)
    store.ends[1](DiskFull("no room"))
    with pytest.raises(DiskFull):
        await second
    assert not first.done()
    store.ends[0](None)
    assert await first == "first"
    third = writer.flushed("third")
    await asyncio.sleep(0)
    assert [write.key for write in store.batches[2]] == ["1", "2"], "what failed is written again"
    store.ends[2](None)
    assert await third == "third"
    await writer.drop()


async def test_changes_behind_two_writes_are_one_more_when_the_first_ends() -> None:
    store = HeldStore()
    writer = writer_to(store)
    waiting = []
    for number in range(2):
        waiting.append(writer.flushed(number))
        await asyncio.sleep(0)
    waiting += [writer.flushed(2), writer.flushed(3)]
    writer.changed()
    await asyncio.sleep(0)
    assert (len(store.ends), writer.is_writing) == (2, True)
    store.ends[0](None)
    assert await waiting[0] == 0
    await asyncio.sleep(0)
    assert len(store.ends) == 3
    for end in store.ends[1:]:
        end(None)
    assert await asyncio.gather(*waiting) == [0, 1, 2, 3]
    await writer.drop()
