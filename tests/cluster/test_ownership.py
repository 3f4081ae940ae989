"""Ownership of the shard: leases, free locks, and clocks that jump."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sparrow.base.clock import ManualClock
from sparrow.cluster import ownership as rules
from sparrow.cluster.errors import NotOwner
from sparrow.cluster.ledger import Commit
from sparrow.cluster.ledger_model import LedgerState, MemoryLedger
from sparrow.cluster.ownership import Ownership


class Nodes:
    """Nodes of a cluster whose time a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rules, "POLL_S", 0.001)
        monkeypatch.setattr(rules, "RETRY_S", 0.001)
        monkeypatch.setattr(rules, "RENEW_S", 3600)  # the tests renew
        monkeypatch.setattr(Ownership, "_stood_still", False)  # see test_trust
        self.clock = ManualClock()
        self.state = LedgerState(self.clock)
        self.made: list[Ownership] = []

    async def join(self, name: str) -> tuple[Ownership, MemoryLedger]:
        ledger = MemoryLedger(self.state)
        node = Ownership(ledger, {"kafka": name}, now=self.clock.monotonic)
        await node.join()
        self.made.append(node)
        return node, ledger

    async def end(self) -> None:
        self.state.is_down = False
        for node in self.made:
            await node.leave()


async def settle(condition: Callable[[], bool] = lambda: False, rounds: int = 100) -> None:
    for _ in range(rounds):
        if condition():
            return
        await asyncio.sleep(0.001)


