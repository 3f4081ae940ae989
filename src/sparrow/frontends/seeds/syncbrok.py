"""The listener for clients of Syncbrok: a small HTTP server that creates queues, subscribes
endpoints and accepts messages.

A queue of Syncbrok is a parented all-of queue on the topic of its name. An endpoint is a webhook
that is a subscriber of it (`syncbrok_queues.py`); the webhook frontend delivers to it. The response
to a request follows when its effect is on stable storage. A message for a queue that does not exist
yet waits in the topic until the queue is created, because the original accepts such messages.

Requests of a connection are handled one after the other. On a loopback address the `Host` header
must name one, too: otherwise any web page whose host name resolves to this machine could subscribe
endpoints through a browser.
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
    TopicExists,
)
from sparrow.frontends.publisher import Message
from sparrow.frontends.seeds.caller import caller
from sparrow.frontends.seeds.connection import SeedConnection
from sparrow.frontends.seeds.context import Port, SeedPause
from sparrow.frontends.seeds.handout_queues import check_not_a_cursor
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.syncbrok_queues import ENDPOINT, POLICY, subscriber_of
from sparrow.frontends.seeds.topics import config_for
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

    from sparrow.frontends.seeds.context import SeedContext

NAME: Final = "syncbrok"
STATUSES: Final = (
    (RecordTooLarge, 413),
    (BadInput, 400),
    (NotAuthorized, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Overloaded, 429),
    (DiskFull, 507),
)
"""The status of an error: the first class that fits, else 503."""


def open_listener(context: SeedContext) -> Port:
    """Create the listener of Syncbrok."""
    return SyncbrokPort(context)


class SyncbrokPort(Port):
    """All connections, and the operations of their requests. Loop thread only."""

    def __init__(self, context: SeedContext) -> None:
        super().__init__(NAME, context, SyncbrokConnection)
        self.checks_host = _is_loopback(context.settings.host)

    async def make_queue(self, name: bytes) -> str:
        """Return the Sparrow queue of that name; create it if it is missing.

        Raises:
            InvalidTopicName, NotAuthorized, DiskFull, StorageFailed, …
        """
        queue = topic_of(name)
        check_not_a_cursor(self.broker, queue)
        queues = self.broker.queues
        if not queues.exists(queue):
            config = config_for(self.broker, self.settings.max_message_bytes)
            if config and not self.broker.topics.exists(queue):
                with suppress(TopicExists):
                    await self.broker.topics.create(queue, 1, config, principal=caller())
            # created meanwhile, or with another policy: it stays as it is
            with suppress(QueueExists):
                await queues.create(queue, [queue], POLICY, partitions=1, principal=caller())
        return queue

    async def subscribe(self, name: bytes, url: str) -> None:
        """Deliver the messages of the queue to an endpoint. No effect if it is subscribed.

        Raises:
            InvalidConfig: the URL is invalid, or its address is not allowed. PolicyViolation,
                NotAuthorized, DiskFull, StorageFailed, …
        """
        queue = await self.make_queue(name)
        await self.broker.webhooks.put(
            queue,
            subscriber_of(url),
            {**ENDPOINT, "url": url, "timeout_ms": self.settings.endpoint_timeout_ms},
            add_subscriber=True,
            is_trusted=self.settings.private_endpoints,
            principal=caller(),
        )

    async def publish(self, name: bytes, content: bytes, parent: str) -> str:
        """Publish a message. Return its id when it is on stable storage.

        Raises:
            UnknownTopic, InvalidTopicName, RecordTooLarge, NotAuthorized, DiskFull, StorageFailed,
            …
        """
        topic = topic_of(name)
        await self.ensure_topic(topic)
        message_id = str(uuid.uuid4())
        headers = [(MESSAGE_ID, message_id.encode())]
        if parent:
            headers.append((PARENT_ID, parent.encode()))
        (result,) = await self.publisher.publish(topic, [Message(content, None, headers)], principal=caller())
        if isinstance(result, SparrowError):
            raise result
        return message_id


class SyncbrokConnection(SeedConnection):
    """One connection."""

    context: SyncbrokPort

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._server = Server(port.settings.max_message_bytes)
        self._is_busy = False
        self._peer_has_ended = False
        """True if the peer sends no more."""

    @property
    def unfinished_bytes(self) -> int:
        return self._server.bytes_wanted

    def received(self, data: bytes) -> bool:
        self._server.receive_data(data)
        return self._take_next()

    def eof_received(self) -> bool:
        """Keep the connection until the current request is answered."""
        if self._is_busy:
            self._peer_has_ended = True
            return True
        return super().eof_received()

    def _take_next(self) -> bool:
        """Start the next request, if it is complete. Return True if there was an event."""
        if self._is_busy or not self.is_open:
            return False
        event = self._server.next_event()
        if isinstance(event, Refusal):
            self._respond(event.status, event.text.encode())
            self.send(self._server.data_to_send())
            self.end()  # the peer may still be sending
        elif event is not None:
            self._is_busy = True
            self.pause_reading(SeedPause.WORK)
            self.context.spawn(self._serve(event))
        self.send(self._server.data_to_send())
        return event is not None

    async def _serve(self, request: Request) -> None:
        try:
            await self._handle(request)
        except SparrowError as error:
            self._respond(_status_of(error), f"{error.text}\n".encode())
        except BaseException:
            self.abort()
            raise
        finally:
            self._is_busy = False
        self.send(self._server.data_to_send())
        if self._server.must_close or self.context.is_stopping:
            self.close()
        elif not self._take_next():
            if self._peer_has_ended:
                self.close()
            else:
                self.resume_reading(SeedPause.WORK)

    async def _handle(self, request: Request) -> None:
        if self.context.checks_host and not _names_this_host(request.header(b"host")):
            self._respond(403, b"this broker is for its own machine: the header Host must name it\n")
            return
        handler = HANDLERS.get(request.path)
        if handler is None:
            self._respond(404, NOT_FOUND)
        else:
            self._respond(200, await handler(self.context, request))

    def _respond(self, status: int, text: bytes) -> None:
        self._server.respond(status, text, formatdate(usegmt=True))

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


# ── the Host header ───────────────────────────────────────────────────────────────────────────────


def _names_this_host(host: bytes) -> bool:
    """Return True if a `Host` is an address, a name of this machine, or missing as in HTTP/1.0."""
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
