"""A hundred connections guess, by all ways to log in; honest users get in within a second. Real
listeners, real connections.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

import sparrow
import sparrow.testing
from tests.security.guesses import ALL_WAYS, OWN_PASSWORD, OWN_USER, TOKEN_WAYS, WAYS, Guess, failed_logins
from tests.security.scram_client import plain
from tests.security.test_sasl_frontend import RawKafka

GUESSERS = 100
GUESS_S = 2.0
PATIENCE_S = 30.0
PER_USER, PER_ADDRESS = 5, 20
HONEST = {
    "his own name": ("bob", "cleo", "dora", "emil", "fay", "gus"),
    "other users": ("hugo", "ivy", "jon", "kim", "lea", "max"),
}
"""Users that log in while guesses are made at them, and that did not log in before."""


@contextmanager
def attacked_broker() -> Iterator[sparrow.testing.Broker]:
    names = itertools.chain(["ann"], *HONEST.values())
    users = {user: f"{user}-pencil" for user in names} | {OWN_USER: OWN_PASSWORD}
    with sparrow.testing.broker(
        process=True,
        users=users,
        tokens={"robot": "robots-token"},
        acl_default="allow",
        super_users="ann",
        kafka_max_session_ms="1h",
    ) as broker:
        # the libraries of the HTTP listener are loaded
        asyncio.run(honest_login(broker, "ann", "http"))
        yield broker


class Guesser:
    """Guesses at one user from one address, one connection after the other, until `stop`."""

    def __init__(self, broker: sparrow.testing.Broker, way: str, user: str, address: str) -> None:
        self._broker = broker
        self.way = way
        self.user = user
        self.address = address
        self.checked = 0
        """Guesses that were checked and found wrong, without those that were refused unchecked."""
        self.was_closed = True
        self.is_over = False
        """Set before the task is cancelled: Python 3.11's `wait_for` may swallow that."""

    async def run(self) -> None:
        for number in itertools.count():
            if self.is_over:
                return
            guess = Guess(self._broker, self.user, f"guess-{number}", self.address)
            try:
                outcome = await ALL_WAYS[self.way](guess)
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)
                continue
            if not self.is_over:
                self.was_closed &= outcome.is_closed
                self.checked += "too many" not in outcome.said


async def storm(guessers: Sequence[Guesser], *, by_every_way: bool = False) -> float:
    """Let them guess for a while, and on request until each way was checked. Return the seconds
    that it took.
    """
    begun = time.monotonic()
    tasks = [asyncio.create_task(each.run()) for each in guessers]
    await asyncio.sleep(GUESS_S)
    ways = {each.way for each in guessers}
    while (
        by_every_way
        and {each.way for each in guessers if each.checked} != ways
        and time.monotonic() - begun < PATIENCE_S
    ):
        await asyncio.sleep(0.1)
    elapsed_s = time.monotonic() - begun
    for each, task in zip(guessers, tasks, strict=True):
        each.is_over = True
        task.cancel()
    done, _ = await asyncio.wait(tasks)
    failures = [task.exception() for task in done if not task.cancelled()]
    assert not any(failures), failures
    return elapsed_s


async def honest_login(broker: sparrow.testing.Broker, user: str, way: str) -> float:
    """Return the seconds until an honest user from 127.0.0.1 has logged in."""
    begun = time.perf_counter()
    if way == "native":
        async with await sparrow.connect(broker.url, user=user, password=f"{user}-pencil"):
            pass
    elif way == "http":
        basic = base64.b64encode(f"{user}:{user}-pencil".encode()).decode()
        host, port = broker.http.removeprefix("http://").rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"GET /docs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {basic}\r\n\r\n".encode()
        )
        assert b" 200 " in await reader.readline()
        writer.close()
    else:
        host, port = broker.kafka.rsplit(":", 1)
        client = RawKafka(*await asyncio.open_connection("127.0.0.1", int(port)))
        assert (await client.login(plain(user, f"{user}-pencil"))).error_code == 0
        client.writer.close()
    return time.perf_counter() - begun


@pytest.fixture(scope="module")
def attacked() -> Iterator[sparrow.testing.Broker]:
    with attacked_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def unattacked() -> Iterator[sparrow.testing.Broker]:
    """Yield a broker of its own for exact counts: guesses of a storm are still counted when the
    storm is over.
    """
    with attacked_broker() as broker:
        yield broker