@pytest.fixture
async def nodes(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    nodes = Nodes(monkeypatch)
    yield nodes
    await nodes.end()


async def test_a_standby_takes_the_shard_when_the_lease_has_expired_and_not_before(nodes: Nodes) -> None:
    owner, _ = await nodes.join("a")
    standby, _ = await nodes.join("b")
    first = await owner.stand_by()
    waiting = asyncio.create_task(standby.stand_by())
    for _ in range(9):
        nodes.clock.advance(1)
        await standby._renew_once()
        await settle(waiting.done, 10)
        assert not waiting.done()
    nodes.clock.advance(2)
    await standby._renew_once()
    assert (await waiting).epoch == first.epoch + 1
    with pytest.raises(NotOwner):
        await owner.retake()


async def test_an_owner_answers_no_read_when_another_may_have_taken_over(nodes: Nodes) -> None:
    owner, ledger = await nodes.join("a")
    await owner.stand_by()
    assert owner.is_trusted
    nodes.state.is_down = True
    nodes.clock.advance(7.9)
    assert owner.is_trusted
    assert not await owner._renew_once()
    nodes.clock.advance(0.2)
    assert not owner.is_trusted
    nodes.state.is_down = False
    assert await owner._renew_once()
    assert owner.is_trusted
    assert await ledger.commit(0, owner.epoch, Commit(1, 0, b"m", b"b"))


async def test_an_owner_that_slept_learns_of_its_loss_and_answers_no_read_before(nodes: Nodes) -> None:
    owner, _ = await nodes.join("a")
    standby, _ = await nodes.join("b")
    await owner.stand_by()
    lost: list[NotOwner] = []
    owner.when_lost = lost.append
    nodes.clock.advance(11)
    await standby._renew_once()
    await standby.stand_by()
    assert not owner.is_trusted
    assert await owner._renew_once(), "its row can be renewed"
    assert not owner.is_trusted
    assert [type(each) for each in lost] == [NotOwner]
    assert await standby._renew_once()
    assert standby.is_trusted


async def test_a_renewal_counts_from_when_it_was_sent(nodes: Nodes) -> None:
    owner, ledger = await nodes.join("a")
    renew = ledger.renew

    async def slow(*arguments: object, **options: object) -> bool:
        found = await renew(*arguments, **options)  # type: ignore[arg-type]
        nodes.clock.advance(7)  # the answer is on its way, or the process was stopped
        return found

    ledger.renew = slow  # type: ignore[method-assign]
    assert await owner._renew_once()
    assert owner.is_trusted
    nodes.clock.advance(1)
    assert not owner.is_trusted


async def test_a_free_lock_lets_a_standby_take_over_early(nodes: Nodes) -> None:
    owner, ledger = await nodes.join("a")
    standby, _ = await nodes.join("b")
    await owner.stand_by()
    waiting = asyncio.create_task(standby.stand_by())
    await settle(rounds=10)
    await ledger.close()
    await settle(waiting.done, 20)
    assert not waiting.done()
    nodes.clock.advance(1.1)
    await settle(waiting.done)
    assert waiting.done()


async def test_a_node_that_gets_its_lock_again_stays_the_owner(nodes: Nodes) -> None:
    owner, ledger = await nodes.join("a")
    standby, _ = await nodes.join("b")
    await owner.stand_by()
    waiting = asyncio.create_task(standby.stand_by())
    await settle(rounds=10)
    ledger.disconnect()  # it notices, and renews at once
    await settle(lambda: nodes.state.nodes[owner.node].is_connected)
    nodes.clock.advance(1.1)
    await settle(waiting.done, 20)
    assert not waiting.done()
    waiting.cancel()


async def test_locks_that_a_restart_of_the_ledger_freed_say_nothing(nodes: Nodes) -> None:
    owner, ledger = await nodes.join("a")
    standby, _ = await nodes.join("b")
    await owner.stand_by()
    nodes.state.up_since_ms = nodes.clock.wall_ms()
    await ledger.close()
    waiting = asyncio.create_task(standby.stand_by())
    for _ in range(7):
        nodes.clock.advance(1)
        await standby._renew_once()
        await settle(waiting.done, 5)
    assert not waiting.done()
    waiting.cancel()


async def test_an_owner_that_stops_hands_over_at_once(nodes: Nodes) -> None:
    owner, _ = await nodes.join("a")
    standby, _ = await nodes.join("b")
    first = await owner.stand_by()
    waiting = asyncio.create_task(standby.stand_by())
    await owner.drain()
    await owner.release()
    assert (await waiting).epoch == first.epoch + 2
    again = asyncio.create_task(owner.stand_by())
    await standby.release()
    await settle(again.done, 20)
    assert not again.done(), "it stops, so it takes nothing"
    again.cancel()


async def test_an_owner_that_is_asked_hands_over_and_stands_by_again(nodes: Nodes) -> None:
    owner, ledger = await nodes.join("a")
    standby, _ = await nodes.join("b")
    await owner.stand_by()
    asked = []
    owner.when_asked = lambda: asked.append(True)
    await owner._renew_once()
    assert not asked
    await ledger.ask_handover(0, owner.node)
    await owner._renew_once()
    assert asked
    waiting = asyncio.create_task(standby.stand_by())
    await owner.drain()
    await owner.release()
    assert (await waiting).epoch == 3
    nodes.clock.advance(0.5)
    assert await standby.note_served() == pytest.approx(0.5)
    await owner.stand_back()
    again = asyncio.create_task(owner.stand_by())
    await standby.drain()
    await standby.release()
    assert (await again).epoch == 5
    await owner._renew_once()
    assert asked == [True], "the request is forgotten"


async def test_a_request_that_nobody_could_follow_is_not_followed(nodes: Nodes) -> None:
    owner, ledger = await nodes.join("a")
    await owner.stand_by()
    asked = []
    owner.when_asked = lambda: asked.append(True)
    await ledger.ask_handover(0, owner.node)
    await owner._renew_once()
    assert not asked
    nodes.clock.advance(61)
    await nodes.join("b")
    await owner._renew_once()
    assert not asked, "it counts for a minute"
    owner._is_draining = True
    standing_back = asyncio.create_task(owner.stand_back())
    await settle(rounds=5)
    assert not standing_back.done()
    nodes.clock.advance(11)
    await settle(standing_back.done)
    assert standing_back.done(), "where nobody takes the shard, it may be taken again"


async def test_the_time_of_a_takeover_counts_from_the_last_sign_of_life(nodes: Nodes) -> None:
    owner, _ = await nodes.join("a")
    standby, _ = await nodes.join("b")
    await owner.stand_by()
    waiting = asyncio.create_task(standby.stand_by())
    await settle(rounds=5)
    for _ in range(2):
        nodes.clock.advance(5.5)  # the owner hangs: it renews nothing, and its lock is held
        await standby._renew_once()
        await settle(waiting.done, 20)
    await waiting
    nodes.clock.advance(1)
    assert await standby.note_served() == pytest.approx(12)
    assert (await MemoryLedger(nodes.state).status()).shards[0].takeover_ms == 12_000


async def test_an_own_shard_is_taken_again_as_often_as_it_needs(nodes: Nodes) -> None:
    owner, ledger = await nodes.join("a")
    first = await owner.stand_by()
    nodes.state.is_down = True
    again = asyncio.create_task(owner.retake())
    await settle(rounds=10)
    nodes.state.is_down = False
    assert (await again).epoch == first.epoch + 1
    assert not await ledger.commit(0, first.epoch, Commit(1, 0, b"m", b"b"))


async def test_a_node_whose_row_is_gone_registers_again(nodes: Nodes) -> None:
    node, _ = await nodes.join("a")
    before = node.node
    nodes.state.nodes.clear()
    assert await node._renew_once()
    assert node.node != before
    assert nodes.state.nodes[node.node].addresses == {"kafka": "a"}


async def test_an_owner_that_is_cut_off_from_the_ledger_gives_up_after_a_while() -> None:
    state, now = LedgerState(), [1000.0]
    ledger = MemoryLedger(state)
    node = Ownership(ledger, {}, now=lambda: now[0])
    await node.join()
    await node.stand_by()
    lost: list[str] = []
    node.when_lost = lambda error: lost.append(error.text)
    state.is_down = True
    now[0] += rules.TRUST_S + rules.GIVE_UP_S - 1
    await node._renew_once()
    assert not node.is_trusted
    assert not lost, "the ledger may be away for everybody: the owner waits"
    now[0] += 1
    await node._renew_once()
    assert lost
    state.is_down = False
    await node.leave()
