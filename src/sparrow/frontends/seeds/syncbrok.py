"""The door for Syncbrok's clients: a small HTTP server that makes queues, subscribes endpoints and takes messages.

A queue of Syncbrok is a parented all-of queue on the topic of its name, an endpoint a webhook that is a subscriber of it (`syncbrok_queues.py`); who delivers is
the webhook door. A request is answered when what it asked for is on stable storage. A message for a queue that nobody made waits in the
topic until somebody does: the original said that it took it.

Requests of a connection are answered one after the other. On a loopback address the `Host` must be one, too: else any web page whose name leads here could
subscribe endpoints by a browser.
"""

from __future__ import annotations

import ipaddress
import uuid
from contextlib import suppress
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import (
    BadInput,
    Conflict,
    DiskFull,
    InvalidArgument,
    NotAuthorized,
    NotFound,
    Overloaded,
    QueueExists,
    RecordTooLarge,
    SparrowError,
)
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.frontends.publishing import Message
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.pump import Hold, Port, Pump
from sparrow.frontends.seeds.queues import check_is_no_cursor
from sparrow.frontends.seeds.syncbrok_queues import ENDPOINT, POLICY, subscriber_of
from sparrow.frontends.seeds.topics import ensure_topic
from sparrow.protocol.seeds.syncbrok import (
    NO_QUEUE_NAME,
    NOT_FOUND,
    Refusal,
    Request,
    Server,
    parent_of,
    queue_made,
    subscriber_made,
)
from sparrow.records.wellknown import MESSAGE_ID, PARENT_ID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.frontends.seeds.frontend import Context

NAME: Final = "syncbrok"
LAST_WORDS_S: Final = 2.0
"""How long a client has to read why its request was not taken, while it still sends."""
STATUSES: Final = (
    (RecordTooLarge, 413),
    (BadInput, 400),
    (NotAuthorized, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Overloaded, 429),
    (DiskFull, 507),
)
"""Of errors, by the first that fits; else 503."""


def open_door(context: Context) -> Port:
    """The port of Syncbrok."""
    return SyncbrokPort(context)


class SyncbrokPort(Port):
    """All connections, and what their requests do. Loop thread only."""

    def __init__(self, context: Context) -> None:
        super().__init__(NAME, context, Session)
        self.checks_host = _is_loopback(context.settings.host)

    async def make_queue(self, name: bytes) -> str:
        """The Sparrow queue of that name, made if it is missing.

        Raises:
            InvalidTopicName, NotAuthorized, DiskFull, StorageFailed, …
        """
        queue = topic_of(name)
        check_is_no_cursor(self.context.broker, queue)
        queues = self.context.broker.queues
        if queues.registry.find(queue) is None:
            with suppress(
                QueueExists
            ):  # made by another at the same time, or with another policy: it stays as it is
                await queues.create(queue, [queue], POLICY, partitions=1, principal=ANONYMOUS)
        return queue

    async def subscribe(self, name: bytes, url: str) -> None:
        """The endpoint gets the queue's messages; once more is nothing.

        Raises:
            InvalidConfig: no such URL, or an address that is not allowed.
            PolicyViolation, NotAuthorized, DiskFull, StorageFailed, …
        """
        queue = await self.make_queue(name)
        await self.context.broker.webhooks.put(
            queue,
            subscriber_of(url),
            {**ENDPOINT, "url": url},
            add_subscriber=True,
            is_trusted=self.context.settings.private_endpoints,
            principal=ANONYMOUS,
        )

    async def publish(self, name: bytes, content: bytes, parent: str) -> str:
        """Keep a message; its id, when it is on stable storage.

        Raises:
            UnknownTopic, InvalidTopicName, RecordTooLarge, NotAuthorized, DiskFull, StorageFailed, …
        """
        topic = topic_of(name)
        await ensure_topic(self.context.broker, topic)
        message_id = str(uuid.uuid4())
        headers = [(MESSAGE_ID, message_id.encode())]
        if parent:
            headers.append((PARENT_ID, parent.encode()))
        (answer,) = await self.context.publisher.publish(
            topic, [Message(content, None, headers)], principal=ANONYMOUS
        )
        if isinstance(answer, SparrowError):
            raise answer
        return message_id


