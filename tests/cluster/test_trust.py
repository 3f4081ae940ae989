"""An owner whose session at the ledger ended, or that stood still, answers nothing from memory
while a standby may have taken over: a free lock is enough for that, before the lease expires.
"""

from __future__ import annotations

import asyncio

import pytest

from sparrow.base.clock import ManualClock
from sparrow.cluster import ownership as rules
from sparrow.cluster.ledger_model import LedgerState, MemoryLedger
from sparrow.cluster.ownership import GRACE_S, UNLOCKED_TRUST_S, Ownership
from tests.cluster.simulation.world import World


class UnlockedLedger(MemoryLedger):
    """A session before this one still holds the lock."""

    is_locked = False

    @property
    def holds_lock(self) -> bool:
        return self.is_locked


class Owner:
    """A node that owns the shard. Its clock, its renewals and its beats are the test's."""

    def __init__(self, ledger: MemoryLedger, clock: ManualClock) -> None:
        self.ledger = ledger
        self.clock = clock
        self.node = Ownership(ledger, {}, now=clock.monotonic)

    async def pass_(self, seconds: float) -> None:
        """Let time pass in which the process runs."""
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)
            self.node._beat_once()
        await asyncio.sleep(0)


@pytest.fixture
async def owner(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(rules, "RENEW_S", 3600)
    monkeypatch.setattr(rules, "RETRY_S", 3600)
    monkeypatch.setattr(rules, "BEAT_S", 3600)
    clock = ManualClock()
    found = Owner(UnlockedLedger(LedgerState(clock)), clock)
    found.ledger.is_locked = True  # type: ignore[attr-defined]
    await found.node.join()
    await found.node.stand_by()
    yield found
    await found.node.leave()


def test_an_owner_without_its_lock_stops_before_a_standby_may_take_over() -> None:
    assert UNLOCKED_TRUST_S + rules.BEAT_S < GRACE_S


async def test_a_running_owner_is_trusted_for_as_long_as_its_lease(owner: Owner) -> None:
    await owner.pass_(7.9)
    assert owner.node.is_trusted
    await owner.pass_(0.2)
    assert not owner.node.is_trusted


async def test_the_end_of_its_session_leaves_an_owner_little_trust_until_it_has_renewed(owner: Owner) -> None:
    owner.ledger.disconnect()
    await owner.pass_(UNLOCKED_TRUST_S - 0.02)
    assert owner.node.is_trusted
    await owner.pass_(0.04)
    assert not owner.node.is_trusted
    assert await owner.node._renew_once()
    await owner.pass_(5)
    assert owner.node.is_trusted


async def test_a_process_that_stood_still_trusts_itself_only_after_a_renewal(owner: Owner) -> None:
    owner.clock.advance(UNLOCKED_TRUST_S)
    assert not owner.node.is_trusted, "before anything else of it has run"
    owner.node._beat_once()
    assert not owner.node.is_trusted
    assert await owner.node._renew_once()
    assert owner.node.is_trusted


async def test_a_renewal_that_was_sent_before_the_doubt_does_not_count(owner: Owner) -> None:
    renew = owner.ledger.renew

    async def interrupted(*arguments: object, **options: object) -> bool:
        found = await renew(*arguments, **options)  # type: ignore[arg-type]
        owner.clock.advance(1)  # the process stands still, and its session ends
        owner.node._beat_once()
        return found

    owner.ledger.renew = interrupted  # type: ignore[method-assign]
    assert await owner.node._renew_once()
    assert not owner.node.is_trusted


async def test_while_an_earlier_session_holds_the_lock_each_renewal_is_trusted_shortly(owner: Owner) -> None:
    owner.ledger.is_locked = False  # type: ignore[attr-defined]
    assert await owner.node._renew_once()
    await owner.pass_(UNLOCKED_TRUST_S - 0.02)
    assert owner.node.is_trusted
    await owner.pass_(0.04)
    assert not owner.node.is_trusted


def test_no_answer_is_out_of_date_after_a_pause_in_which_the_session_ended() -> None:
    """A seed in which an owner refused a batch by what it knew before its pause."""
    World(20297).run()


def test_an_owner_whose_shard_another_had_meanwhile_does_not_take_it_again_for_its_own() -> None:
    """A seed in which an owner woke up after two others had owned the shard and let it go."""
    World(60051).run()
