"""Guesses are slow for each user and each address; honest users get in meanwhile. By rules, with a
clock turned by hand.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.clock import ManualClock
from sparrow.base.errors import NotAuthenticated, Overloaded
from sparrow.broker.access import login_limits
from sparrow.broker.access.access import Access
from sparrow.broker.access.authz import AllowAll
from sparrow.broker.access.credentials import upsertions_of
from sparrow.broker.access.login_limits import FAILED, KNOWN, LoginLimits, network_of
from sparrow.broker.access.scram import Mechanism
from sparrow.broker.access.token_queue import TokenQueue
from sparrow.broker.access.users import UserService
from sparrow.meta.memory import MemoryMetaStore
from sparrow.server.logins import Logins
from sparrow.server.tokens import Tokens
from tests.security.scram_client import ScramClient


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def limits(clock: ManualClock) -> LoginLimits:
    return LoginLimits(clock)


@pytest.fixture
async def logins(limits: LoginLimits) -> Logins:
    users = UserService(MemoryMetaStore(), Access(AllowAll()))
    await users.load()
    await users.create(upsertions_of("ann", "pencil-2B"))
    return Logins(users, Tokens({"bob": "b-token"}), is_required=True, limits=limits)


def in_worst_second(times: list[float]) -> int:
    return max((sum(begin <= t < begin + 1 for t in times) for begin in times), default=0)


attempts = st.tuples(
    st.sampled_from(["ann", "bob", "eve", None]),
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
    st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.5]),
    st.sampled_from(["wrong", "wrong", "wrong", "gone", "right"]),
)


@given(st.lists(attempts, max_size=200))
async def test_no_second_sees_five_guesses_of_a_user_or_twenty_from_an_address(tried) -> None:
    clock = ManualClock()
    limits = LoginLimits(clock)
    limits.summarize = lambda: None  # type: ignore[method-assign]
    by_user: dict[str, list[float]] = {}
    by_address: dict[str, list[float]] = {}
    for name, host, pause_s, outcome in tried:
        clock.advance(pause_s)
        attempt = limits.begin_now(name, host)
        if attempt is None:
            continue
        if outcome == "right":
            attempt.succeed()
            continue
        if outcome == "wrong":
            attempt.fail()
        by_user.setdefault(name or host, []).append(clock.monotonic())
        by_address.setdefault(host, []).append(clock.monotonic())
    assert all(in_worst_second(times) < 5 for times in by_user.values())
    assert all(in_worst_second(times) < 20 for times in by_address.values())


async def test_every_way_to_log_in_asks_the_limits(logins, limits, clock) -> None:
    host = "10.0.0.9"

    async def scram() -> bytes:
        client = ScramClient("sha256", "ann", "wrong")
        server = logins.scram(Mechanism.SHA_256, host)
        return await server.receive(client.final(await server.receive(client.first())))

    async def token() -> object:
        found = logins.authenticate({"token": "wrong"}, host)
        return await found if asyncio.iscoroutine(found) else found

    ways = {
        "a password": lambda: logins.check_password("ann", "wrong", host),
        "a user and password": lambda: logins.authenticate({"user": "ann", "password": "wrong"}, host),
        "SCRAM": scram,
        "a token": token,
    }
    for what, guess in ways.items():
        clock.advance(10)
        with pytest.raises(NotAuthenticated):
            await guess()
        waiting = asyncio.ensure_future(guess())
        done, _ = await asyncio.wait([waiting], timeout=0.01)
        assert not done, what
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_the_right_password_has_to_wait_behind_guesses_too_though_it_was_right_before(
    logins, clock
) -> None:
    await logins.check_password("ann", "pencil-2B", "10.0.0.1")  # remembered from now on
    with pytest.raises(NotAuthenticated):
        await logins.check_password("ann", "wrong", "10.0.0.2")
    right = asyncio.ensure_future(logins.check_password("ann", "pencil-2B", "10.0.0.2"))
    done, _ = await asyncio.wait([right], timeout=0.02)
    assert not done
    clock.advance(0.5)
    assert (await right).name == "ann"


async def test_guesses_at_a_name_do_not_hold_up_its_earlier_logins(logins) -> None:
    await logins.check_password("ann", "pencil-2B", "10.0.0.1")
    for number in range(2):
        guess = asyncio.ensure_future(logins.check_password("ann", "wrong", f"10.0.0.{number + 2}"))
        await asyncio.wait([guess], timeout=0.05)
    for _ in range(100):
        assert (await logins.check_password("ann", "pencil-2B", "10.0.0.1")).name == "ann"
    guess.cancel()


async def test_right_logins_cost_nothing(logins) -> None:
    for _ in range(200):
        await logins.check_password("ann", "pencil-2B", "10.0.0.1")
        assert logins.authenticate({"token": "b-token"}, "10.0.0.1").name == "bob"


async def test_best_rank_goes_first_and_cancelled_waiters_are_skipped(clock) -> None:
    line = TokenQueue(clock, 1, 1, max_waiting=10)
    assert line.take_now()
    granted: list[str] = []

    async def wait(name: str, rank: int) -> None:
        await line.take(rank)
        granted.append(name)

    tasks = [
        asyncio.create_task(wait(*each)) for each in [("c", FAILED), ("gone", KNOWN), ("a", KNOWN), ("b", 1)]
    ]
    await asyncio.sleep(0)
    tasks[1].cancel()
    for _ in range(3):
        clock.advance(1)
        line.wake()
        await asyncio.sleep(0)
    await asyncio.wait(tasks)
    assert granted == ["a", "b", "c"]
    assert line.waiting == 0


async def test_a_full_queue_refuses_but_accepts_better_ranks(clock) -> None:
    line = TokenQueue(clock, 1, 1, max_waiting=2)
    assert line.take_now()
    tasks = [asyncio.create_task(line.take(FAILED)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="too many logins"):
        await line.take(FAILED)
    tasks.append(asyncio.create_task(line.take(KNOWN)))
    await asyncio.sleep(0)
    assert line.waiting == 3
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert line.waiting == 0


async def test_memory_stays_bounded_however_many_names_and_addresses_are_tried(
    limits, clock, monkeypatch
) -> None:
    monkeypatch.setattr(login_limits, "MAX_REMEMBERED", 500)
    for number in range(20_000):
        clock.advance(0.1)
        attempt = limits.begin_now(f"user {number}", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        assert attempt is not None
        attempt.fail()
    assert limits.remembered <= 6 * 500


async def test_one_line_a_minute_sums_up_the_failures(limits, clock, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            clock.advance(1)
            limits.begin_now("secret", "10.0.0.1").fail()
    assert len(caplog.records) == 1
    limits.summarize()
    assert "49 from 1 addresses" in caplog.records[1].message
    assert "secret" not in caplog.text
    assert limits.failures == Counter(credentials=50)


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a local peer", "a local peer"),
    ],
)
def test_addresses_are_counted_by_ipv4_address_and_ipv6_network(host: str, network: str) -> None:
    assert network_of(host) == network
