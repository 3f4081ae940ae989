"""The conformance suite of `MetaStore`. Subclass it, and give `stores`, which opens the same store
again and again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import ConditionFailed, InvalidArgument, SparrowError, StorageFailed
from sparrow.meta.checks import MAX_NAME_BYTES, MAX_VALUE_BYTES
from sparrow.meta.store import ABSENT, ANY, Delete, Entry, MetaStore, Put, Write
from tests.repetitions import repetitions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

Entries = dict[tuple[str, str], tuple[bytes, int]]

KINDS = st.sampled_from(["topic", "offset", ""])
KEYS = st.one_of(
    st.sampled_from(["a", "ab", "b", "", "ä", "a\x00b"]),
    st.text(max_size=3).filter(lambda t: t.isprintable()),
)
VERSIONS = st.sampled_from([ANY, ANY, ANY, ABSENT, 1, 2])
WRITES = st.one_of(
    st.builds(Put, KINDS, KEYS, st.binary(max_size=4), VERSIONS), st.builds(Delete, KINDS, KEYS, VERSIONS)
)
BATCHES = st.lists(st.lists(WRITES, min_size=1, max_size=5), max_size=8)


def apply_to_model(model: Entries, batch: list[Write]) -> bool:
    """Apply a batch by the contract, in ten lines. Return True if it was written."""
    after = dict(model)
    for write in batch:
        key = (write.kind, write.key)
        version = after[key][1] if key in after else 0
        if write.if_version not in (ANY, version):
            return False
        after.pop(key, None)
        if isinstance(write, Put):
            after[key] = (write.value, version + 1)
    model.clear()
    model.update(after)
    return True


async def everything(store: MetaStore) -> Entries:
    entries: Entries = {}
    for kind in ("topic", "offset", ""):
        entries |= {(f.kind, f.key): (f.value, f.version) for f in await store.scan(kind)}
    return entries


class MetaStoreConformance:
    """The suite."""

    @pytest.fixture
    def open_store(self) -> Callable[[], MetaStore]:
        """Open the store; after `close`, open it again with its entries."""
        raise NotImplementedError

    @pytest.fixture
    def open_new(self) -> Callable[[], MetaStore]:
        """Open another, empty store at each call."""
        raise NotImplementedError

    @pytest.fixture
    async def store(self, open_store: Callable[[], MetaStore]) -> AsyncIterator[MetaStore]:
        store = open_store()
        yield store
        await store.close()

    async def test_a_entry_reads_as_written(self, store: MetaStore) -> None:
        await store.write([Put("topic", "orders", b"\x00\xff")])
        assert await store.get("topic", "orders") == Entry("topic", "orders", b"\x00\xff", 1)

    async def test_a_missing_entry_is_none(self, store: MetaStore) -> None:
        assert await store.get("topic", "orders") is None
        assert await store.scan("topic") == []

    async def test_each_write_raises_the_version(self, store: MetaStore) -> None:
        for value in (b"1", b"2", b"3"):
            await store.write([Put("topic", "orders", value)])
        assert await store.get("topic", "orders") == Entry("topic", "orders", b"3", 3)

    async def test_a_key_made_again_starts_at_version_one(self, store: MetaStore) -> None:
        await store.write([Put("topic", "orders", b"1"), Put("topic", "orders", b"2")])
        await store.write([Delete("topic", "orders")])
        await store.write([Put("topic", "orders", b"3", if_version=ABSENT)])
        assert await store.get("topic", "orders") == Entry("topic", "orders", b"3", 1)

    async def test_deleting_a_missing_entry_is_no_error(self, store: MetaStore) -> None:
        await store.write([Delete("topic", "orders"), Delete("topic", "orders", if_version=ABSENT)])
        assert await store.get("topic", "orders") is None

    async def test_kinds_do_not_mix(self, store: MetaStore) -> None:
        await store.write([Put("topic", "x", b"t"), Put("user", "x", b"u")])
        assert [entry.value for entry in await store.scan("user")] == [b"u"]

    async def test_scan_gives_keys_of_the_prefix_in_order(self, store: MetaStore) -> None:
        keys = ["b", "a/2", "a/10", "a", "a0", "a/", "ä", "𝄞", "\uffff"]
        await store.write([Put("k", key, b"") for key in keys])
        assert [entry.key for entry in await store.scan("k", "a/")] == ["a/", "a/10", "a/2"]
        assert [entry.key for entry in await store.scan("k")] == sorted(keys)

    async def test_scan_takes_its_prefix_literally(self, store: MetaStore) -> None:
        await store.write([Put("k", key, b"") for key in ("100%", "1000", "a_b", "axb", "a*", "ab")])
        assert [entry.key for entry in await store.scan("k", "100%")] == ["100%"]
        assert [entry.key for entry in await store.scan("k", "a_")] == ["a_b"]
        assert [entry.key for entry in await store.scan("k", "a*")] == ["a*"]

    @pytest.mark.parametrize(
        "second",
        [
            Put("k", "a", b"x", if_version=ABSENT),
            Put("k", "a", b"x", if_version=2),
            Put("k", "new", b"x", if_version=1),
            Delete("k", "a", if_version=2),
            Delete("k", "a", if_version=ABSENT),
            Delete("k", "new", if_version=1),
        ],
    )
    async def test_a_failed_condition_writes_nothing_of_its_batch(
        self, store: MetaStore, second: Write
    ) -> None:
        await store.write([Put("k", "a", b"old")])
        with pytest.raises(ConditionFailed):
            await store.write([Put("k", "b", b"new"), second, Put("k", "c", b"new")])
        assert await store.scan("k") == [Entry("k", "a", b"old", 1)]

    async def test_a_failed_condition_rejects_its_own_batch_only(self, store: MetaStore) -> None:
        batches = [[Put("k", f"{n}", b""), Put("k", "one", b"%d" % n, if_version=ABSENT)] for n in range(5)]
        outcomes = await asyncio.gather(*map(store.write, batches), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None)] + [ConditionFailed] * 4
        assert [entry.key for entry in await store.scan("k")] == ["0", "one"]

    async def test_conditions_see_earlier_writes_of_their_batch(self, store: MetaStore) -> None:
        await store.write([Put("k", "a", b"1", if_version=ABSENT), Put("k", "a", b"2", if_version=1)])
        assert await store.get("k", "a") == Entry("k", "a", b"2", 2)

    async def test_one_of_many_compare_and_sets_wins(self, store: MetaStore) -> None:
        await store.write([Put("lease", "group", b"none")])
        claims = (store.write([Put("lease", "group", b"%d" % n, if_version=1)]) for n in range(50))
        outcomes = await asyncio.gather(*claims, return_exceptions=True)
        assert sum(outcome is None for outcome in outcomes) == 1
        assert (await store.get("lease", "group")).version == 2

    async def test_writes_asked_for_first_happen_first(self, store: MetaStore) -> None:
        await asyncio.gather(*(store.write([Put("k", "a", b"%d" % n)]) for n in range(100)))
        assert await store.get("k", "a") == Entry("k", "a", b"99", 100)

    async def test_an_empty_batch_is_done_at_once(self, store: MetaStore) -> None:
        await store.write([])
        assert await store.scan("") == []

    async def test_a_cancelled_caller_disturbs_no_other(self, store: MetaStore) -> None:
        tasks = [asyncio.ensure_future(store.write([Put("k", f"{n}", b"")])) for n in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [n for n, outcome in enumerate(outcomes) if outcome is not None] == [3]
        assert {"0", "9"} <= {entry.key for entry in await store.scan("k")}

    @pytest.mark.parametrize(
        "write",
        [
            Put("k", "x" * (MAX_NAME_BYTES + 1), b""),
            Put("k", "\ud800", b""),
            Delete("\udfff", "k"),
            Put("k", "a", bytes(MAX_VALUE_BYTES + 1)),
        ],
        ids=["long name", "surrogate", "surrogate kind", "large value"],
    )
    async def test_bad_names_and_values_are_refused(self, store: MetaStore, write: Write) -> None:
        with pytest.raises(InvalidArgument):
            await store.write([Put("k", "b", b""), write])
        assert await store.scan("k") == []

    async def test_written_entries_are_there_when_opened_again(
        self, open_store: Callable[[], MetaStore]
    ) -> None:
        store = open_store()
        await store.write([Put("k", "a", b"1"), Put("k", "b", b"2")])
        await store.write([Put("k", "a", b"3"), Delete("k", "b")])
        await store.close()
        store = open_store()
        assert await store.scan("k") == [Entry("k", "a", b"3", 2)]
        await store.close()

    async def test_close_finishes_pending_writes(self, open_store: Callable[[], MetaStore]) -> None:
        store = open_store()
        waiting = [asyncio.ensure_future(store.write([Put("k", f"{n}", b"")])) for n in range(20)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*waiting)
        store = open_store()
        assert len(await store.scan("k")) == 20
        await store.close()

    async def test_a_closed_store_refuses_and_may_be_closed_again(
        self, open_store: Callable[[], MetaStore]
    ) -> None:
        store = open_store()
        await store.close()
        await store.close()
        for call in (store.write([Put("k", "a", b"")]), store.get("k", "a"), store.scan("k")):
            with pytest.raises(StorageFailed):
                await call

    @pytest.mark.slow
    def test_any_history_matches_a_dictionary(self, open_new: Callable[[], MetaStore]) -> None:
        @settings(max_examples=repetitions(25), deadline=None)
        @given(rounds=st.lists(BATCHES, max_size=4))
        def check(rounds: list[list[list[Write]]]) -> None:
            asyncio.run(matches_model(open_new(), rounds))

        check()


async def matches_model(store: MetaStore, rounds: list[list[list[Write]]]) -> None:
    """The batches of one round are written at the same time; they happen in order."""
    model: Entries = {}
    for batches in rounds:
        expected = [apply_to_model(model, batch) for batch in batches]
        outcomes = await asyncio.gather(*map(_succeeds(store), batches))
        assert outcomes == expected
        assert await everything(store) == model
    await store.close()


def _succeeds(store: MetaStore) -> Callable[[list[Write]], Awaitable[bool]]:
    async def write(batch: list[Write]) -> bool:
        try:
            await store.write(batch)
        except SparrowError as error:
            assert isinstance(error, ConditionFailed)  # noqa: PT017 - the only failure there may be
            return False
        return True

    return write
