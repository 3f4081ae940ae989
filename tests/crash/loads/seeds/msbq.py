"""msbq: publishers that close their side, and streams that get queued messages pushed."""

from __future__ import annotations

import asyncio

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Kind
from tests.crash.loads.seeds import is_kept, port_of, used
from tests.crash.loads.topic import PAUSE_S, TopicLoad
from tests.seeds.msbq_client import MsbqClient


class MsbqClients(TopicLoad):
    """Clients of msbq: confirmed messages exist once, in order. A stream gets each, and possibly
    twice if a connection broke.
    """

    name = "msbq"

    async def publish(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        client = await MsbqClient.connect(port_of(broker, "msbq"))
        async with used(client.wire):
            numbers = self.burst()
            client.publish(self.name, *(b"%d" % number for number in numbers))
            if await is_kept(client.wire):
                for number in numbers:
                    self.history.note(Kind.ACKNOWLEDGED, number)
        await asyncio.sleep(PAUSE_S)

    async def read(self, broker: RunningBroker, by: str) -> None:
        client = await MsbqClient.connect(port_of(broker, "msbq"))
        async with used(client.wire):
            client.consume(self.name)
            while True:
                _, body = await client.get()
                self.history.note(Kind.READ, int(body), by=by)
