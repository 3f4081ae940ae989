"""What one connection publishes: in order, without a wait for the disk in between, and no more of it unconfirmed than a window allows.

These clients are told nothing of what they published. What could not be kept is told to the door (`failed`), which does what its protocol allows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sparrow.base.errors import InternalError, SparrowError
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.frontends.publishing import Columns
from sparrow.frontends.seeds.pump import Hold
from sparrow.frontends.seeds.topics import ensure_topic

if TYPE_CHECKING:
    from sparrow.broker.partition import Published
    from sparrow.frontends.publishing import Message, Part
    from sparrow.frontends.seeds.pump import Port

WINDOW_BYTES: Final = 4 << 20
"""So many bytes of messages may be unconfirmed before the connection is not read from."""
CHARGE_PER_BATCH_BYTES: Final = 512

Tell = Callable[[Sequence[int], "SparrowError | None"], None]


class Sender(Protocol):
    """Whose messages they are."""

    peer: str

    @property
    def port(self) -> Port:
        """Where they came in."""
        ...

    def hold(self, reason: int) -> None:
        """Send nothing more for now."""
        ...

    def unhold(self, reason: int) -> None:
        """Go on."""
        ...


class _Call(NamedTuple):
    """Messages for one topic."""

    topic: str
    columns: Columns
    charge: int
    tell: Tell | None


class Intake:
    """Of one connection (or port); it lives on until all is settled, even if the connection is gone. Loop thread only.

    Args:
        failed: told what was not kept: topic, how many messages, why.
    """

    def __init__(self, sender: Sender, failed: Callable[[str, int, SparrowError], None]) -> None:
        self.sender = sender
        self._port = sender.port
        self._failed = failed
        self._waiting: deque[_Call] = deque()
        """What waits until a topic is made, and what came after it."""
        self._making: asyncio.Task[None] | None = None
        self._pending = 0
        self._unconfirmed_bytes = 0
        self._idle: asyncio.Future[None] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether everything is confirmed, or failed."""
        return not self._pending and not self._waiting and self._making is None

    async def settled(self) -> None:
        """Until everything is confirmed, or failed."""
        if not self.is_settled:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    async def appended(self) -> None:
        """Until everything is in its topic, or failed: from then on it can be read."""
        while self._making is not None:
            await asyncio.shield(self._making)

    def publish(
        self, topic: str, messages: Sequence[Message] | Columns, size_bytes: int, tell: Tell | None = None
    ) -> None:
        """Publish; what is given later comes later in the topic.

        Args:
            tell: called for each part of the messages with their places and why they were not kept, None if they are on stable storage.
        """
        columns = messages if isinstance(messages, Columns) else Columns.of(messages)
        call = _Call(topic, columns, size_bytes + CHARGE_PER_BATCH_BYTES, tell)
        self._port.unsettled.add(self)
        self._charge(call.charge)
        if self._making is None and self._port.context.broker.topics.find(topic) is not None:
            self._begin(call)
            return
        self._waiting.append(call)
        if self._making is None:
            self.sender.hold(Hold.WINDOW)
            self._making = self._port.start(self._make_topics())

    async def _make_topics(self) -> None:
        """Publish what waits, in order; make the topics that are missing."""
        try:
            while self._waiting:
                call = self._waiting.popleft()
                try:
                    await ensure_topic(self._port.context.broker, call.topic)
                except Exception as error:  # noqa: BLE001 - a bug, too, must be told to who published
                    self._lost(call, range(len(call.columns.values)), call.charge, self._known(error))
                    continue
                self._begin(call)
        finally:
            self._making = None
            self._look()

    def _begin(self, call: _Call) -> None:
        try:
            parts = self._port.context.publisher.begin(call.topic, call.columns, principal=ANONYMOUS)
        except Exception as error:  # noqa: BLE001 - as above
            self._lost(call, range(len(call.columns.values)), call.charge, self._known(error))
            return
        self._pending += len(parts)
        for part in parts:
            # What a call takes is charged to its last part.
            share = call.charge if part is parts[-1] else 0
            if part.published.done():
                self._settled(call, part, share, part.published)
            else:
                part.published.add_done_callback(partial(self._settled, call, part, share))

    def _settled(self, call: _Call, part: Part, charge: int, published: asyncio.Future[Published]) -> None:
        self._pending -= 1
        error = None if published.cancelled() else published.exception()
        if error is None and not published.cancelled():
            self._charge(-charge)
            if call.tell is not None:
                call.tell(part.places, None)
            self._look()
            return
        self._lost(call, part.places, charge, self._known(error))

    def _known(self, error: BaseException | None) -> SparrowError:
        """What the sender is told of it."""
        if isinstance(error, SparrowError):
            return error
        if error is not None:
            self._port.context.logger.error("%s: publishing failed", self._port.name, exc_info=error)
        return InternalError("publishing failed; the broker's log says why")

    def _lost(self, call: _Call, places: Sequence[int], charge: int, error: SparrowError) -> None:
        self._charge(-charge)
        self._port.context.logger.warning(
            "%s: %d messages of %s for topic %r are not kept: %s",
            self._port.name,
            len(places),
            self.sender.peer,
            call.topic,
            error.text,
        )
        if call.tell is not None:
            call.tell(places, error)
        self._failed(call.topic, len(places), error)
        self._look()

    def _charge(self, size_bytes: int) -> None:
        self._unconfirmed_bytes += size_bytes
        if self._unconfirmed_bytes > WINDOW_BYTES:
            self.sender.hold(Hold.WINDOW)

    def _look(self) -> None:
        if self._making is None and self._unconfirmed_bytes <= WINDOW_BYTES:
            self.sender.unhold(Hold.WINDOW)
        if self.is_settled:
            self._port.unsettled.discard(self)
            if self._idle is not None:
                self._idle.set_result(None)
                self._idle = None
