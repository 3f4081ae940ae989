"""The memory of responses: shares, waiting, and closed connections."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from sparrow.base.errors import Overloaded
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.broker import Broker
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.frontends.transport import send_budget
from sparrow.frontends.transport.send_budget import Backlog, SendBudget
from sparrow.records.builder import build_batch

KIB, MIB = 1 << 10, 1 << 20
SECONDS = 20


class Peer:
    """A connection whose socket has not taken `unsent` bytes."""

    def __init__(self, budget: SendBudget) -> None:
        self.unsent = 0
        self.reasons: list[str] = []
        self.backlog: Backlog = budget.backlog(lambda: self.unsent, self._close)

    def _close(self, why: str) -> None:
        self.reasons.append(why)
        self.unsent = 0
        self.backlog.close()

    async def send(self, wanted_bytes: int, least_bytes: int = 0) -> int:
        """Send one response that the socket does not take."""
        reservation = self.backlog.reservation()
        granted = await reservation.take(wanted_bytes, least_bytes)
        self.unsent += granted
        reservation.sent()
        return granted

    def take_all(self) -> None:
        self.unsent = 0
        self.backlog.refresh(asyncio.get_running_loop().time())


async def quick_peer(budget: SendBudget) -> Peer:
    peer = Peer(budget)
    while not peer.backlog.is_quick:
        await peer.send(MIB)
        peer.take_all()
    assert peer.backlog.is_quick
    return peer


async def test_response_gets_an_eighth_of_the_free_bytes() -> None:
    budget = SendBudget(64 * MIB)
    sizes = [await Peer(budget).send(100 * MIB, 65 * KIB) for _ in range(4)]
    assert sizes[0] == 6 * MIB  # of the three quarters that all connections may use
    assert sizes == sorted(sizes, reverse=True)
    assert await Peer(budget).send(10) == 10
    assert budget.reserved_bytes == sum(sizes) + 10


async def test_last_quarter_is_for_connections_that_read_their_responses() -> None:
    budget = SendBudget(64 * MIB)
    quick = await quick_peer(budget)
    crowd = [Peer(budget) for _ in range(1000)]
    sending = [asyncio.ensure_future(peer.send(MIB)) for peer in crowd]
    await asyncio.sleep(0)
    assert 55 * MIB < budget.reserved_bytes <= 56 * MIB  # half of that quarter is for small reads
    assert budget.waiting
    for _ in range(100):  # one after the other, while the other reads wait
        assert await quick.send(MIB) >= 64 * KIB
        quick.take_all()
    for each in sending:
        each.cancel()
    await asyncio.wait(sending)
    for peer in crowd:
        peer.backlog.close()
    budget.refresh()
    assert (budget.waiting, budget.reserved_bytes) == (0, 0)


async def test_those_that_wait_are_served_in_their_order_and_never_beyond_the_budget() -> None:
    budget = SendBudget(8 * MIB)
    holder = Peer(budget)
    await holder.send(MIB)
    blocking = holder.backlog.reservation()
    blocking.resize(5 * MIB)
    order: list[int] = []

    async def send(number: int) -> None:
        await Peer(budget).send(MIB, MIB)
        order.append(number)

    sending = [asyncio.ensure_future(send(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert (order, budget.waiting) == ([], 4)
    blocking.resize(4 * MIB)
    await asyncio.sleep(0.001)
    assert order == [0]
    assert budget.reserved_bytes <= 6 * MIB
    blocking.give_back()
    await asyncio.gather(*sending)
    assert order == [0, 1, 2, 3]


async def test_a_piece_counts_whole_until_its_last_byte_is_taken() -> None:
    budget = SendBudget(64 * MIB)
    peer = Peer(budget)
    for _ in range(3):
        await peer.send(MIB, MIB)
    peer.unsent = 2 * MIB + 1
    assert budget.used_bytes() == 3 * MIB
    peer.unsent = MIB
    assert budget.used_bytes() == MIB
    peer.unsent = 0
    assert budget.used_bytes() == 0


async def test_connection_that_reads_nothing_is_closed_only_while_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send_budget, "STALL_S", 0.3)
    budget = SendBudget(4 * MIB)
    stalled, dripping, honest = Peer(budget), Peer(budget), Peer(budget)
    for peer in (stalled, dripping, honest):
        await peer.send(MIB, MIB)
    await asyncio.sleep(0.5)
    budget.refresh()
    assert not stalled.reasons  # no read waits
    late = [asyncio.ensure_future(Peer(budget).send(MIB, MIB)) for _ in range(2)]
    for _ in range(10):
        await asyncio.sleep(0.05)
        dripping.unsent = max(1, dripping.unsent - 1)
        honest.unsent = max(1, honest.unsent - MIB // 10)
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*late)
    assert stalled.reasons == ["it does not read its responses, and other clients wait for the memory"]
    assert dripping.reasons
    assert not honest.reasons


async def test_a_wait_that_is_given_up_holds_nothing() -> None:
    budget = SendBudget(MIB)
    holder = Peer(budget).backlog.reservation()
    holder.resize(MIB)
    waiting = asyncio.ensure_future(Peer(budget).send(MIB, MIB))
    await asyncio.sleep(0)
    holder.give_back()  # it is granted, and its task is cancelled before it runs
    waiting.cancel()
    await asyncio.wait([waiting])
    assert budget.reserved_bytes == 0
    holder.resize(MIB)
    with pytest.raises(Overloaded, match="send_budget"):
        await Peer(budget).backlog.reservation(patience_s=0.01).take(MIB)
    holder.give_back()
    assert (budget.reserved_bytes, await Peer(budget).send(10)) == (0, 10)


async def test_nothing_is_lost_or_counted_twice_whatever_happens() -> None:
    rng = random.Random(7)
    budget = SendBudget(8 * MIB)
    peers = [Peer(budget) for _ in range(20)]

    async def work(peer: Peer) -> None:
        for _ in range(50):
            reservation = peer.backlog.reservation()
            with reservation:
                granted = await reservation.take(rng.randrange(1, 4 * MIB))
                assert budget.reserved_bytes <= budget.total_bytes
                await asyncio.sleep(0)
                size = rng.randrange(granted + 1)
                if reservation.keep(size) and rng.random() < 0.8:
                    peer.unsent += size
                    reservation.sent()
            if rng.random() < 0.7:
                peer.unsent = rng.randrange(peer.unsent + 1)

    async def drain() -> None:
        while True:
            await asyncio.sleep(0.001)
            rng.choice(peers).unsent = 0

    draining = asyncio.ensure_future(drain())
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*map(work, peers))
    draining.cancel()
    for peer in peers:
        peer.backlog.close()
    assert budget.reserved_bytes == 0


async def test_a_fetch_whose_first_batch_is_larger_than_its_part_waits_for_room(tmp_path: Path) -> None:
    budget = SendBudget(2 * MIB)
    others = Peer(budget).backlog.reservation()
    async with Broker(tmp_path / "data") as broker:
        await broker.topics.create("t", 1)
        await broker.records.publish("t", 0, build_batch([bytes(900_000)]))
        others.resize(MIB)
        reservation = Peer(budget).backlog.reservation()
        fetching = asyncio.ensure_future(
            broker.records.fetch(
                [FetchRequest("t", 0, 0, MIB)], max_bytes=MIB, memory=reservation, principal=ANONYMOUS
            )
        )
        async with asyncio.timeout(SECONDS):
            while not budget.waiting:
                await asyncio.sleep(0.001)
        assert reservation.size_bytes == 0
        assert budget.reserved_bytes == MIB
        others.give_back()
        (found,) = await fetching
        assert reservation.size_bytes == found.size_bytes > 900_000
