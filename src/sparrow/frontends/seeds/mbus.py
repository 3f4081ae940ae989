"""The doors of Message Bus (mbus): that for producers is in `mbus_producers.py`, that for consumers here.

A consumer gets what is queued: the queue `<topic>.mbus` hands each message to one consumer, in order. Messages are acknowledged when the socket has
taken them, before the connection is closed; those of a consumer that was gone by then are ready for the next.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.broker.queues.settlement import Verb
from sparrow.frontends.seeds.mbus_producers import ProducerPort
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.pump import Port, Pump, too_long
from sparrow.frontends.seeds.queues import CURSORS, lease_published, open_queue, settlements_of, take_back
from sparrow.protocol.seeds import mbus

if TYPE_CHECKING:
    from sparrow.frontends.seeds.frontend import Context

QUEUE_SUFFIX: Final = CURSORS[1]
CONSUMERS: Final = "mbus-"
"""With this the ids of consumers begin."""
MAX_AT_ONCE: Final = 1000
"""Messages that a consumer is sent before they are acknowledged."""
MAX_BYTES_AT_ONCE: Final = 1 << 20


def open_producer_door(context: Context) -> ProducerPort:
    """The door to which producers connect."""
    return ProducerPort(context)


def open_consumer_door(context: Context) -> Port:
    """The door to which consumers connect."""
    return Port("mbus_consumer", context, ConsumerPump)


class ConsumerPump(Pump):
    """One question for what is queued."""

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._name = b""
        self._serving: asyncio.Task[None] | None = None

    def opened(self) -> None:
        self.began_s = self.port.loop.time()
        assert self.transport is not None
        self.transport.set_write_buffer_limits(
            high=0
        )  # so that `until_writable` means: the socket has taken it all

    @property
    def bytes_wanted(self) -> int:
        return 1 if self._serving is None else 0

    def received(self, data: bytes) -> bool:
        if self._serving is not None:
            return True  # it has nothing more to say
        self._name += data
        name, newline, _ = self._name.partition(b"\n")
        if len(name) > mbus.MAX_NAME_BYTES:
            raise too_long("the name of a topic", len(name), mbus.MAX_NAME_BYTES)
        if newline:
            self._start(name)
        return bool(newline)

    def eof_received(self) -> bool:
        """A consumer may close its side and still read."""
        if self._serving is None and self._name and self.is_open:
            self._start(self._name)
        return self._serving is not None

    def _start(self, name: bytes) -> None:
        self.began_s = 0.0
        self._serving = self.port.start(self._serve(name.removesuffix(b"\r")))

    async def _serve(self, name: bytes) -> None:
        try:
            topic = topic_of(name)
            if self.port.context.broker.topics.find(topic) is not None:
                await self._send_all(topic)
            self.close()
        except SparrowError as error:
            self.refuse(error.text)
        except BaseException:
            self.abort()
            raise

    async def _send_all(self, topic: str) -> None:
        broker, queue = self.port.context.broker, topic + QUEUE_SUFFIX
        consumer = await open_queue(broker, queue, topic, f"{CONSUMERS}{uuid.uuid4()}")
        await take_back(broker, queue, CONSUMERS)
        try:
            while records := await lease_published(consumer, MAX_AT_ONCE, MAX_BYTES_AT_ONCE):
                self.write(b"".join(mbus.line(record.value or b"") for record in records))
                await self.until_writable()
                if not self.is_open:
                    return
                await consumer.settle(settlements_of(records, Verb.ACK))
        finally:
            await consumer.close(give_back=True)
