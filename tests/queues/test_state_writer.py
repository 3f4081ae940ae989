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


async def two_writes_of_a_page(store: HeldStore) -> tuple[StateWriter, asyncio.Future[None]]:
    """Return a writer with two writes of one page under way, and the future of the newer one."""
    pages: list[Write] = []
    writer = StateWriter(cast("StateStore", store), lambda: [pages.pop()] if pages else [])
    for value in (b"old", b"new"):
        pages.append(Put("page", "p", value))
        flushed = writer.flushed()
        await asyncio.sleep(0)
    assert [len(batch) for batch in store.batches] == [1, 1]
    return writer, flushed


def retried(store: HeldStore) -> list[bytes]:
    return [write.value for batch in store.batches[2:] for write in batch if isinstance(write, Put)]


async def test_a_write_that_failed_is_not_tried_again_over_a_newer_one_that_is_stored() -> None:
    store = HeldStore()
    writer, newer = await two_writes_of_a_page(store)
    store.ends[0](DiskFull("no room"))
    store.ends[1](None)
    await newer
    writer.changed()
    await asyncio.sleep(0)
    assert retried(store) == []
    await writer.drop()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_the_newer_of_two_writes_that_failed_is_tried_again(order: tuple[int, int]) -> None:
    store = HeldStore()
    writer, newer = await two_writes_of_a_page(store)
    for number in order:
        store.ends[number](DiskFull("no room"))
    with pytest.raises(DiskFull):
        await newer
    writer.changed()
    await asyncio.sleep(0)
    assert retried(store) == [b"new"]
    store.ends[2](None)
    await writer.drop()


async def test_close_and_drop_wait_for_the_same_writes() -> None:
    store = HeldStore()
    writer, _ = await two_writes_of_a_page(store)
    closing = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0)
    dropping = asyncio.ensure_future(writer.drop())
    await asyncio.sleep(0)
    for end in store.ends:
        end(None)
    async with asyncio.timeout(10):
        await asyncio.gather(closing, dropping)
