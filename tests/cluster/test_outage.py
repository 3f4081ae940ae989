"""An owner that alone does not reach the object store hands over; where nobody does, it stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sparrow.cluster import outage as rules
from sparrow.cluster.ledger import NodeInfo
from sparrow.cluster.objects_model import MemoryObjects
from sparrow.cluster.outage import AWAY, GIVE_UP_S, REACHABLE, OutageWatch
from sparrow.cluster.ownership import Ownership
from tests.cluster.test_ownership import Nodes, settle


class Member:
    """A node with its own way to the object store."""

    def __init__(self, nodes: Nodes, ownership: Ownership) -> None:
        self.ownership = ownership
        self.objects = MemoryObjects()
        self.watch = OutageWatch(self.objects, nodes.clock.monotonic)
        self.watch.is_failing = lambda: ownership.epoch >= 0 and self.objects.is_down
        self.asked = 0
        ownership.describe_objects = self.watch.describe
        ownership.gives_up = self.watch.gives_up
        ownership.when_asked = self._ask

    def _ask(self) -> None:
        self.asked += 1


@pytest.fixture
async def nodes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Nodes]:
    monkeypatch.setattr(rules, "PROBE_S", 0.001)
    nodes = Nodes(monkeypatch)
    yield nodes
    await nodes.end()


async def renewed(nodes: Nodes, members: list[Member], seconds: float) -> None:
    """Let time pass, in which all nodes renew."""
    passed = 0.0
    while passed < seconds:
        nodes.clock.advance(2)
        passed += 2
        for each in members:
            await each.ownership._renew_once()
        await settle(rounds=5)


@pytest.mark.parametrize("standby_reaches_it", [True, False])
async def test_an_owner_hands_over_after_a_long_outage_if_a_standby_reaches_the_store(
    nodes: Nodes, standby_reaches_it: bool
) -> None:
    owner, standby = [Member(nodes, (await nodes.join(name))[0]) for name in "ab"]
    await owner.ownership.stand_by()
    waiting = asyncio.create_task(standby.ownership.stand_by())
    watching = asyncio.create_task(standby.watch.watch(lambda: standby.ownership.owner_objects))
    try:
        await renewed(nodes, [owner, standby], 40)
        assert standby.objects.puts == owner.asked == 0, "nothing is tried while all is well"
        owner.objects.is_down = True
        standby.objects.is_down = not standby_reaches_it
        await renewed(nodes, [owner, standby], GIVE_UP_S - 4)
        assert owner.asked == 0
        await renewed(nodes, [owner, standby], 10)
        assert bool(owner.asked) == standby_reaches_it
        asked, owner.objects.is_down = owner.asked, False
        await renewed(nodes, [owner, standby], 4)
        assert owner.asked == asked, "the store is back"
        assert standby.watch.describe() == ""
    finally:
        for task in (waiting, watching):
            task.cancel()
        await asyncio.gather(waiting, watching, return_exceptions=True)


async def test_an_outage_counts_from_its_last_begin(nodes: Nodes) -> None:
    found = OutageWatch(MemoryObjects(), nodes.clock.monotonic)
    node = (await nodes.join("b"))[0]
    (info,) = (await node._ledger.status()).nodes
    other = NodeInfo(info.id, info.incarnation, {}, 1, True, False, REACHABLE)
    is_down = True
    found.is_failing = lambda: is_down
    assert found.describe() == AWAY
    nodes.clock.advance(GIVE_UP_S + 1)
    assert found.gives_up([other])
    assert not found.gives_up([info])
    is_down = False
    assert found.describe() == ""
    is_down = True
    assert found.describe() == AWAY
    assert not found.gives_up([other])
