"""Syncbrok: messages with parents are POSTed in, and POSTed to an endpoint."""

from __future__ import annotations

import asyncio
import base64
import random

from aiohttp import web

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Found, Kind
from tests.crash.histories.queues import ACK, children_first
from tests.crash.loads.endpoint import Endpoint
from tests.crash.loads.seeds import port_of, used
from tests.crash.loads.topic import PAUSE_S, TopicLoad
from tests.seeds.syncbrok_client import SyncbrokClient


class SyncbrokClients(TopicLoad):
    """Clients of Syncbrok: each message that was confirmed is delivered, always with the UUID of
    the response, and after its parent was accepted.
    """

    name = "syncbrok"
    readers = 0

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)
        self._endpoint = Endpoint(self._take)
        self._uuids: dict[int, str] = {}
        self._delivered: dict[int, set[str]] = {}
        self._parents: dict[int, list[int]] = {}

    async def prepare(self, broker: RunningBroker) -> None:
        url = await self._endpoint.open()
        client = await SyncbrokClient.connect(port_of(broker, "syncbrok"))
        async with used(client.wire):
            await client.queue(self.name)
            await client.subscribe(self.name, url)

    async def publish(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        client = await SyncbrokClient.connect(port_of(broker, "syncbrok"))
        async with used(client.wire):
            while not stop.is_set():
                for number in self.burst():
                    await self._post(client, number)
                await asyncio.sleep(PAUSE_S)

    async def _post(self, client: SyncbrokClient, number: int) -> None:
        parent = self._dice.choice(list(self._uuids)[-10:]) if self._uuids and number % 3 else None
        self._parents[number] = [] if parent is None else [parent]
        uuid = "" if parent is None else self._uuids[parent]
        try:
            self._uuids[number] = await client.publish(self.name, b"%d" % number, uuid)
        except AssertionError as refused:  # with 503 or 507
            raise ConnectionError(str(refused)) from None
        self.history.note(Kind.ACKNOWLEDGED, number)

    async def _take(self, request: web.Request) -> web.Response:
        message = await request.json()
        number = int(base64.b64decode(message["content"]))
        self._delivered.setdefault(number, set()).add(message["id"])
        self.history.note(Kind.HANDED_OUT, number)
        self.history.note(Kind.SETTLING, number, what=ACK)
        self.history.note(Kind.READ, number)
        return web.Response(body=b"true")

    def misread(self, found: list[Found]) -> list[str]:
        breaches = [
            f"{number} was delivered as {ids}" for number, ids in self._delivered.items() if len(ids) > 1
        ]
        breaches += [
            f"{number} was answered as {uuid}, and delivered as {self._delivered.get(number)}"
            for number, uuid in self._uuids.items()
            if self._delivered.get(number) != {uuid}
        ]
        return breaches + children_first(self.history, self._parents)

    async def check(self, broker: RunningBroker) -> None:
        await self._endpoint.close()
        await super().check(broker)
