"""kill -9 under rules, users, quotas, SASL_SSL, retention and compaction, and with a wall clock
that jumps an hour.

`make crash` runs more rounds: SPARROW_CRASH_ROUNDS says how many; SPARROW_CRASH_SEED repeats a run.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import sparrow.testing
from tests.crash.faults import Endured, Fault, kill, kill_recovery, pause_and_kill, restart, torment
from tests.crash.jumping import JumpingClock, use_jumping_clock
from tests.crash.loads import Load
from tests.crash.loads.administered import (
    USERS,
    Administrator,
    Intruder,
    Register,
    SecuredKafkaProducer,
    SecuredProducer,
)
from tests.crash.loads.cleaned import Compacted, Retained
from tests.crash.loads.kafka import KafkaTransactions
from tests.crash.loads.native import NativeGroup, NativeProducer
from tests.crash.loads.queues import QueueWorkers
from tests.repetitions import CRASH_ROUNDS
from tests.security.certificates import make_certificates

ROUNDS = max(4, CRASH_ROUNDS // 2)
SEED = int(os.environ.get("SPARROW_CRASH_SEED", "1"))
HOUR_MS = 3_600_000


def kills(dice: random.Random) -> Iterator[Fault]:
    while True:
        yield dice.choice((kill, kill, kill, kill_recovery, pause_and_kill, restart))


async def tormented(
    loads: Sequence[Load], faults: Iterator[Fault], rounds: int, options: dict[str, object]
) -> None:
    with sparrow.testing.broker(process=True, **options) as broker:
        await torment(broker, loads, rounds, SEED, chosen=lambda _: faults)
        for load in loads:
            await load.check(broker)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_users_rules_and_quotas_hold_after_kills_and_clients_over_tls_lose_nothing(
    tmp_path: Path,
) -> None:
    files = make_certificates(tmp_path)
    loads: list[Load] = [
        Administrator(files.ca),
        SecuredProducer(files.ca),
        SecuredKafkaProducer(files.ca),
        Intruder(files.ca),
    ]
    options: dict[str, object] = {
        "tls_certificate": files.server.certificate,
        "tls_key": files.server.key,
        "users": USERS,
        "super_users": "root",
    }
    await tormented(loads, kills(random.Random(SEED)), ROUNDS, options)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_retention_and_compaction_take_nothing_else_over_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_jumping_clock(monkeypatch, tmp_path)
    await tormented([Retained(), Compacted(), NativeProducer()], kills(random.Random(SEED)), ROUNDS, {})


def jumps(clock: JumpingClock, dice: random.Random) -> Iterator[Fault]:
    """Move the wall clock an hour forwards or back, by itself or while the broker is down; every
    other jump restores it.
    """

    async def jump(_: Endured) -> None:
        clock.jump(ahead.pop())
        await asyncio.sleep(dice.uniform(0.2, 0.6))

    async def jump_while_down(it: Endured) -> None:
        await asyncio.to_thread(it.broker.kill)
        clock.jump(ahead.pop())
        await asyncio.to_thread(it.broker.restart)

    ahead: list[int] = []
    while True:
        if not ahead:
            ahead += dice.choice(([-HOUR_MS, HOUR_MS], [HOUR_MS, -HOUR_MS]))
        yield dice.choice((jump, jump_while_down))
        yield dice.choice((jump, kill)) if ahead else kill


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_a_wall_clock_that_jumps_an_hour_loses_nothing_and_ends_no_lease_or_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = use_jumping_clock(monkeypatch, tmp_path)
    loads: list[Load] = [
        NativeProducer(),
        NativeGroup(),
        QueueWorkers(),
        KafkaTransactions(SEED),
        Retained(),
        Compacted(),
    ]
    faults = jumps(clock, random.Random(SEED))
    await tormented(loads, faults, ROUNDS, {"group_min_session_timeout_ms": 1_000})


# ── the judges are judged ─────────────────────────────────────────────────────────────────────────


async def test_a_change_that_was_confirmed_and_does_not_hold_is_seen() -> None:
    register = Register()

    async def works() -> None: ...

    async def fails() -> None:
        raise ConnectionError

    await register.change("a", 1, works)
    await register.change("b", 1, works)
    with pytest.raises(ConnectionError):
        await register.change("b", 2, fails)
    assert register.breaches({"a": 1, "b": 1}) == register.breaches({"a": 1, "b": 2}) == []
    assert len(register.breaches({"a": 2, "b": 3})) == 2
    assert len(register.breaches({"b": 1})) == 1
    assert len(register.breaches({"a": 1, "b": 1, "c": 1})) == 1


def test_a_compacted_topic_that_lost_the_last_value_of_a_key_is_seen() -> None:
    load = Compacted()
    load._sent[0], load._acknowledged[0] = [1, 2, 3], 2
    rest: dict[int, list[int]] = {key: [] for key in range(1, 20)}
    for good in ([1, 2], [2], [2, 3], [3]):
        assert load.breaches({0: good, **rest}) == []
    for bad in ([1], [], [2, 2], [3, 2], [2, 9]):
        assert load.breaches({0: bad, **rest})


def test_a_topic_that_lost_more_than_retention_may_take_is_seen() -> None:
    load = Retained()
    load._ledger.acknowledged = {number: (0, number) for number in range(4)}
    found = {(0, offset): offset for offset in (2, 3)}
    assert load.breaches({0: 2}, {0: 4}, {0: 50_000}, found) == []
    assert load.breaches({0: 2}, {0: 4}, {0: 10_000}, found)
    assert load.breaches({0: 1}, {0: 4}, {0: 50_000}, found)
    assert load.breaches({0: 2}, {0: 4}, {0: 50_000}, {(0, 2): 2, (0, 3): 2})
    assert load.breaches({0: 2}, {0: 3}, {0: 50_000}, {(0, 2): 2})
