"""The door for clients of messagebroker: push, with ack and nack.

A topic is one of Sparrow's; each connection that subscribes reads it by itself, from where it asks for (`delivering.py`). Publishers are told nothing but
what went wrong: status 3 with a sentence, and the connection goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import SparrowError
from sparrow.frontends.publishing import Columns
from sparrow.frontends.seeds.delivering import Deliverer
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.pump import Port
from sparrow.frontends.seeds.serial import SerialPump
from sparrow.protocol.seeds import messagebroker as wire

if TYPE_CHECKING:
    from sparrow.frontends.seeds.frontend import Context


def open_door(context: Context) -> Port:
    """The door of this seed."""
    return Port("messagebroker", context, MessageBrokerPump)


class MessageBrokerPump(SerialPump[wire.Event]):
    """One publisher or subscriber."""

    def __init__(self, port: Port) -> None:
        self._decoder = wire.Decoder(port.context.settings.max_message_bytes)
        super().__init__(port, self._decoder)
        self._deliverer: Deliverer | None = None

    def received(self, data: bytes) -> bool:
        self._decoder.receive_data(data)
        events = self._decoder.events()
        for event in events:
            if isinstance(event, wire.Publish):
                self._publish(event)
            elif isinstance(event, wire.Answer):
                if self._deliverer is not None:
                    self._deliverer.answered(is_ack=event.is_ack)
            else:
                self._to_do.append(event)
        self._begin_serving()
        return bool(events)

    def ended(self) -> None:
        if self._deliverer is not None:
            self.port.start(self._deliverer.close())

    # ── publishing ────────────────────────────────────────────────────────────────────────────────

    def _publish(self, event: wire.Publish) -> None:
        try:
            topic = topic_of(event.topic[len(wire.PREFIX) :])
        except SparrowError as error:
            self._tell(error.text)
            return
        self._intake.publish(topic, Columns(event.values), sum(map(len, event.values)))

    def _not_kept(self, topic: str, count: int, error: SparrowError) -> None:
        self._tell(f"{count} messages for topic {topic!r} are not kept: {error.text}")

    def _tell(self, text: str) -> None:
        self.write(wire.status(wire.Status.ERROR, text))

    # ── subscribing ───────────────────────────────────────────────────────────────────────────────

    async def _serve(self) -> None:
        """Answer what was asked, one after the other."""
        try:
            while self._to_do and self.is_open:
                await self.until_writable()
                event = self._to_do.popleft()
                try:
                    await self._handle(event)
                except SparrowError as error:
                    self._tell(error.text)
        except BaseException:
            self.abort()
            raise
        finally:
            self._served()

    async def _handle(self, event: wire.Event) -> None:
        if isinstance(event, wire.Subscribe):
            self.unstake()
            await self._subscribe(event)
            self.write(wire.status(wire.Status.SUBSCRIBED))
        elif isinstance(event, wire.Unsubscribe):
            if self._deliverer is not None:
                await self._deliverer.unsubscribe([name.encode() for name in event.topics])
            self.write(wire.status(wire.Status.UNSUBSCRIBED))
        elif isinstance(event, wire.Wrong):
            self._tell(event.text)
            if event.is_end:
                self.finish(event.text)

    async def _subscribe(self, event: wire.Subscribe) -> None:
        if self._deliverer is None:
            self._deliverer = Deliverer(self)
        names = dict.fromkeys(name.encode() for name in event.topics)
        await self._deliverer.subscribe(list(names), event.start, event.offset)
