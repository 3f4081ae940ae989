"""HTTP: messages with an idempotency key, sent again until there is an answer."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiohttp

from sparrow.client import connect
from sparrow.testing.running import RunningBroker
from tests.crash.publisher import PARTITIONS, number_of, read_all

_AGAIN_S = 0.02


class HttpPublisher:
    """Each message is there once, however often its request was sent."""

    name = "http"

    def __init__(self) -> None:
        self._sent = 0
        self._answered: dict[int, tuple[int, int]] = {}

    async def prepare(self, broker: RunningBroker) -> None:
        async with connect(broker.url) as client:
            await client.admin.create_topic(self.name, partitions=PARTITIONS)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(4):
                group.create_task(
                    self._publish(session, f"{broker.http}/v1/topics/{self.name}/messages", stop)
                )

    async def _publish(self, session: aiohttp.ClientSession, url: str, stop: asyncio.Event) -> None:
        while not stop.is_set():
            number, self._sent = self._sent, self._sent + 1
            while number not in self._answered:
                try:
                    await self._ask(session, url, number)
                except (aiohttp.ClientError, TimeoutError, ConnectionError):
                    await asyncio.sleep(_AGAIN_S)

    async def _ask(self, session: aiohttp.ClientSession, url: str, number: int) -> None:
        headers = {"Idempotency-Key": f"key-{number}"}
        async with session.post(url, data=b"%d x" % number, headers=headers) as answer:
            if answer.status in {
                409,
                425,
                503,
            }:  # its first request is still at work, or the broker starts or stops
                await asyncio.sleep(_AGAIN_S)
                return
            found = await answer.json(content_type=None)
            assert answer.status in {200, 201}, found
            self._answered[number] = (found["partition"], found["offset"])

    async def check(self, broker: RunningBroker) -> None:
        found = await read_all(broker.url, self.name)
        copies = Counter(map(number_of, found))
        assert copies == Counter(self._answered.keys())
        places = {number_of(message): (message.partition, message.offset) for message in found}
        assert places == self._answered
        assert len(self._answered) == self._sent

    @property
    def progress(self) -> int:
        return len(self._answered)
