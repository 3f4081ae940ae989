"""messagebroker: publishers that close their side, and a subscriber that resumes at its
position.
"""

from __future__ import annotations

import asyncio

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Kind
from tests.crash.loads.seeds import is_kept, port_of, used
from tests.crash.loads.topic import PAUSE_S, TopicLoad
from tests.seeds.messagebroker_client import FROM, Publisher, Subscriber

_MOST = 0xFFFF
"""The protocol's offsets have 16 bits."""


class MessagebrokerClients(TopicLoad):
    """Clients of messagebroker: confirmed messages exist once, in order; a subscriber gets each at
    least once."""

    name = "messagebroker"

    async def publish(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        publisher = await Publisher.connect(port_of(broker, "messagebroker"))
        async with used(publisher.wire):
            numbers = self.burst()
            publisher.publish(self.name.encode(), *(b"%d" % number for number in numbers))
            if await is_kept(publisher.wire):
                for number in numbers:
                    self.history.note(Kind.ACKNOWLEDGED, number)
        await asyncio.sleep(PAUSE_S)

    async def read(self, broker: RunningBroker, by: str) -> None:
        port = port_of(broker, "messagebroker")
        # First deliveries come in the order of offsets, so this is the offset of the last one.
        start = min(max(0, self.history.count(Kind.READ) - 1), _MOST)
        subscriber = await Subscriber.connect(port, self.name, start=FROM, offset=start)
        async with used(subscriber.wire):
            while True:
                _, data = await subscriber.delivered()
                subscriber.reply()
                self.history.note(Kind.READ, int(data), by=by)
