"""Messages that one connection publishes: in order, without waiting for the disk in between, and
with a limit of unconfirmed bytes.

These clients get no confirmations. If messages cannot be stored, the connection is called
(`failed`), which does what its protocol allows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sparrow.base.errors import InternalError, SparrowError
from sparrow.frontends.publisher import MessageColumns
from sparrow.frontends.seeds.caller import caller
from sparrow.frontends.seeds.context import SeedPause

if TYPE_CHECKING:
    from sparrow.broker.publishes import Published
    from sparrow.frontends.publisher import Message, PublishedPart
    from sparrow.frontends.seeds.context import Port

WINDOW_BYTES: Final = 4 << 20
"""Limit of unconfirmed bytes; above it the connection is not read from."""
CHARGE_PER_BATCH_BYTES: Final = 512

Notify = Callable[[Sequence[int], "SparrowError | None"], None]


class PublishSource(Protocol):
    """The connection or port that the messages come from."""

    peer: str

    @property
    def context(self) -> Port:
        """The port that received the messages."""
        ...

    def pause_reading(self, reason: int) -> None:
        """Read nothing more for this reason."""
        ...

    def resume_reading(self, reason: int) -> None:
        """Clear a reason, and read again if no other is left."""
        ...


class _Call(NamedTuple):
    """Messages for one topic."""

    topic: str
    columns: MessageColumns
    charge: int
    notify: Notify | None


class PublishQueue:
    """The publishes of one connection or port. It lives until all are settled, even if the
    connection is lost before. Loop thread only.

    Args:
        failed: called for messages that are not stored, with the topic, the number of messages and
            the error.
    """

    def __init__(self, source: PublishSource, failed: Callable[[str, int, SparrowError], None]) -> None:
        self.source = source
        self._port = source.context
        self._failed = failed
        self._waiting: deque[_Call] = deque()
        """Calls that wait for a topic to be created, and the calls behind them."""
        self._making_topics: asyncio.Task[None] | None = None
        self._pending = 0
        self._unconfirmed_bytes = 0
        self._idle: asyncio.Future[None] | None = None

    @property
    def is_settled(self) -> bool:
        """True if everything is confirmed or has failed."""
        return not self._pending and not self._waiting and self._making_topics is None

    async def settled(self) -> None:
        """Wait until everything is confirmed or has failed."""
        if not self.is_settled:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    async def appended(self) -> None:
        """Wait until everything is appended to its topic, and so can be read, or has failed."""
        while self._making_topics is not None:
            await asyncio.shield(self._making_topics)

    def publish(
        self,
        topic: str,
        messages: Sequence[Message] | MessageColumns,
        size_bytes: int,
        notify: Notify | None = None,
    ) -> None:
        """Publish messages; later calls come later in the topic.

        Args:
            notify: called for each part of the messages with their indexes and the error, which is
                None if they are on stable storage.
        """
        columns = messages if isinstance(messages, MessageColumns) else MessageColumns.of(messages)
        call = _Call(topic, columns, size_bytes + CHARGE_PER_BATCH_BYTES, notify)
        self._port.unsettled.add(self)
        self._charge(call.charge)
        if self._making_topics is None and self._port.broker.topics.exists(topic):
            self._begin(call)
            return
        self._waiting.append(call)
        if self._making_topics is None:
            self.source.pause_reading(SeedPause.WINDOW)
            self._making_topics = self._port.spawn(self._make_topics())

    async def _make_topics(self) -> None:
        """Publish the waiting calls in order, and create missing topics."""
        try:
            while self._waiting:
                call = self._waiting.popleft()
                try:
                    await self._port.ensure_topic(call.topic)
                except Exception as error:  # noqa: BLE001 - a bug, too, is reported to the publisher
                    self._fail(call, range(len(call.columns.values)), call.charge, self._error_of(error))
                    continue
                self._begin(call)
        finally:
            self._making_topics = None
            self._check_settled()

    def _begin(self, call: _Call) -> None:
        try:
            parts = self._port.publisher.begin(call.topic, call.columns, principal=caller())
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(call, range(len(call.columns.values)), call.charge, self._error_of(error))
            return
        self._pending += len(parts)
        for part in parts:
            # The charge of a call is released with its last part.
            share = call.charge if part is parts[-1] else 0
            if part.published.done():
                self._settled(call, part, share, part.published)
            else:
                part.published.add_done_callback(partial(self._settled, call, part, share))

    def _settled(
        self, call: _Call, part: PublishedPart, charge: int, published: asyncio.Future[Published]
    ) -> None:
        self._pending -= 1
        error = None if published.cancelled() else published.exception()
        if error is None and not published.cancelled():
            self._charge(-charge)
            if call.notify is not None:
                call.notify(part.indexes, None)
            self._check_settled()
            return
        self._fail(call, part.indexes, charge, self._error_of(error))

    def _error_of(self, error: BaseException | None) -> SparrowError:
        """Return the error for the client. Log exceptions that are no SparrowError."""
        if isinstance(error, SparrowError):
            return error
        if error is not None:
            self._port.logger.error("%s: publishing failed", self._port.name, exc_info=error)
        return InternalError("publishing failed; the broker's log says why")

    def _fail(self, call: _Call, indexes: Sequence[int], charge: int, error: SparrowError) -> None:
        self._charge(-charge)
        self._port.logger.warning(
            "%s: %d messages of %s for topic %r are not kept: %s",
            self._port.name,
            len(indexes),
            self.source.peer,
            call.topic,
            error.text,
        )
        if call.notify is not None:
            call.notify(indexes, error)
        self._failed(call.topic, len(indexes), error)
        self._check_settled()

    def _charge(self, size_bytes: int) -> None:
        self._unconfirmed_bytes += size_bytes
        if self._unconfirmed_bytes > WINDOW_BYTES:
            self.source.pause_reading(SeedPause.WINDOW)

    def _check_settled(self) -> None:
        if self._making_topics is None and self._unconfirmed_bytes <= WINDOW_BYTES:
            self.source.resume_reading(SeedPause.WINDOW)
        if self.is_settled:
            self._port.unsettled.discard(self)
            if self._idle is not None:
                self._idle.set_result(None)
                self._idle = None
