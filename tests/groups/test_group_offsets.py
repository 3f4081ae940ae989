"""Committed offsets: durable when acknowledged, read as committed, kept apart by group, topic and
partition.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import DirectoryUnreadable, DiskFull
from sparrow.broker.groups.offsets import OffsetAndMetadata, Offsets, encode_key
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Put

TEN = OffsetAndMetadata(10, "note", 3, 1_000)
TWENTY = OffsetAndMetadata(20, committed_at_ms=2_000)
A0 = ("a", 0)
A1 = ("a", 1)
B0 = ("b", 0)


async def loaded(meta: MemoryMetaStore) -> Offsets:
    offsets = Offsets(meta)
    await offsets.load()
    return offsets


async def test_commits_are_read_as_committed_and_survive_a_restart() -> None:
    meta = MemoryMetaStore()
    offsets = await loaded(meta)
    await offsets.commit("g", {A0: TEN, B0: TWENTY})
    for store in (offsets, await loaded(meta)):
        assert store.get("g", A0) == TEN
        assert store.of_group("g") == {A0: TEN, B0: TWENTY}
        assert store.get("other", A0) is None
        assert store.last_commit_ms("g") == 2_000


async def test_a_commit_that_was_refused_is_not_read() -> None:
    meta = MemoryMetaStore()
    offsets = await loaded(meta)
    await offsets.commit("g", {A0: TEN})
    meta.full = True
    with pytest.raises(DiskFull):
        await offsets.commit("g", {A0: TWENTY})
    assert offsets.get("g", A0) == TEN


async def test_the_last_of_many_commits_stands() -> None:
    meta = MemoryMetaStore()
    offsets = await loaded(meta)
    await asyncio.gather(*(offsets.commit("g", {A0: OffsetAndMetadata(n)}) for n in range(50)))
    assert offsets.get("g", A0) == OffsetAndMetadata(49)
    assert (await loaded(meta)).get("g", A0) == OffsetAndMetadata(49)


async def test_a_cancelled_commit_leaves_memory_and_store_alike() -> None:
    meta = MemoryMetaStore()
    offsets = await loaded(meta)
    commit = asyncio.ensure_future(offsets.commit("g", {A0: TEN}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    commit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await commit
    await offsets._writing.settle()
    assert offsets.of_group("g") == (await loaded(meta)).of_group("g") == {A0: TEN}


async def test_deleted_offsets_are_gone_for_good() -> None:
    meta = MemoryMetaStore()
    offsets = await loaded(meta)
    await offsets.commit("g", {A0: TEN, A1: TEN, B0: TEN})
    await offsets.delete("g", [A0, ("missing", 0)])
    assert (await loaded(meta)).of_group("g") == {A1: TEN, B0: TEN}
    await offsets.delete("g")
    assert "g" not in offsets.groups()
    assert meta.entries == {}


async def test_a_deleted_topic_takes_its_offsets_along_in_all_groups() -> None:
    meta = MemoryMetaStore()
    offsets = await loaded(meta)
    await offsets.commit("g", {A0: TEN, B0: TEN})
    await offsets.commit("h", {A1: TEN})
    await offsets.delete_topics(lambda topic: topic == "a")
    for store in (offsets, await loaded(meta)):
        assert store.of_group("g") == {B0: TEN}
        assert set(store.groups()) == {"g"}


@pytest.mark.parametrize(
    ("key", "value"), [('["g"]', b"\x91\x0a"), ('["g","a",0]', b"\xc1"), ("g/a/0", b"\x91\x0a")]
)
async def test_a_entry_that_is_no_offset_is_reported(key: str, value: bytes) -> None:
    meta = MemoryMetaStore()
    await meta.write([Put("offset", key, value)])
    with pytest.raises(DirectoryUnreadable, match="backup"):
        await loaded(meta)


async def test_entries_of_version_1_are_read() -> None:
    """The bytes are those of the first release; later entries may have more fields."""
    meta = MemoryMetaStore()
    await meta.write([Put("offset", '["g","a",1]', b"\x94\x0a\xa4note\x03\xcd\x03\xe8")])
    await meta.write([Put("offset", '["g","a",0]', b"\x96\x0a\xa4note\x03\xcd\x03\xe8\xff\xc3")])
    offsets = await loaded(meta)
    assert offsets.of_group("g") == {A0: TEN, A1: TEN}


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.tuples(NAMES, NAMES, st.integers(0, 99)), st.tuples(NAMES, NAMES, st.integers(0, 99)))
def test_different_names_have_different_keys(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    same_key = encode_key(one[0], one[1:]) == encode_key(other[0], other[1:])
    assert same_key == (one == other)