@pytest.mark.parametrize(("number", "way"), list(enumerate(ALL_WAYS)), ids=list(ALL_WAYS))
async def test_a_wrong_login_is_counted_and_ends_its_connection_by_every_way(unattacked, number, way) -> None:
    before = await failed_logins(unattacked, "ann", "ann-pencil")
    guess = Guess(unattacked, f"user-{number}", "wrong", f"127.0.1.{number + 1}")
    outcome = await ALL_WAYS[way](guess)
    assert any(words in outcome.said for words in ("username or password", "invalid credentials", "token"))
    assert outcome.is_closed
    after = await failed_logins(unattacked, "ann", "ann-pencil")
    assert after == {**before, "credentials": before["credentials"] + 1}


async def test_by_every_way_fewer_than_five_guesses_a_second_at_one_user(attacked) -> None:
    """Each way guesses at a user of its own; those at tokens from an address of their own, as
    tokens name no user.
    """
    guessers = [
        Guesser(attacked, way, f"alone-{number}", f"127.0.2.{number + 1}")
        for number, way in enumerate(ALL_WAYS)
        for _ in range(6)
    ]
    elapsed_s = await storm(guessers, by_every_way=True)
    by_way: Counter[str] = Counter()
    for each in guessers:
        by_way[each.way] += each.checked
    assert set(by_way) == set(ALL_WAYS)
    assert all(0 < count < PER_USER * elapsed_s for count in by_way.values()), (by_way, elapsed_s)
    assert all(each.was_closed for each in guessers)


async def test_by_all_ways_together_fewer_than_twenty_guesses_a_second_from_one_address(attacked) -> None:
    before = await failed_logins(attacked, "ann", "ann-pencil")
    guessers = [
        Guesser(attacked, way, f"many-{number}", "127.0.3.1")
        for number, way in zip(range(GUESSERS), itertools.cycle(ALL_WAYS), strict=False)
    ]
    begun = time.monotonic()
    await storm(guessers)
    after = await failed_logins(attacked, "ann", "ann-pencil")
    elapsed_s = time.monotonic() - begun
    assert 0 < after["credentials"] - before["credentials"] < PER_ADDRESS * elapsed_s
    assert all(each.was_closed for each in guessers)


@pytest.mark.parametrize("target", list(HONEST))
async def test_honest_users_get_in_within_a_second_while_a_hundred_connections_guess(
    attacked, target
) -> None:
    users = HONEST[target] if target == "his own name" else ("dan", "eve", "fred", "gil", "hal", "ida")
    # Fewer at each user than may wait: none is refused unchecked, which bare SASL could not
    # distinguish from a wrong guess.
    ways = [*itertools.product(WAYS, users), *((way, "") for way in TOKEN_WAYS)]
    guessers = [
        Guesser(attacked, way, user, f"127.0.0.{2 + number % 7}")
        for number, (way, user) in zip(range(GUESSERS), itertools.cycle(ways), strict=False)
    ]
    storming = asyncio.create_task(storm(guessers))
    await asyncio.sleep(GUESS_S / 2)
    # In a thread: the guessers' work in this loop is not the broker's time. Two users at each
    # listener, as a busy machine may hold up one.
    took: dict[str, list[float]] = {}
    for user, way in zip(HONEST[target], itertools.cycle(("native", "http", "kafka")), strict=False):
        seconds = await asyncio.to_thread(asyncio.run, honest_login(attacked, user, way))
        took.setdefault(way, []).append(seconds)
    elapsed_s = await storming
    assert all(min(each) < 1 for each in took.values()), took
    by_user: Counter[str] = Counter()
    by_address: Counter[str] = Counter()
    for each in guessers:
        by_user[each.user or each.address] += each.checked
        by_address[each.address] += each.checked
    assert min(by_user[user] for user in users) > 0  # guesses were made
    assert all(count < PER_USER * elapsed_s for count in by_user.values()), (by_user, elapsed_s)
    assert all(count < PER_ADDRESS * elapsed_s for count in by_address.values()), (by_address, elapsed_s)
    assert all(each.was_closed for each in guessers)
