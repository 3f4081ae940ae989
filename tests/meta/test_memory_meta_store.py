"""The fake keeps the contract, and fails on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import DiskFull, StorageFailed
from sparrow.meta.memory import Key, MemoryMetaStore, MetaFaults
from sparrow.meta.store import Delete, Entry, MetaStore, Put
from tests.conformance.meta_store import MetaStoreConformance

if TYPE_CHECKING:
    from collections.abc import Callable


class TestMemoryMetaStore(MetaStoreConformance):
    @pytest.fixture
    def open_store(self) -> Callable[[], MetaStore]:
        entries: dict[Key, Entry] = {}
        return lambda: MemoryMetaStore(entries)

    @pytest.fixture
    def open_new(self) -> Callable[[], MetaStore]:
        return MemoryMetaStore


async def outcomes_of(store: MemoryMetaStore, count: int) -> list[str]:
    outcomes = []
    for n in range(count):
        try:
            await store.write([Put("k", f"{n}", b"")])
            outcomes.append("ok")
        except (DiskFull, StorageFailed) as error:
            outcomes.append(error.code)
    return outcomes


async def test_the_same_seed_fails_the_same_writes() -> None:
    faults = MetaFaults(seed=7, disk_full=0.3)
    first = await outcomes_of(MemoryMetaStore(faults=faults), 50)
    assert first == await outcomes_of(MemoryMetaStore(faults=faults), 50)
    assert set(first) == {"ok", "DISK_FULL"}
    assert first != await outcomes_of(MemoryMetaStore(faults=MetaFaults(seed=8, disk_full=0.3)), 50)


async def test_a_refused_write_leaves_nothing() -> None:
    store = MemoryMetaStore(faults=MetaFaults(seed=7, disk_full=0.3))
    outcomes = await outcomes_of(store, 50)
    kept = {int(entry.key) for entry in await store.scan("k")}
    assert kept == {n for n, outcome in enumerate(outcomes) if outcome == "ok"}


async def test_after_a_storage_failure_nothing_more_is_written_but_all_is_read() -> None:
    store = MemoryMetaStore(faults=MetaFaults(seed=3, storage_failed=0.2))
    outcomes = await outcomes_of(store, 50)
    first_failure = outcomes.index("STORAGE_FAILED")
    assert first_failure > 0
    assert set(outcomes[first_failure:]) == {"STORAGE_FAILED"}
    assert len(await store.scan("k")) == first_failure


async def test_a_full_store_refuses_puts_and_takes_deletes() -> None:
    store = MemoryMetaStore()
    await store.write([Put("k", "a", b"")])
    store.full = True
    with pytest.raises(DiskFull):
        await store.write([Put("k", "b", b"")])
    await store.write([Delete("k", "a")])
    store.full = False
    await store.write([Put("k", "b", b"")])
    assert [entry.key for entry in await store.scan("k")] == ["b"]
