"""The conformance suite of `Ledger`. Subclass it, and give `connect`, which returns one more
connection to the same ledger, and `age_nodes`, which lets the rows of all nodes expire.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from sparrow.cluster.errors import LedgerRefused
from sparrow.cluster.ledger import MAX_OBJECT_AGE_MS, Commit, EntryRow, Ledger, ShardContent

if TYPE_CHECKING:
    from sparrow.cluster.ledger import Taken

Connect = Callable[[], Awaitable[Ledger]]
AgeNodes = Callable[[], Awaitable[None]]
TTL_MS = 10_000
ADDRESSES = {"kafka": "a:9092"}


async def joined(ledger: Ledger, name: str = "a") -> int:
    return await ledger.join(uuid.uuid4(), {"kafka": f"{name}:9092"}, TTL_MS)


async def taken(ledger: Ledger, node: int, dead: int | None = None) -> Taken:
    found = await ledger.take(0, node, dead)
    assert found is not None
    return found


def entries(content: ShardContent) -> dict[tuple[bytes, bytes], tuple[bytes, int]]:
    return {(each.kind, each.key): (each.value, each.version) for each in content.entries}


class LedgerConformance:
    """The suite."""

    @pytest.fixture
    def connect(self) -> Connect:
        raise NotImplementedError

    @pytest.fixture
    def age_nodes(self) -> AgeNodes:
        raise NotImplementedError

    async def test_all_connections_see_one_cluster(self, connect: Connect) -> None:
        first, second = await connect(), await connect()
        check = await first.open()
        assert check.cluster_id == (await second.open()).cluster_id
        assert first.location

    async def test_the_first_place_of_objects_counts(self, connect: Connect) -> None:
        first, second = await connect(), await connect()
        assert (await first.open()).objects == ""
        assert await first.note_objects("s3://one/a") == "s3://one/a"
        assert await second.note_objects("s3://two/b") == "s3://one/a"
        assert (await second.open()).objects == "s3://one/a"

    async def test_commits_have_numbers_without_holes(self, connect: Connect) -> None:
        ledger = await connect()
        epoch = (await taken(ledger, await joined(ledger))).epoch
        assert await ledger.commit(0, epoch, Commit(1, 5, b"one", b"bytes"))
        assert not await ledger.commit(0, epoch, Commit(1, 5, b"again", b"bytes"))
        assert not await ledger.commit(0, epoch, Commit(3, 5, b"three", b"bytes"))
        assert await ledger.commit(0, epoch, Commit(2, 6, b"two", None, "w/two", _now(await ledger.open())))
        rows = (await ledger.load(0)).wal
        assert [(r.seq, r.epoch, r.at_ms, r.manifest, r.object_key, r.payload_bytes) for r in rows] == [
            (1, epoch, 5, b"one", None, 5),
            (2, epoch, 6, b"two", "w/two", 0),
        ]
        assert await ledger.payload(0, 1) == b"bytes"
        assert await ledger.payload(0, 2) is None
        assert await ledger.payload(0, 9) is None

    async def test_a_commit_without_batches_leaves_no_row(self, connect: Connect) -> None:
        ledger = await connect()
        epoch = (await taken(ledger, await joined(ledger))).epoch
        assert await ledger.commit(0, epoch, Commit(1, 5, puts=[EntryRow(b"k", b"a", b"v", 1)]))
        content = await ledger.load(0)
        assert content.wal == []
        assert entries(content) == {(b"k", b"a"): (b"v", 1)}

    async def test_entries_are_put_replaced_and_deleted(self, connect: Connect) -> None:
        ledger = await connect()
        epoch = (await taken(ledger, await joined(ledger))).epoch
        odd = b"\x00\xff"
        puts = [EntryRow(b"k", b"a", b"1", 1), EntryRow(b"k", odd, b"", 1), EntryRow(b"", b"", b"3", 1)]
        assert await ledger.commit(0, epoch, Commit(1, 0, puts=puts))
        again = [EntryRow(b"k", b"a", b"2", 2)]
        assert await ledger.commit(0, epoch, Commit(2, 0, puts=again, deletes=[(b"", b""), (b"k", b"no")]))
        assert entries(await ledger.load(0)) == {(b"k", b"a"): (b"2", 2), (b"k", odd): (b"", 1)}
        assert {row.key for row in await (await connect()).entries(0, [b"k", b"x"])} == {b"a", odd}
        assert not await ledger.entries(0, [b"x"])

    async def test_an_earlier_epoch_commits_nothing(self, connect: Connect) -> None:
        old, new = await connect(), await connect()
        first = await taken(old, await joined(old))
        dead = (await old.status()).shards[0].owner
        second = await taken(new, await joined(new, "b"), dead)
        assert second.epoch > first.epoch
        assert not await old.commit(
            0, first.epoch, Commit(1, 0, b"m", b"b", puts=[EntryRow(b"k", b"", b"", 1)])
        )
        assert await new.load(0) == ShardContent([], [])
        assert await new.commit(0, second.epoch, Commit(1, 0, b"m", b"b"))

    async def test_a_shard_of_a_live_holder_is_not_taken(self, connect: Connect, age_nodes: AgeNodes) -> None:
        old, new = await connect(), await connect()
        owner, other = await joined(old), await joined(new, "b")
        first = await taken(old, owner)
        assert await new.take(0, other) is None
        assert await new.take(0, other, dead=other + 100) is None
        assert (await taken(old, owner)).epoch == first.epoch + 1
        await age_nodes()
        assert await new.renew(other, TTL_MS, ADDRESSES)
        assert (await taken(new, other)).epoch == first.epoch + 2
        assert await old.renew(owner, TTL_MS, ADDRESSES)
        assert await old.take(0, owner) is None

    async def test_a_row_says_what_its_node_knows_of_the_objects(self, connect: Connect) -> None:
        ledger = await connect()
        node = await joined(ledger)
        assert (await ledger.status()).nodes[0].objects == ""
        assert await ledger.renew(node, TTL_MS, ADDRESSES, objects="away")
        assert (await ledger.status()).nodes[0].objects == "away"
        assert await ledger.renew(node, TTL_MS, ADDRESSES)
        assert (await ledger.status()).nodes[0].objects == ""

    async def test_a_node_is_asked_to_hand_over_until_there_is_another_owner(self, connect: Connect) -> None:
        old, new = await connect(), await connect()
        owner, other = await joined(old), await joined(new, "b")
        await taken(old, owner)
        assert not await new.ask_handover(0, other)
        assert (await old.status()).shards[0].handover is None
        assert await new.ask_handover(0, owner)
        assert (await old.status()).shards[0].handover == owner
        again = await taken(old, owner)
        assert (await old.status()).shards[0].handover == owner, "a take of the own shard answers nothing"
        assert await old.release(0, again.epoch)
        await taken(new, other)
        assert (await old.status()).shards[0].handover is None

    async def test_the_last_change_of_the_owner_is_known(self, connect: Connect, age_nodes: AgeNodes) -> None:
        old, new = await connect(), await connect()
        owner, other = await joined(old), await joined(new, "b")
        assert (await old.status()).shards[0].taken_ms is None
        await taken(old, owner)
        await old.note_served(0, owner, 700)
        again = await taken(old, owner)
        first = (await old.status()).shards[0]
        assert (first.taken_from, first.takeover_ms) == (None, 700)
        await old.release(0, again.epoch)
        await taken(new, other)
        await old.note_served(0, owner, 900)
        second = (await old.status()).shards[0]
        assert (second.taken_from, second.takeover_ms) == (owner, None)
        assert second.taken_ms is not None
        assert second.taken_ms >= 0
        await age_nodes()
        assert await old.renew(owner, TTL_MS, ADDRESSES)
        await taken(old, owner)
        assert (await old.status()).shards[0].taken_from == other

    async def test_a_renewal_keeps_the_shard(self, connect: Connect, age_nodes: AgeNodes) -> None:
        old, new = await connect(), await connect()
        owner, other = await joined(old), await joined(new, "b")
        await taken(old, owner)
        await age_nodes()
        assert await old.renew(owner, TTL_MS, ADDRESSES)
        assert await new.take(0, other) is None
        assert not await old.renew(owner + 100, TTL_MS, ADDRESSES)

    async def test_a_take_tells_the_last_commit(self, connect: Connect) -> None:
        ledger = await connect()
        node = await joined(ledger)
        found = await taken(ledger, node)
        assert found.seq == 0
        for seq in range(1, 4):
            assert await ledger.commit(0, found.epoch, Commit(seq, 0, b"m", b"b"))
        again = await taken(ledger, node)
        assert (again.epoch, again.seq) == (found.epoch + 1, 3)

    async def test_a_take_concurrent_with_a_commit_knows_its_end(self, connect: Connect) -> None:
        old, new = await connect(), await connect()
        owner, other = await joined(old), await joined(new, "b")
        epoch = (await taken(old, owner)).epoch
        for seq in range(1, 20):
            committed, found = await asyncio.gather(
                old.commit(0, epoch, Commit(seq, 0, b"m", b"b" * 1000)), taken(new, other, owner)
            )
            assert found.seq == (seq if committed else seq - 1)
            if not committed:
                break
            assert not await old.commit(0, epoch, Commit(seq + 1, 0, b"m", b"b"))
            epoch = (await taken(old, owner, other)).epoch
        rows = (await new.load(0)).wal
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))

    async def test_a_released_shard_is_anybodys(self, connect: Connect) -> None:
        old, new = await connect(), await connect()
        owner, other = await joined(old), await joined(new, "b")
        epoch = (await taken(old, owner)).epoch
        assert await old.release(0, epoch)
        assert not await old.release(0, epoch)
        assert not await old.commit(0, epoch, Commit(1, 0, b"m", b"b"))
        assert (await taken(new, other)).epoch == epoch + 2

    async def test_a_node_that_left_owns_nothing(self, connect: Connect) -> None:
        old, new = await connect(), await connect()
        owner, other = await joined(old), await joined(new, "b")
        await taken(old, owner)
        await old.leave(owner)
        await taken(new, other)

    async def test_status_names_nodes_and_owner(self, connect: Connect) -> None:
        first, second = await connect(), await connect()
        owner, other = await joined(first), await joined(second, "b")
        found = await taken(first, owner)
        await first.commit(0, found.epoch, Commit(1, 0, b"m", b"b"))
        await second.renew(other, TTL_MS, ADDRESSES, draining=True)
        await first.renew(owner, TTL_MS, ADDRESSES)
        status = await second.status()
        nodes = {node.id: node for node in status.nodes}
        assert nodes[owner].addresses == {"kafka": "a:9092"}
        assert (nodes[owner].is_connected, nodes[owner].is_draining) == (True, False)
        assert nodes[other].is_draining
        assert 0 < nodes[owner].expires_in_ms <= TTL_MS
        assert [(s.id, s.epoch, s.owner, s.seq) for s in status.shards] == [(0, found.epoch, owner, 1)]
        assert status.up_ms > 0
        await first.close()
        async with asyncio.timeout(10):
            while {n.id: n for n in (await second.status()).nodes}[owner].is_connected:
                await asyncio.sleep(0.01)

    async def test_a_node_that_joined_again_holds_the_lock_of_its_new_row(self, connect: Connect) -> None:
        ledger = await connect()
        for name in "ab":
            node = await joined(ledger, name)
            assert await ledger.renew(node, TTL_MS, ADDRESSES)
            assert ledger.holds_lock
            assert {each.id: each for each in (await ledger.status()).nodes}[node].is_connected

    async def test_a_shard_that_another_node_had_meanwhile_is_not_taken_again(
        self, connect: Connect, age_nodes: AgeNodes
    ) -> None:
        old, new = await connect(), await connect()
        owner, other = await joined(old), await joined(new, "b")
        first = await taken(old, owner)
        again = await old.retake(0, owner)
        assert again is not None
        assert (again.epoch, again.seq) == (first.epoch + 1, first.seq)
        await age_nodes()
        second = await taken(new, other)
        assert await old.retake(0, owner) is None
        assert await new.release(0, second.epoch)
        assert await old.retake(0, owner) is None, (
            "it is free, and has commits that its former owner never saw"
        )

    async def test_an_old_object_is_not_committed(self, connect: Connect) -> None:
        ledger = await connect()
        epoch = (await taken(ledger, await joined(ledger))).epoch
        now_ms = _now(await ledger.open())
        too_old = Commit(1, 0, b"m", None, "w/old", now_ms - MAX_OBJECT_AGE_MS - 1000)
        with pytest.raises(LedgerRefused, match="w/old"):
            await ledger.commit(0, epoch, too_old)
        assert await ledger.commit(0, epoch, Commit(1, 0, b"m", None, "w/new", now_ms - 1000))

    async def test_its_time_is_that_of_its_check_at_the_start(self, connect: Connect) -> None:
        ledger = await connect()
        check = await ledger.open()
        assert 0 <= await ledger.now_ms() - check.now_ms < 60_000

    async def test_objects_of_dropped_rows_become_garbage(self, connect: Connect) -> None:
        ledger = await connect()
        epoch = (await taken(ledger, await joined(ledger))).epoch
        now_ms = _now(await ledger.open())
        for seq in range(1, 4):
            assert await ledger.commit(0, epoch, Commit(seq, 0, b"m", None, f"w/{seq}", now_ms))
        assert await ledger.commit(0, epoch, Commit(4, 0, b"m", b"inline"))
        assert await ledger.commit(0, epoch, Commit(5, 0, drops=[1, 3, 4, 77]))
        assert [row.seq for row in (await ledger.load(0)).wal] == [2]
        assert sorted(await ledger.garbage(0, 10)) == ["w/1", "w/3"]
        assert len(await ledger.garbage(0, 1)) == 1
        assert await ledger.named("w/") == {"w/1", "w/2", "w/3"}
        assert await ledger.named("w/2") == {"w/2"}
        assert await ledger.named("x/") == set()
        assert await ledger.garbage(60_000, 10) == []
        await ledger.forget_garbage(["w/1"])
        assert await ledger.garbage(0, 10) == ["w/3"]


def _now(check: object) -> int:
    now_ms: int = check.now_ms  # type: ignore[attr-defined]
    return now_ms
