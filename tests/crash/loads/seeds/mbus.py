"""Message Bus (mbus): producers that wait for the end of their connection, and consumers that
request queued messages.
"""

from __future__ import annotations

import asyncio

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Kind
from tests.crash.loads.seeds import is_kept, port_of, used
from tests.crash.loads.topic import PAUSE_S, TopicLoad
from tests.seeds.listeners import TIMEOUT_S, Wire
from tests.seeds.mbus_client import message


class MbusClients(TopicLoad):
    """Clients of mbus: confirmed messages exist once, in order. Consumers get each, and possibly
    twice if a connection broke.
    """

    name = "mbus"

    async def publish(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        for number in self.burst():
            async with used(await Wire.open(port_of(broker, "mbus"))) as wire:
                wire.send(message(self.name.encode(), b"%d" % number))
                if await is_kept(wire):
                    self.history.note(Kind.ACKNOWLEDGED, number)
        await asyncio.sleep(PAUSE_S)

    async def read(self, broker: RunningBroker, by: str) -> None:
        async with used(await Wire.open(port_of(broker, "mbus_consumer"))) as wire:
            wire.send(self.name.encode() + b"\n")
            while True:
                async with asyncio.timeout(TIMEOUT_S):
                    line = await wire.reader.readline()
                if not line.endswith(b"\n"):
                    break
                self.history.note(Kind.READ, int(line), by=by)
        await asyncio.sleep(PAUSE_S)
