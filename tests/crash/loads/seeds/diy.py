"""diy_message_broker: publishers that send a goodbye, and consumers that share a cursor."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Found, Kind
from tests.crash.histories.logs import reread
from tests.crash.loads.seeds import port_of, used
from tests.crash.loads.topic import PAUSE_S, TopicLoad
from tests.seeds.diy_client import CONSUME_EMPTY, GOODBYE, DiyClient


class DiyClients(TopicLoad):
    """Clients of diy_message_broker: messages that a goodbye confirmed exist once, in order. No two
    consumers get the same message; those in flight when a connection broke are lost.
    """

    name = "diy"
    readers: ClassVar[int] = 2

    def __init__(self) -> None:
        super().__init__()
        self._broken = 0
        """Requests without a response."""

    async def publish(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        client = await DiyClient.connect(port_of(broker, "diy_message_broker"))
        async with used(client.wire):
            numbers = self.burst()
            for number in numbers:
                client.publish(self.name.encode(), b"%d" % number)
            await client.goodbye()
        for number in numbers:
            self.history.note(Kind.ACKNOWLEDGED, number)
        await asyncio.sleep(PAUSE_S)

    async def read(self, broker: RunningBroker, by: str) -> None:
        client = await DiyClient.connect(port_of(broker, "diy_message_broker"))
        async with used(client.wire):
            while True:
                self._broken += 1
                frame = await client.consume(self.name.encode())
                self._broken -= 1
                if frame.type == GOODBYE:
                    raise ConnectionError("the broker stops")
                if frame.type == CONSUME_EMPTY:
                    await asyncio.sleep(PAUSE_S)
                else:
                    self.history.note(Kind.READ, int(frame.data), by=by)

    def is_done(self) -> bool:
        missing = self.history.numbers(Kind.ACKNOWLEDGED) - self.history.numbers(Kind.READ)
        return len(missing) <= self._broken

    def misread(self, found: list[Found]) -> list[str]:
        missing = {each.number for each in found} - self.history.numbers(Kind.READ)
        breaches = reread(self.history)
        if len(missing) > self._broken:
            breaches.append(
                f"{sorted(missing)[:20]} were given to nobody, and only {self._broken} answers were lost"
            )
        return breaches
