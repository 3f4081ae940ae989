"""Random schedules of takes, commits and losses: PostgreSQL and the model answer alike, and keep
alike.

A loss in PostgreSQL is a real one: the connection of a commit ends while that waits for the row of
the shard. The next take tells whether the commit happened, and the model is given the same loss.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from sparrow.base.clock import ManualClock
from sparrow.cluster.errors import LedgerRefused, OutcomeUnknown
from sparrow.cluster.ledger import MAX_OBJECT_AGE_MS, Commit, EntryRow, Ledger, Taken
from sparrow.cluster.ledger_model import LedgerFaults, LedgerState, MemoryLedger
from tests.repetitions import repetitions

if TYPE_CHECKING:
    from sparrow.cluster.postgres import PostgresLedger

TTL_MS = 600_000
STEPS = 60
pytestmark = pytest.mark.slow


@dataclass
class Node:
    """One node in both ledgers; `epoch` and `seq` are what it believes."""

    name: str
    real: PostgresLedger
    model: MemoryLedger
    ids: tuple[int, int] = (0, 0)
    epoch: int = 0
    seq: int = 0

    async def join(self) -> None:
        addresses = {"native": self.name}
        real = await self.real.join(uuid.uuid4(), addresses, TTL_MS)
        self.ids = real, await self.model.join(uuid.uuid4(), addresses, TTL_MS)

    def learn(self, taken: Taken | None) -> None:
        if taken is not None:
            self.epoch, self.seq = taken.epoch, taken.seq


class Comparison:
    """Both ledgers with two nodes each, and a third connection to PostgreSQL that can hold the row
    of the shard.
    """

    def __init__(self, url: str, control: Any, seed: int) -> None:
        from sparrow.cluster.postgres import PostgresLedger

        self.source = random.Random(seed)
        self.clock = ManualClock()
        state = LedgerState(self.clock)
        self.nodes = [Node(name, PostgresLedger(url), MemoryLedger(state)) for name in "ab"]
        self.control = control
        self.keys = 0
        self.steps: list[str] = []
        """All that was done, for a test that fails."""
        self.losses: list[bool] = []
        """For each lost commit, True if it had happened."""

    async def both(self, call: Callable[[Ledger, int], Awaitable[object]], node: Node) -> Any:
        """Make a call at both ledgers, which answer alike. Return the answer."""
        found = []
        for ledger, number in ((node.real, node.ids[0]), (node.model, node.ids[1])):
            try:
                found.append(await call(ledger, number))
            except LedgerRefused:
                found.append("refused")
        assert found[0] == found[1], self.steps
        return found[0]

    async def step(self) -> None:
        node = self.source.choice(self.nodes)
        other = self.nodes[1 - self.nodes.index(node)]
        do = self.source.choice(["take", "take", "retake", "release", "renew", "join", "expire", "loss"])
        if self.source.random() < 0.5:
            do = "commit"
        self.steps.append(f"{do} by {node.name}")
        if do == "take":
            is_dead = self.source.random() < 0.5
            node.learn(await self.take(node, other if is_dead else None))
        elif do == "retake":
            node.learn(await self.both(lambda ledger, number: ledger.retake(0, number), node))
        elif do == "release":
            await self.both(lambda ledger, _: ledger.release(0, node.epoch), node)
        elif do == "renew":
            await self.both(lambda ledger, number: ledger.renew(number, TTL_MS, {"http": "h"}), node)
        elif do == "join":
            await node.join()
        elif do == "expire":
            self.clock.advance(TTL_MS / 1000 + 1)
            await self.control.execute("UPDATE sparrow.node SET expires_at = expires_at - interval '601 s'")
        elif do == "commit":
            commit = self.some_commit(node)
            if await self.commit(node, commit) is True:
                node.seq = commit.seq
        else:
            await self.lose(node, other)
        await self.check()

    async def take(self, node: Node, dead: Node | None) -> Taken | None:
        found = []
        for which, ledger in enumerate((node.real, node.model)):
            found.append(await ledger.take(0, node.ids[which], dead and dead.ids[which]))
        assert found[0] == found[1], self.steps
        return found[0]

    def some_commit(self, node: Node) -> Commit:
        """Return a commit of a node: mostly its next one. `object_ms` is the age of the object."""
        source = self.source
        entries = [(b"k%d" % source.randrange(2), b"%d" % source.randrange(4)) for _ in range(3)]
        changed = list(dict.fromkeys(entries))
        cut = source.randint(0, len(changed))
        self.keys += 1
        key = f"w/{self.keys}" if source.random() < 0.4 else None
        return Commit(
            node.seq + source.choice([1, 1, 1, 1, 1, 0, 2]),
            self.keys,
            None if key is None and source.random() < 0.3 else b"manifest %d" % self.keys,
            None if key else b"payload %d" % self.keys,
            key,
            source.choice([0, 0, MAX_OBJECT_AGE_MS + 60_000]),
            [EntryRow(kind, name, b"%d" % self.keys, self.keys) for kind, name in changed[:cut]],
            changed[cut:],
            [source.randint(1, node.seq) for _ in range(source.randint(0, 2)) if node.seq],
        )

    async def commit(self, node: Node, commit: Commit) -> Any:
        async def at(ledger: Ledger, _: int) -> bool:
            born_ms = await ledger.now_ms() - commit.object_ms
            return await ledger.commit(0, node.epoch, replace(commit, object_ms=born_ms))

        return await self.both(at, node)

    async def lose(self, node: Node, other: Node) -> None:
        """Lose the connection of an owner's commit at PostgreSQL before it happens, and take the
        shard, which tells whether it did; lose the same at the model.
        """
        commit = replace(self.some_commit(node), object_key=None, object_ms=0)
        before = (await node.model.status()).shards[0]
        if (before.owner, before.epoch, before.seq) != (node.ids[1], node.epoch, commit.seq - 1):
            return  # PostgreSQL refuses it without waiting
        transaction = self.control.transaction()
        await transaction.start()
        await self.control.execute("SELECT FROM sparrow.shard FOR UPDATE")
        sent = asyncio.ensure_future(node.real.commit(0, node.epoch, commit))
        waiting = "SELECT pid FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
        async with asyncio.timeout(20):
            while (backend := await self.control.fetchval(waiting)) is None:
                await asyncio.sleep(0)
        if self.source.random() < 0.5:
            await self.control.execute("SELECT pg_terminate_backend($1)", backend)
        else:
            node.real._commits.drop()  # the server goes on with it
        with pytest.raises(OutcomeUnknown):
            await sent
        await transaction.commit()
        is_dead = self.source.random() < 0.3
        real, model = (
            (other.real.take(0, other.ids[0], node.ids[0]), other.model.take(0, other.ids[1], node.ids[1]))
            if is_dead
            else (node.real.retake(0, node.ids[0]), node.model.retake(0, node.ids[1]))
        )
        taken = await real
        assert taken is not None
        happened = taken.seq == commit.seq
        self.steps.append(f"the commit {'happened' if happened else 'was lost'}")
        self.losses.append(happened)
        node.model.faults = LedgerFaults(lost_requests=1.0 - happened, lost_responses=float(happened))
        with pytest.raises(OutcomeUnknown):
            await node.model.commit(0, node.epoch, commit)
        node.model.faults = LedgerFaults()
        assert taken == await model, self.steps
        (other if is_dead else node).learn(taken)

    async def check(self) -> None:
        """Compare all that both ledgers keep."""
        kept = []
        for which in (0, 1):
            ledger: Ledger = self.nodes[0].model if which else self.nodes[0].real
            names = {node.ids[which]: node.name for node in self.nodes}
            content, status = await ledger.load(0), await ledger.status()
            shard = status.shards[0]
            kept.append(
                (
                    content.wal,
                    sorted(content.entries, key=lambda each: (each.kind, each.key)),
                    [await ledger.payload(0, row.seq) for row in content.wal],
                    sorted(await ledger.garbage(0, 1000)),
                    await ledger.named("w/"),
                    (shard.epoch, names.get(shard.owner or 0, shard.owner is None), shard.seq),
                    names.get(shard.taken_from or 0, shard.taken_from is None),
                    {names[each.id]: each.expires_in_ms > 0 for each in status.nodes if each.id in names},
                )
            )
        assert kept[0] == kept[1], self.steps


@pytest.fixture
async def control(ledger_url: str) -> AsyncIterator[Any]:
    import asyncpg

    connection = await asyncpg.connect(ledger_url)
    yield connection
    await connection.close()


async def test_postgres_and_the_model_answer_alike(ledger_url: str, control: Any) -> None:
    losses: list[bool] = []
    for seed in range(repetitions(20)):
        await control.execute("DROP SCHEMA IF EXISTS sparrow CASCADE")
        comparison = Comparison(ledger_url, control, seed)
        try:
            for node in comparison.nodes:
                await node.real.open()
                await node.join()
            for _ in range(STEPS):
                await comparison.step()
        finally:
            for node in comparison.nodes:
                await node.real.close()
        losses += comparison.losses
    assert losses, "no commit lost its connection"
