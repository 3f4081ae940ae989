"""The channels of one connection: which number is which, and how they are opened, ended and left.

A producer channel only answers. The others, which bring records to the client, are alike for this module: `ReadingChannel`. What a frame
means is the channel's own affair.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sparrow.base.errors import Draining, SparrowError
from sparrow.frontends.native.failures import translate
from sparrow.frontends.native.parting import Parting
from sparrow.frontends.native.producers import ProducerChannel
from sparrow.frontends.native.queues import QueueChannel
from sparrow.frontends.native.subscriptions import SubscriptionChannel
from sparrow.protocol.native import messages as m

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sparrow.frontends.native.session import Session
    from sparrow.frontends.native.work import WorkQueue


class ReadingChannel(Protocol):
    """A subscription, or a consumer of a queue."""

    @property
    def work(self) -> WorkQueue:
        """What is done for it one after the other."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed to the client."""
        ...

    def start(self) -> None:
        """Its opening was answered: deliver."""
        ...

    def take(self, head: Any) -> None:
        """A frame of the client. A SparrowError ends the channel."""
        ...

    def wake(self) -> None:
        """The connection takes data again."""
        ...

    def heartbeat(self) -> None:
        """The client is alive."""
        ...

    def is_silent_too_long(self, idle_timeout_ms: int) -> bool:
        """Whether a client that was silent for so long loses its place."""
        ...

    def drain(self) -> None:
        """The broker shuts down."""
        ...

    def stop(self) -> None:
        """Send nothing any more; `close` follows."""
        ...

    async def close(self, parting: Parting) -> None: ...


class Channels:
    """Of one session. Loop thread only."""

    __slots__ = ("_leaving", "_session", "producers", "readers")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.producers: dict[int, ProducerChannel] = {}
        self.readers: dict[int, ReadingChannel] = {}
        self._leaving = 0
        """Those that the client has left and that are not closed yet."""

    # ── opening ───────────────────────────────────────────────────────────────────────────────────

    def open_producer(self, number: int, head: m.OpenProducer) -> None:
        producer = self.producers[number] = ProducerChannel(self._session, number)
        self._session.run(lambda: self._open(number, producer, producer.open(head)))

    def subscribe(self, number: int, head: m.Subscribe) -> None:
        subscription = self.readers[number] = SubscriptionChannel(self._session, number, head)
        self._session.run(lambda: self._open(number, subscription, subscription.open(head)))

    def open_queue(self, number: int, head: m.OpenQueue) -> None:
        queue = self.readers[number] = QueueChannel(self._session, number, head)
        self._session.run(lambda: self._open(number, queue, queue.open(head)))

    async def _open(
        self, number: int, channel: ProducerChannel | ReadingChannel, opening: Coroutine[Any, Any, m.Head]
    ) -> None:
        """Answer an opening, unless the channel has been closed meanwhile."""
        session = self._session
        try:
            if session.is_draining:
                opening.close()
                raise Draining("The broker is shutting down and opens nothing more; connect again later.")  # noqa: TRY301
            opened = await opening
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            told = translate(error, "opening a channel", session.logger)
            if self._find(number) is channel:
                session.end_channel(number, told)
            return
        if self._find(number) is not channel:
            if isinstance(channel, ProducerChannel):
                channel.lost()
            else:
                await self._close(channel, Parting.ENDED if session.is_lost else Parting.LEFT)
            return
        if not session.may_send(type(opened), number):
            session.end_channel(number, Draining("The broker is shutting down; connect again later."))
            return
        session.send(opened, number)
        if not isinstance(channel, ProducerChannel):
            channel.start()
        session.flush_soon()

    def _find(self, number: int) -> ProducerChannel | ReadingChannel | None:
        return self.producers.get(number) or self.readers.get(number)

    # ── frames of the client ──────────────────────────────────────────────────────────────────────

    def publish(self, number: int, head: Any, batch: memoryview) -> None:
        producer = self.producers.get(number)
        if producer is not None:
            producer.publish(head, batch)

    def take(self, number: int, head: m.Head) -> None:
        """Anything for a reading channel; what is wrong with it ends the channel."""
        channel = self.readers.get(number)
        if channel is not None:
            try:
                channel.take(head)
            except SparrowError as error:
                self._session.end_channel(number, error)

    def close(self, number: int) -> None:
        """The client is done with a channel."""
        producer = self.producers.get(number)
        reader = self.readers.get(number)
        if producer is not None:
            producer.close()
        elif reader is not None:
            reader.work.add(partial(self._leave, number, reader, Parting.LEFT))

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    def leave_all(self, parting: Parting) -> None:
        """The client said goodbye: close what reads, behind its commits."""
        for number, reader in self.readers.items():
            reader.work.add(partial(self._leave, number, reader, parting))

    async def _leave(self, number: int, reader: ReadingChannel, parting: Parting) -> None:
        if self.readers.get(number) is not reader:
            return
        del self.readers[number]
        self._leaving += 1
        try:
            await self._close(reader, parting)
        finally:
            self._leaving -= 1
        if self._session.may_send(m.Closed, number):
            self._session.send(m.Closed(), number)
            self._session.flush_soon()

    def end(self, number: int, parting: Parting) -> None:
        """A channel is over; nothing more is sent on it."""
        producer = self.producers.pop(number, None)
        if producer is not None:
            producer.lost()
        reader = self.readers.pop(number, None)
        if reader is not None:
            reader.stop()
            self._session.spawn(self._close(reader, parting))

    def lost(self, parting: Parting) -> None:
        """The connection is gone."""
        for producer in self.producers.values():
            producer.lost()
        self.producers.clear()
        for number in list(self.readers):
            self.end(number, parting)

    async def _close(self, reader: ReadingChannel, parting: Parting) -> None:
        try:
            await reader.close(parting)
        except Exception as error:  # noqa: BLE001 - nobody waits for the outcome
            translate(error, "closing a channel", self._session.logger)

    # ── all of them ───────────────────────────────────────────────────────────────────────────────

    @property
    def is_settled(self) -> bool:
        """Whether nothing is owed to the client."""
        return (
            not self._leaving
            and all(reader.is_idle for reader in self.readers.values())
            and all(producer.is_settled for producer in self.producers.values())
        )

    def writable(self) -> None:
        """The connection takes data again."""
        for reader in self.readers.values():
            reader.wake()
            reader.work.resume()

    def heartbeat(self) -> None:
        """The client is alive."""
        for reader in self.readers.values():
            reader.heartbeat()

    def drain(self) -> None:
        """The broker shuts down."""
        for reader in self.readers.values():
            reader.drain()

    def end_silent(self, idle_timeout_ms: int) -> None:
        """End those that a silence of so long costs their place."""
        for number, reader in list(self.readers.items()):
            if reader.is_silent_too_long(idle_timeout_ms):
                self.end(number, Parting.ENDED)
