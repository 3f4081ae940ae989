"""One hostile and three honest idempotent producers, with kills of the broker and of producers:
confirmed records exist once.

`make crash` has more rounds (SPARROW_CRASH_ROUNDS); SPARROW_CRASH_SEED repeats the order of the
kills.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import sparrow.testing
from sparrow.client import connect
from sparrow.testing.running_broker import RunningBroker
from tests.crash.loads.hostile import VALUE, Hostile
from tests.crash.publisher import read_all
from tests.repetitions import CRASH_ROUNDS

ROUNDS = max(6, CRASH_ROUNDS // 4)
SEED = int(os.environ.get("SPARROW_CRASH_SEED", "1"))
TOPIC = "orders"
TOKENS = {"root": "r-token", "ann": "a-token", "bob": "b-token", "cid": "c-token", "mallory": "m-token"}
HONEST = {"kafka": "ann", "native": "bob", "http": "cid"}
ROUND_CONFIRMATIONS = 40
"""Confirmations of each producer before the next kill."""
PATIENCE_S = 180
FAR = 1_000_000


class Honest:
    """The processes of one honest producer, one after the other; `confirmed` is what they said."""

    def __init__(self, kind: str, broker: RunningBroker, number: int) -> None:
        user = HONEST[kind]
        self.confirmed: list[int] = []
        self.failed: list[str] = []
        self.kind = kind
        address = {"kafka": broker.kafka, "native": broker.url, "http": broker.http}[kind]
        self._command = [sys.executable, "-m", "tests.crash.honest", kind, address, user, TOKENS[user], TOPIC]
        self._next = number * 100 * FAR
        self.start()

    def start(self) -> None:
        """Start a new program, whose numbers begin far behind those of the last."""
        self._process = subprocess.Popen(
            [*self._command, str(self._next)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._next += FAR
        self._reader = threading.Thread(target=self._read, args=[self._process])
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("failed"):
                self.failed.append(line.strip())
            elif line.endswith("\n"):
                self.confirmed.append(int(line))

    def kill(self) -> None:
        self._process.kill()
        self._close()

    def _close(self) -> int:
        code = self._process.wait(PATIENCE_S)
        self._reader.join()
        for each in (self._process.stdin, self._process.stdout):
            assert each is not None
            each.close()
        return code

    def finish(self) -> int:
        """Let it finish; return the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._close()


def wait_for_more(producers: list[Honest]) -> None:
    """Wait until each producer has some more confirmations."""
    goals = [(each, len(each.confirmed) + ROUND_CONFIRMATIONS) for each in producers]
    deadline = time.monotonic() + PATIENCE_S
    while any(len(each.confirmed) < goal for each, goal in goals):
        assert not any(each.failed for each in producers), [each.failed[:3] for each in producers]
        assert time.monotonic() < deadline, {each.kind: len(each.confirmed) for each in producers}
        time.sleep(0.01)


def torment(broker: RunningBroker, producers: list[Honest]) -> None:
    """Kill the broker and the producers, each of them several times."""
    dice = random.Random(SEED)
    for number in range(ROUNDS):
        wait_for_more(producers)
        if number % 2:
            victim = producers[(number // 2) % len(producers)]
            victim.kill()
            victim.start()
        else:
            time.sleep(dice.random() * 0.05)
            broker.kill()
            broker.restart()
    wait_for_more(producers)


@pytest.mark.slow
@pytest.mark.timeout(900 + 5 * ROUNDS)
async def test_confirmed_records_of_honest_producers_are_there_once_beside_a_hostile_one(
    tmp_path: Path,
) -> None:
    options = {"tokens": TOKENS, "super_users": "User:root", "acl_default": "allow", "default_partitions": 1}
    with sparrow.testing.broker(process=True, data_dir=str(tmp_path / "data"), **options) as broker:
        root = broker.url.replace("://", f"://:{TOKENS['root']}@")
        async with connect(root) as client:
            await client.admin.create_topic(TOPIC, partitions=1)
        hostile = Hostile(TOPIC, "mallory", TOKENS["mallory"])
        attack = threading.Thread(target=hostile.work, args=[broker.kafka])
        attack.start()
        producers = [Honest(kind, broker, number) for number, kind in enumerate(HONEST)]
        try:
            await asyncio.to_thread(torment, broker, producers)
            codes = [await asyncio.to_thread(each.finish) for each in producers]
        finally:
            hostile.is_over = True
            for each in producers:
                each.kill()
            attack.join()
        known = [(each, 0, 0) for each in sorted(hostile.seen)][:50]
        refusals = Counter(await hostile.attack_natively(broker.host, broker.port, known))
        found = Counter(each.value for each in await read_all(root, TOPIC))

    assert hostile.failure is None, repr(hostile.failure)
    assert codes == [0, 0, 0]
    print(
        f"{ {each.kind: len(each.confirmed) for each in producers} }, hostile: "
        f"{dict(hostile.outcomes)}, {refusals}"
    )
    for each in producers:
        assert len(each.confirmed) > ROUNDS * ROUND_CONFIRMATIONS
        lost = [number for number in each.confirmed if found[b"%d" % number] != 1]
        assert lost == [], f"{each.kind}: not there once: {lost[:10]}"
    assert [value for value, times in found.items() if times > 1] == []
    assert hostile.taken == []
    assert found[VALUE] == 0
    assert len(hostile.seen) > ROUNDS, "he had ids to try"
    assert set(hostile.outcomes) == {"producer_fenced"}
    assert set(refusals) == {"UNKNOWN_PRODUCER"}