class Session(Pump):
    """One connection."""

    port: SyncbrokPort

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._server = Server(port.context.settings.max_message_bytes)
        self._is_busy = False
        self._has_ended = False
        """Whether the peer sends no more."""
        self._is_lingering = False

    @property
    def bytes_wanted(self) -> int:
        return self._server.bytes_wanted

    def received(self, data: bytes) -> bool:
        if self._is_lingering:
            return False
        self._server.receive_data(data)
        return self._go_on()

    def eof_received(self) -> bool:
        """What was asked before is still answered."""
        if self._is_busy:
            self._has_ended = True
            return True
        return super().eof_received()

    def _go_on(self) -> bool:
        """Take the next request, if it is whole."""
        if self._is_busy or not self.is_open:
            return False
        event = self._server.next_event()
        if isinstance(event, Refusal):
            self._answer(event.status, event.text.encode())
            self._linger()
        elif event is not None:
            self._is_busy = True
            self.hold(Hold.WORK)
            self.port.start(self._serve(event))
        self.write(self._server.data_to_send())
        return event is not None

    async def _serve(self, request: Request) -> None:
        try:
            await self._handle(request)
        except SparrowError as error:
            self._answer(_status_of(error), f"{error.text}\n".encode())
        except BaseException:
            self.abort()
            raise
        finally:
            self._is_busy = False
        self.write(self._server.data_to_send())
        if self._server.must_close or self.port.is_draining:
            self.close()
        elif not self._go_on():
            if self._has_ended:
                self.close()
            else:
                self.unhold(Hold.WORK)

    async def _handle(self, request: Request) -> None:
        if self.port.checks_host and not _may_be_us(request.header(b"host")):
            self._answer(403, b"this broker is for its own machine: the header Host must name it\n")
            return
        handler = HANDLERS.get(request.path)
        if handler is None:
            self._answer(404, NOT_FOUND)
        else:
            self._answer(200, await handler(self.port, request))

    def _answer(self, status: int, text: bytes) -> None:
        self._server.answer(status, text, formatdate(usegmt=True))

    def _linger(self) -> None:
        """Close when the peer has read why; to close while it still sends would take that from it."""
        self._is_lingering = True
        self.write(self._server.data_to_send())
        if self.transport is not None:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.port.loop.call_later(LAST_WORDS_S, self.abort)

    def drained(self) -> None:
        if not self._is_busy:
            self.close()


# ── requests ──────────────────────────────────────────────────────────────────────────────────────


async def _make_queue(port: SyncbrokPort, request: Request) -> bytes:
    name = request.header(b"queue")
    if not name:
        return NO_QUEUE_NAME
    await port.make_queue(name)
    return queue_made(name)


async def _subscribe(port: SyncbrokPort, request: Request) -> bytes:
    name, url = _queue_of(request), request.header(b"endpoint").decode("latin-1")
    if not url:
        raise InvalidArgument("the header endpoint is missing; it is the URL that messages are POSTed to")
    await port.subscribe(name, url)
    return subscriber_made(name)


async def _publish(port: SyncbrokPort, request: Request) -> bytes:
    name, parent = _queue_of(request), parent_of(request)
    return (await port.publish(name, request.body, parent)).encode()


HANDLERS: Final[dict[str, Callable[[SyncbrokPort, Request], Awaitable[bytes]]]] = {
    "/queue": _make_queue,
    "/subscrib": _subscribe,
    "/msg": _publish,
}


def _queue_of(request: Request) -> bytes:
    name = request.header(b"queue")
    if not name:
        raise InvalidArgument("the header queue is missing; it is the name of a queue")
    return name


def _status_of(error: SparrowError) -> int:
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 503)


# ── who may be meant ──────────────────────────────────────────────────────────────────────────────


def _may_be_us(host: bytes) -> bool:
    """Whether a `Host` is an address, or a name of this machine; none at all is as in HTTP/1.0."""
    name = host.decode("latin-1").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return not name or name == "localhost" or name.endswith(".localhost") or _is_address(name)


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
