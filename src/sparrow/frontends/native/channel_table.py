"""The channels of one connection by number: how they are opened, ended and closed.

A producer channel only responds. All other channels deliver records and share the interface
`ReadingChannel`. Each channel interprets its own frames.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import Draining, SparrowError
from sparrow.frontends.native.channels import CloseReason, ReadingChannel
from sparrow.frontends.native.failures import translate
from sparrow.frontends.native.producer_channel import ProducerChannel
from sparrow.frontends.native.queue_channel import QueueChannel
from sparrow.frontends.native.subscription_channel import SubscriptionChannel
from sparrow.protocol.native import messages as m

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sparrow.frontends.native.context import SessionContext


class ChannelTable:
    """The channels of one session. Loop thread only."""

    __slots__ = ("_closing", "_session", "producers", "readers")

    def __init__(self, session: SessionContext) -> None:
        self._session = session
        self.producers: dict[int, ProducerChannel] = {}
        self.readers: dict[int, ReadingChannel] = {}
        self._closing = 0
        """The number of channels that the client closed and whose `close` is still running."""

    # ── open ──────────────────────────────────────────────────────────────────────────────────────

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
        """Respond to an opening, unless the channel was closed meanwhile."""
        session = self._session
        try:
            if session.is_draining:
                opening.close()
                raise Draining("The broker is shutting down and opens nothing more; connect again later.")  # noqa: TRY301
            opened = await opening
        except Exception as error:  # noqa: BLE001 - the channel ends, not the broker
            failure = translate(error, "opening a channel", session.logger)
            if self._find(number) is channel:
                session.end_channel(number, failure)
            return
        if self._find(number) is not channel:
            if isinstance(channel, ProducerChannel):
                channel.lost()
            else:
                await self._close(channel, CloseReason.ENDED if session.is_lost else CloseReason.LEFT)
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

    def handle(self, number: int, head: m.Head) -> None:
        """Hand a frame to a reading channel. An error ends the channel."""
        channel = self.readers.get(number)
        if channel is not None:
            try:
                channel.handle(head)
            except SparrowError as error:
                self._session.end_channel(number, error)

    def close(self, number: int, _: m.Close) -> None:
        """Close a channel at the request of the client."""
        producer = self.producers.get(number)
        reader = self.readers.get(number)
        if producer is not None:
            producer.close()
        elif reader is not None:
            reader.work.add(partial(self._close_reader, number, reader, CloseReason.LEFT))

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    def close_readers(self, reason: CloseReason) -> None:
        """Close the reading channels after their pending commits: the client said goodbye."""
        for number, reader in self.readers.items():
            reader.work.add(partial(self._close_reader, number, reader, reason))

    async def _close_reader(self, number: int, reader: ReadingChannel, reason: CloseReason) -> None:
        if self.readers.get(number) is not reader:
            return
        del self.readers[number]
        self._closing += 1
        try:
            await self._close(reader, reason)
        finally:
            self._closing -= 1
        if self._session.may_send(m.Closed, number):
            self._session.send(m.Closed(), number)
            self._session.flush_soon()

    def end(self, number: int, reason: CloseReason) -> None:
        """End a channel and send nothing more on it."""
        producer = self.producers.pop(number, None)
        if producer is not None:
            producer.lost()
        reader = self.readers.pop(number, None)
        if reader is not None:
            reader.stop()
            self._session.spawn(self._close(reader, reason))

    def lost(self, reason: CloseReason) -> None:
        """End all channels: the connection is lost."""
        for producer in self.producers.values():
            producer.lost()
        self.producers.clear()
        for number in list(self.readers):
            self.end(number, reason)

    async def _close(self, reader: ReadingChannel, reason: CloseReason) -> None:
        try:
            await reader.close(reason)
        except Exception as error:  # noqa: BLE001 - nobody waits for the outcome
            translate(error, "closing a channel", self._session.logger)

    # ── all channels ──────────────────────────────────────────────────────────────────────────────

    @property
    def is_settled(self) -> bool:
        """True if no response, confirmation or settlement is pending."""
        return (
            not self._closing
            and all(reader.is_idle for reader in self.readers.values())
            and all(producer.is_settled for producer in self.producers.values())
        )

    def writable(self) -> None:
        """Continue to deliver and work: the connection can be written to again."""
        for reader in self.readers.values():
            reader.wake()
            reader.work.resume()

    def heartbeat(self) -> None:
        """Record that the client is alive."""
        for reader in self.readers.values():
            reader.heartbeat()

    def drain(self) -> None:
        """Tell reading channels that the broker shuts down."""
        for reader in self.readers.values():
            reader.drain()

    def end_silent(self, idle_timeout_ms: int) -> None:
        """End the channels whose membership does not survive a silence of `idle_timeout_ms`."""
        for number, reader in list(self.readers.items()):
            if reader.is_silent_too_long(idle_timeout_ms):
                self.end(number, CloseReason.ENDED)
