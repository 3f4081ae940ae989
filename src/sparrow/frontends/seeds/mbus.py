"""The doors for producers and consumers of Message Bus (mbus).

A producer connects for each message. What all those who closed their side within one turn of the loop sent is appended as one batch per topic; the
connection is closed when the message is on stable storage, and reset when it could not be kept: so a producer that waits for the end of its connection
knows. The original's producer does not wait.

A consumer gets what is queued: the queue `<topic>.mbus` hands each message to one consumer, in order. Messages are acknowledged when the socket has
taken them, before the connection is closed; those of a consumer that was gone by then are ready for the next.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.broker.queues.settlement import Verb
from sparrow.frontends.publishing import Message
from sparrow.frontends.seeds.intake import Intake
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.pump import SMALL_BYTES, Hold, Port, Pump, too_long
from sparrow.frontends.seeds.queues import lease_published, open_queue, records_of, settlements
from sparrow.protocol.seeds import mbus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.frontends.seeds.frontend import Context

QUEUE_SUFFIX: Final = ".mbus"
MAX_AT_ONCE: Final = 1000
"""Messages that a consumer is sent before they are acknowledged."""
MAX_BYTES_AT_ONCE: Final = 1 << 20


def open_producer_door(context: Context) -> Port:
    """The door to which producers connect."""
    return ProducerPort(context)


def open_consumer_door(context: Context) -> Port:
    """The door to which consumers connect."""
    return Port("mbus_consumer", context, ConsumerPump)


# ── producers ─────────────────────────────────────────────────────────────────────────────────────


class ProducerPort(Port):
    """The port of producers. It publishes for all its connections; they are not read from while too much is unconfirmed."""

    def __init__(self, context: Context) -> None:
        super().__init__("mbus", context, ProducerPump)
        self.port = self
        self.peer = "producers"
        self.max_bytes = context.settings.max_message_bytes + mbus.OVERHEAD_BYTES
        self.is_held = False
        self._intake = Intake(self, self._not_kept)
        self._batch: dict[str, tuple[list[Message], list[ProducerPump]]] = {}

    def take(self, pump: ProducerPump, sent: mbus.Sent) -> None:
        """Publish a message with all others of this turn of the loop."""
        if not self._batch:
            self.loop.call_soon(self._publish)
        messages, pumps = self._batch.setdefault(topic_of(sent.topic), ([], []))
        messages.append(Message(sent.data))
        pumps.append(pump)

    def _publish(self) -> None:
        batch, self._batch = self._batch, {}
        for topic, (messages, pumps) in batch.items():
            size_bytes = sum(len(message.value or b"") for message in messages)

            def tell(
                places: Sequence[int], error: SparrowError | None, pumps: list[ProducerPump] = pumps
            ) -> None:
                for place in places:
                    pumps[place].kept(error)

            self._intake.publish(topic, messages, size_bytes, tell)

    def _not_kept(self, topic: str, count: int, error: SparrowError) -> None:
        """Each connection has been told."""

    def hold(self, reason: int) -> None:
        """Read from no connection."""
        self.is_held = True
        for pump in self.pumps():
            pump.hold(reason)

    def unhold(self, reason: int) -> None:
        """Read again."""
        if self.is_held:
            self.is_held = False
            for pump in self.pumps():
                pump.unhold(reason)


class ProducerPump(Pump):
    """One message."""

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        assert isinstance(port, ProducerPort)
        self._producers = port
        self._chunks: list[bytes] = []
        self._size_bytes = 0
        self._is_taken = False

    def opened(self) -> None:
        self.began_s = self.port.loop.time()
        if self._producers.is_held:
            self.hold(Hold.WINDOW)

    @property
    def bytes_wanted(self) -> int:
        """Nobody announces a size: a message that is not small may become as large as is allowed."""
        return 1 if self._size_bytes <= SMALL_BYTES else self._producers.max_bytes

    def received(self, data: bytes) -> bool:
        self._chunks.append(data)
        self._size_bytes += len(data)
        if self._size_bytes > self._producers.max_bytes:
            raise too_long("a message", self._size_bytes, self._producers.max_bytes)
        if len(data) < SMALL_BYTES and len(self._chunks) > 64:  # whoever sends crumbs
            self._chunks = [b"".join(self._chunks)]
        return False

    def eof_received(self) -> bool:
        """The message is whole."""
        if not self.is_open or not self._chunks:
            return self._is_taken and self.is_open
        try:
            self._producers.take(self, mbus.decode(b"".join(self._chunks)))
        except SparrowError as error:
            self.refuse(error.text)
            return False
        self._is_taken = True
        self._chunks = []
        self.began_s = 0.0
        return True

    def hold(self, reason: int) -> None:
        if not self._is_taken:  # there is nothing more to read
            super().hold(reason)

    def kept(self, error: SparrowError | None) -> None:
        """The message is on stable storage, or it is not kept."""
        if error is None:
            self.close()
        else:
            self.reset()

    def drained(self) -> None:
        if not self._is_taken:
            self.abort()


# ── consumers ─────────────────────────────────────────────────────────────────────────────────────


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
        consumer = await open_queue(self.port.context.broker, topic + QUEUE_SUFFIX, topic)
        try:
            while leased := await lease_published(consumer, MAX_AT_ONCE, MAX_BYTES_AT_ONCE):
                self.write(b"".join(mbus.line(record.value or b"") for record in records_of(leased)))
                await self.until_writable()
                if not self.is_open:
                    return
                await consumer.settle(settlements(leased, Verb.ACK))
        finally:
            await consumer.close(give_back=True)
