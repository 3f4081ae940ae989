"""The listener for clients of messagebroker: push, with ack and nack.

A topic is a topic of Sparrow; each subscribing connection reads it on its own, from the position
that it requests (`deliverer.py`). Publishers get a message only for an error: status 3 with a
sentence, and the connection stays open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import SparrowError
from sparrow.frontends.publisher import MessageColumns
from sparrow.frontends.seeds.context import Port
from sparrow.frontends.seeds.deliverer import Deliverer
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.serial_connection import SerialConnection
from sparrow.protocol.seeds import messagebroker as wire

if TYPE_CHECKING:
    from sparrow.frontends.seeds.context import SeedContext


def open_listener(context: SeedContext) -> Port:
    """Create the listener of this seed."""
    return Port("messagebroker", context, MessageBrokerConnection)


class MessageBrokerConnection(SerialConnection[wire.Event]):
    """A publisher or subscriber."""

    def __init__(self, port: Port) -> None:
        self._decoder = wire.Decoder(port.settings.max_message_bytes)
        super().__init__(port, self._decoder)
        self._deliverer: Deliverer | None = None

    def received(self, data: bytes) -> bool:
        self._decoder.receive_data(data)
        events = self._decoder.events()
        for event in events:
            if isinstance(event, wire.Publish):
                self._publish(event)
            elif isinstance(event, wire.Acknowledgement):
                if self._deliverer is not None:
                    self._deliverer.acknowledged(is_ack=event.is_ack)
            else:
                self._to_do.append(event)
        self._begin_serving()
        return bool(events)

    def lost(self) -> None:
        if self._deliverer is not None:
            self.context.spawn(self._deliverer.close())

    # ── publish ───────────────────────────────────────────────────────────────────────────────────

    def _publish(self, event: wire.Publish) -> None:
        try:
            topic = topic_of(event.topic[len(wire.PREFIX) :])
        except SparrowError as error:
            self._send_error(error.text)
            return
        self._publish_queue.publish(topic, MessageColumns(event.values), sum(map(len, event.values)))

    def _publish_failed(self, topic: str, count: int, error: SparrowError) -> None:
        self._send_error(f"{count} messages for topic {topic!r} are not kept: {error.text}")

    def _send_error(self, text: str) -> None:
        self.send(wire.status(wire.Status.ERROR, text))

    # ── subscribe ─────────────────────────────────────────────────────────────────────────────────

    async def _serve(self) -> None:
        """Handle requests one after the other."""
        try:
            while self._to_do and self.is_open:
                await self.until_writable()
                event = self._to_do.popleft()
                try:
                    await self._handle(event)
                except SparrowError as error:
                    self._send_error(error.text)
        except BaseException:
            self.abort()
            raise
        finally:
            self._served()

    async def _handle(self, event: wire.Event) -> None:
        if isinstance(event, wire.Subscribe):
            self.allow_clean_close()
            await self._subscribe(event)
            self.send(wire.status(wire.Status.SUBSCRIBED))
        elif isinstance(event, wire.Unsubscribe):
            if self._deliverer is not None:
                await self._deliverer.unsubscribe([name.encode() for name in event.topics])
            self.send(wire.status(wire.Status.UNSUBSCRIBED))
        elif isinstance(event, wire.RequestFault):
            self._send_error(event.text)
            if event.is_end:
                self.finish(event.text)

    async def _subscribe(self, event: wire.Subscribe) -> None:
        if self._deliverer is None:
            self._deliverer = Deliverer(self)
        names = dict.fromkeys(name.encode() for name in event.topics)
        await self._deliverer.subscribe(list(names), event.start, event.offset)
