"""The listeners of Message Bus (mbus): the one for producers is in `mbus_producers.py`, the one for
consumers here.

A consumer gets the queued messages: the queue `<topic>.mbus` hands each message to one consumer, in
order. Messages are acknowledged when they have been written to the socket, before the connection is
closed. If the connection was lost before, they are ready for the next consumer.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.broker.queues.rules.settlement import Verb
from sparrow.frontends.seeds.caller import caller
from sparrow.frontends.seeds.connection import SeedConnection, too_long
from sparrow.frontends.seeds.context import Port
from sparrow.frontends.seeds.handout_queues import (
    CURSORS,
    lease_published,
    open_queue,
    settlements_of,
)
from sparrow.frontends.seeds.mbus_producers import MbusProducerPort
from sparrow.frontends.seeds.names import topic_of
from sparrow.protocol.seeds import mbus

if TYPE_CHECKING:
    from sparrow.frontends.seeds.context import SeedContext

QUEUE_SUFFIX: Final = CURSORS[1]
CONSUMERS: Final = "mbus-"
"""Prefix of the ids of consumers."""
MAX_AT_ONCE: Final = 1000
"""Messages that are sent to a consumer before they are acknowledged."""
MAX_BYTES_AT_ONCE: Final = 1 << 20


def open_producer_listener(context: SeedContext) -> MbusProducerPort:
    """Create the listener for producers."""
    return MbusProducerPort(context)


def open_consumer_listener(context: SeedContext) -> Port:
    """Create the listener for consumers."""
    return Port("mbus_consumer", context, MbusConsumerConnection)


class MbusConsumerConnection(SeedConnection):
    """One request for all queued messages."""

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._name = b""
        self._serving: asyncio.Task[None] | None = None

    def opened(self) -> None:
        assert self.transport is not None
        self.transport.set_write_buffer_limits(
            high=0
        )  # so that `until_writable` waits until the socket has taken all bytes

    @property
    def unfinished_bytes(self) -> int:
        return 1 if self._serving is None else 0

    def received(self, data: bytes) -> bool:
        if self._serving is not None:
            return True  # it sends nothing more that matters
        self._name += data
        name, newline, _ = self._name.partition(b"\n")
        if len(name) > mbus.MAX_NAME_BYTES:
            raise too_long("the name of a topic", len(name), mbus.MAX_NAME_BYTES)
        if newline:
            self._start(name)
        return bool(newline)

    def eof_received(self) -> bool:
        """Start without a newline: a consumer may close its side and still read."""
        if self._serving is None and self._name and self.is_open:
            self.settle()
            self._start(self._name)
        return self._serving is not None

    def _start(self, name: bytes) -> None:
        self._serving = self.context.spawn(self._serve(name.removesuffix(b"\r")))

    async def _serve(self, name: bytes) -> None:
        try:
            topic = topic_of(name)
            if self.context.broker.topics.exists(topic):
                await self._send_all(topic)
            self.close()
        except SparrowError as error:
            self.refuse(error.text)
        except BaseException:
            self.abort()
            raise

    async def _send_all(self, topic: str) -> None:
        broker, queue = self.context.broker, topic + QUEUE_SUFFIX
        consumer = await open_queue(self.context, queue, topic, f"{CONSUMERS}{uuid.uuid4()}")
        await broker.queues.release_abandoned(queue, CONSUMERS, principal=caller())
        try:
            while records := await lease_published(consumer, MAX_AT_ONCE, MAX_BYTES_AT_ONCE):
                self.send(b"".join(mbus.line(record.value or b"") for record in records))
                await self.until_writable()
                if not self.is_open:
                    return
                await consumer.settle(settlements_of(records, Verb.ACK))
        finally:
            await consumer.close(release=True)
