"""HTTP: messages with an idempotency key, sent again until there is a response; and workers of a
queue with priorities.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import aiohttp

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Found, History, Kind, kept
from tests.crash.histories.logs import doubled, invented, lost
from tests.crash.histories.queues import ACK, leased_twice, overtaken, redelivered, unfinished
from tests.crash.loads.patience import AGAIN_S, TROUBLE, again_until, soon
from tests.crash.loads.topic import BURST, PAUSE_S, in_topic
from tests.crash.publisher import PARTITIONS, connect_eagerly

_AWAY = frozenset({409, 425, 429, 503, 507})
"""Codes of temporary refusals: the first request is still running, the broker starts or stops, or
its disk is full.
"""

_WAITING = 30
"""Messages of a queue that wait, so that there is a choice."""


def session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))


async def ask(http: aiohttp.ClientSession, url: str, **request: Any) -> Any:
    """Return the response to a POST. Raise ConnectionError if the broker refuses it for now."""
    async with http.post(url, **request) as answer:
        if answer.status in _AWAY:
            raise ConnectionError(await answer.text())
        found = await answer.json(content_type=None)
        assert answer.status in {200, 201, 207}, found
        return found


class HttpPublisher:
    """An HTTP publisher: each message exists once, however often its request was sent."""

    name = "http"

    def __init__(self) -> None:
        self.history = History()
        self._sent = 0

    async def prepare(self, broker: RunningBroker) -> None:
        async with await connect_eagerly(broker.url) as client:
            await client.admin.create_topic(self.name, partitions=PARTITIONS)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        url = f"{broker.http}/v1/topics/{self.name}/messages"
        async with session() as http, asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(self._publish(http, url, stop))

    async def _publish(self, http: aiohttp.ClientSession, url: str, stop: asyncio.Event) -> None:
        while not stop.is_set():
            number, self._sent = self._sent, self._sent + 1
            await published(http, url, number, self.history)
            await asyncio.sleep(PAUSE_S)

    async def check(self, broker: RunningBroker) -> None:
        found = await in_topic(broker, self.name)
        kept(self.breaches(found))

    def breaches(self, found: list[Found]) -> list[str]:
        missing = self.history.numbers(Kind.SENT) - self.history.numbers(Kind.ACKNOWLEDGED)
        unanswered = [f"{number} had no answer in the end" for number in sorted(missing)]
        return (
            unanswered
            + lost(self.history, found)
            + invented(self.history, found)
            + doubled(self.history, found)
        )

    @property
    def progress(self) -> int:
        return self.history.count(Kind.ACKNOWLEDGED)


async def published(
    http: aiohttp.ClientSession, url: str, number: int, history: History, **headers: str
) -> None:
    """Publish with a key until there is a response."""
    headers["Idempotency-Key"] = f"{url.rpartition('/v1/')[2]}-{number}"
    answered = asyncio.Event()

    async def once() -> None:
        history.note(Kind.SENT, number)
        found = await ask(http, url, data=b"%d x" % number, headers=headers)
        history.note(Kind.ACKNOWLEDGED, number, (found["partition"], found["offset"]))
        answered.set()

    await again_until(answered, once)


class HttpWorkers:
    """Workers over HTTP: acknowledged jobs are never leased again, leased jobs to no second worker,
    and urgent ones come first.
    """

    name = "urgent"
    _LEASE_S = 2.0

    def __init__(self, seed: int) -> None:
        self.history = History()
        self._dice = random.Random(seed)
        self._priorities: dict[int, int] = {}

    async def prepare(self, broker: RunningBroker) -> None:
        async with await connect_eagerly(broker.url) as client:
            policy = {"lease_ms": round(self._LEASE_S * 1000), "delivery_limit": 0}
            await client.admin.create_queue(self.name, policy=policy, partitions=1)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        over = asyncio.Event()
        url = f"{broker.http}/v1/queues/{self.name}"
        async with session() as http:
            working = asyncio.create_task(again_until(over, lambda: self._work(http, url)))
            await self._publish(http, url, stop)
            await soon(lambda: not unfinished(self.history, self._priorities))
            over.set()
            await working

    async def _publish(self, http: aiohttp.ClientSession, url: str, stop: asyncio.Event) -> None:
        while not stop.is_set():
            wanted = max(0, BURST + _WAITING - len(self._priorities) + self.history.count(Kind.SETTLED))
            for _ in range(min(BURST, wanted)):
                number = len(self._priorities)
                self._priorities[number] = self._dice.randrange(10)
                urgency = {"Sparrow-Priority": str(self._priorities[number])}
                await published(http, f"{url}/messages", number, self.history, **urgency)
            await asyncio.sleep(PAUSE_S)

    async def _work(self, http: aiohttp.ClientSession, url: str) -> None:
        asked_s = time.monotonic()
        try:
            found = await ask(http, f"{url}/lease?max=2&wait_ms=50")
        except BaseException:
            self.history.note(Kind.UNANSWERED, asked_s=asked_s)
            raise
        leases = {each["lease"]: int(each["value"].split()[0]) for each in found["messages"]}
        for number, each in zip(leases.values(), found["messages"], strict=True):
            self.history.note(Kind.HANDED_OUT, number, asked_s=asked_s, count=each["delivery_count"])
        if leases:
            await self._acknowledge(http, url, leases)
        else:
            await asyncio.sleep(AGAIN_S)

    async def _acknowledge(self, http: aiohttp.ClientSession, url: str, leases: dict[str, int]) -> None:
        for number in leases.values():
            self.history.note(Kind.SETTLING, number, what=ACK)
        answered, tries = asyncio.Event(), 0

        async def once() -> None:
            nonlocal tries
            tries += 1
            try:
                codes = await self._settle(http, f"{url}/ack", list(leases))
            except TROUBLE:
                self.history.note(Kind.UNANSWERED)
                raise
            for number, code in zip(leases.values(), codes, strict=True):
                # A repeated request gets NOT_LEASED if the first one took effect.
                if not code or (tries > 1 and code == "NOT_LEASED"):
                    self.history.note(Kind.SETTLED, number, what=ACK)
            answered.set()

        await again_until(answered, once)

    async def _settle(self, http: aiohttp.ClientSession, url: str, leases: list[str]) -> list[str]:
        """Settle leases. Return for each the code of its error, or ""."""
        async with http.post(url, json={"leases": leases}) as answer:
            found = await answer.json(content_type=None)
            if answer.status in {200, 207}:
                return [each["error"]["code"] if "error" in each else "" for each in found["leases"]]
            if answer.status == 409:
                return [found["code"]] * len(leases)
            raise ConnectionError(found)

    async def check(self, broker: RunningBroker) -> None:
        found = await in_topic(broker, self.name)
        kept(
            lost(self.history, found),
            doubled(self.history, found),
            unfinished(self.history, self._priorities),
            redelivered(self.history),
            leased_twice(self.history, self._LEASE_S),
            overtaken(self.history, self._priorities),
        )

    @property
    def progress(self) -> int:
        return self.history.count(Kind.SETTLED)
