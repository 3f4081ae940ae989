"""The listener for producers of Message Bus (mbus), which connect for each message.

A message costs its producer a connection, about 20 µs. A transport and a protocol for each would
cost us 90 µs; the backlog of the system would overflow, and a producer would wait for a second. So
this module reads the sockets directly: all waiting connections are accepted at once, most have sent
everything by then and are read in two calls, and only slow ones are watched. All messages that
become complete within one iteration of the event loop are appended as one batch per topic.

A connection is closed when its message is on stable storage. It is reset when the message is not
stored, also if this process is killed. So a producer that waits for the end of its connection
knows; the original's producer does not wait.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import Overloaded, SparrowError
from sparrow.frontends.publisher import Message
from sparrow.frontends.seeds.caller import caller_by, set_caller
from sparrow.frontends.seeds.connection import (
    LINGER,
    NO_LINGER,
    SMALL_BYTES,
    SeedConnection,
    name_of,
)
from sparrow.frontends.seeds.context import SHARE_OF_DRAIN_FOR_WORK, Port
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.publish_queue import PublishQueue
from sparrow.protocol.seeds import mbus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.frontends.seeds.context import SeedContext
    from sparrow.frontends.transport.admission import ConnectionSlot

BACKLOG: Final = 4096
ACCEPTED_AT_ONCE: Final = 512
MAX_BUSY: Final = 2000
"""Connections that may wait for the broker; each is an open file."""
READ_AT_ONCE: Final = 128
"""New connections that are read before other work runs."""
LOOKED_AT_FIRST: Final = 64
"""Connections with an incomplete message that are read before newer ones. A producer that opens the
next connection without waiting for the end of the first has sent everything on the first by then,
and expects its messages in that order.
"""
FIRST_READ_BYTES: Final = 16 << 10
READ_BYTES: Final = 64 << 10
ACCEPT_PAUSE_S: Final = 0.5
"""Pause after the system refused another socket."""


class MbusProducerPort(Port):
    """The port of producers. Loop thread only."""

    def __init__(self, context: SeedContext) -> None:
        super().__init__("mbus", context, SeedConnection)
        self.peer = "producers"
        self.max_bytes = context.settings.max_message_bytes + mbus.OVERHEAD_BYTES
        self._listeners: list[socket.socket] = []
        self._fresh: deque[socket.socket] = deque()
        """Accepted connections that were not read yet."""
        self._slow: dict[_ProducerConnection, None] = {}
        """Connections whose message is incomplete, oldest first."""
        self._taken: set[socket.socket] = set()
        """Connections whose message is not confirmed."""
        self._batch: dict[str, tuple[list[Message], list[socket.socket]]] = {}
        self._publish_queue = PublishQueue(self, self._publish_failed)
        self._caller = caller_by(self.name, "")  # one for many connections
        self._is_reading = self._is_paused = self._is_full = False
        self._max_busy = min(MAX_BUSY, context.settings.max_connections)

    @property
    def context(self) -> Port:
        """This port: it publishes for all its connections."""
        return self

    @property
    def connections(self) -> int:
        return len(self._fresh) + len(self._slow) + len(self._taken)

    # ── accept ────────────────────────────────────────────────────────────────────────────────────

    async def open(self, host: str, port: int) -> int:
        """Listen, and return the port.

        Raises:
            OSError: the address cannot be listened on.
        """
        for family, _, _, _, address in await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            listener = socket.create_server((address[0], port), family=family, backlog=BACKLOG)
            listener.setblocking(False)
            self._listeners.append(listener)
            port = listener.getsockname()[1]
        self._accept_again()
        self._sweep_later()
        return port

    def _accept_again(self) -> None:
        if not self._is_paused and not self._is_full and not self.is_stopping:
            for listener in self._listeners:
                self.loop.add_reader(listener, self._accept, listener)

    def _accept_no_more(self) -> None:
        for listener in self._listeners:
            self.loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept waiting connections up to a limit; the rest wait in the backlog of the system."""
        for _ in range(min(ACCEPTED_AT_ONCE, self._max_busy - self._busy)):
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                break
            except ConnectionAbortedError:  # it is closed already
                continue
            except OSError as error:
                self.logger.warning("mbus: no more connections for a moment: %s", error)
                self._accept_no_more()
                self.loop.call_later(ACCEPT_PAUSE_S, self._accept_again)
                break
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            self._fresh.append(connection)
        if self._busy >= self._max_busy:
            self._is_full = True
            self._accept_no_more()
        self._read_soon()

    @property
    def _busy(self) -> int:
        """Connections that wait for the broker, not for their producers."""
        return len(self._fresh) + len(self._taken)

    def _accept_if_room(self) -> None:
        if self._is_full and self._busy < self._max_busy:
            self._is_full = False
            self._accept_again()

    # ── read ──────────────────────────────────────────────────────────────────────────────────────

    def _read_soon(self) -> None:
        if self._fresh and not self._is_reading and not self._is_paused:
            self._is_reading = True
            self.loop.call_soon(self._read_fresh)

    def _read_fresh(self) -> None:
        self._is_reading = False
        youngest = list(islice(reversed(self._slow), LOOKED_AT_FIRST))
        for producer in reversed(youngest):
            producer.read()
        for _ in range(min(READ_AT_ONCE, len(self._fresh))):
            self._read(self._fresh.popleft())
        self._accept_if_room()
        self._read_soon()

    def _read(self, connection: socket.socket) -> None:
        """Read a new connection. Most producers have sent everything by now."""
        data = b""
        try:
            data = connection.recv(FIRST_READ_BYTES, socket.MSG_DONTWAIT)
            is_whole = not data or not connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except BlockingIOError:
            is_whole = False
        except OSError:  # reset
            connection.close()
            return
        if not is_whole:
            self._wait(connection, data)
        elif data:
            self.take(connection, data)
        else:  # a probe: it connected only to see whether the port is open
            _close(connection)

    def _wait(self, connection: socket.socket, data: bytes) -> None:
        """Read the rest when it arrives. If too many connections wait, one is refused, or closed to
        make room.
        """
        producer = _ProducerConnection(self, connection, data)
        self._slow[producer] = None
        try:
            host = str(connection.getpeername()[0])
            producer.slot = self.admission.admit(host, producer.close)
        except (Overloaded, OSError):  # OSError: the connection is closed already
            producer.close()

    def forget(self, producer: _ProducerConnection) -> None:
        """Remove a connection that is complete or lost."""
        self._slow.pop(producer, None)

    def refuse(self, connection: socket.socket, why: str) -> None:
        """Reset a connection, as its message is not stored, and log the reason."""
        try:
            peer = name_of(connection.getpeername())
        except OSError:
            peer = "somebody who is gone"
        self.logger.warning("mbus: the connection of %s ends: %s", peer, why)
        connection.close()

    def sweep(self) -> None:
        limit_s = self.deadlines.stall_s
        late_s = self.now() - limit_s
        while self._slow and (oldest := next(iter(self._slow))).started_s < late_s:
            oldest.end(f"its message was not whole within {limit_s:g} s")

    # ── publish ───────────────────────────────────────────────────────────────────────────────────

    def take(self, connection: socket.socket, data: bytes) -> None:
        """Publish the message of a connection, together with all others of this iteration of the
        event loop.
        """
        try:
            sent = mbus.decode(data)
            topic = topic_of(sent.topic)
        except SparrowError as error:
            self.refuse(connection, error.text)
            return
        self._taken.add(connection)
        if not self._batch:
            self.loop.call_soon(self._publish)
        messages, connections = self._batch.setdefault(topic, ([], []))
        messages.append(Message(sent.data))
        connections.append(connection)

    def _publish(self) -> None:
        batch, self._batch = self._batch, {}
        set_caller(self._caller)
        for topic, (messages, connections) in batch.items():
            size_bytes = sum(len(message.value or b"") for message in messages)
            self._publish_queue.publish(topic, messages, size_bytes, partial(self._published, connections))

    def _published(
        self, connections: Sequence[socket.socket], indexes: Sequence[int], error: SparrowError | None
    ) -> None:
        for index in indexes:
            connection = connections[index]
            self._taken.discard(connection)
            if error is None:
                _close(connection)
            else:
                connection.close()  # this resets it
        self._accept_if_room()

    def _publish_failed(self, topic: str, count: int, error: SparrowError) -> None:
        """Do nothing: `_published` has handled each connection."""

    def pause_reading(self, reason: int) -> None:  # noqa: ARG002 - there is one
        """Accept no connections: too many messages are unconfirmed."""
        self._is_paused = True
        self._accept_no_more()

    def resume_reading(self, reason: int) -> None:  # noqa: ARG002 - there is one
        """Accept and read again."""
        if self._is_paused:
            self._is_paused = False
            self._accept_again()
            self._read_soon()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    async def drain(self, timeout_s: float) -> None:
        self.stop()
        self._accept_no_more()
        for listener in self._listeners:
            listener.close()
        for producer in list(self._slow):
            producer.read()
        while self._fresh:
            self._read(self._fresh.popleft())
        for producer in list(self._slow):
            producer.end("the broker stops")
        await asyncio.sleep(0)  # publish what was read
        await self.wait_until_settled(timeout_s * SHARE_OF_DRAIN_FOR_WORK)
        await super().drain(0)
        for connection in self._taken:
            connection.close()


def _close(connection: socket.socket) -> None:
    """Close a connection normally. Without this option the socket is reset, and the next read or
    write of the producer fails.
    """
    with suppress(OSError):  # the producer is gone already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
    connection.close()


class _ProducerConnection:
    """A connection whose message is incomplete."""

    __slots__ = ("_chunks", "_connection", "_is_waiting", "_port", "_reserved_bytes", "slot", "started_s")

    def __init__(self, port: MbusProducerPort, connection: socket.socket, data: bytes) -> None:
        self._port = port
        self._connection = connection
        self._chunks = bytearray(data)
        self._reserved_bytes = 0
        self.slot: ConnectionSlot | None = None
        self._is_waiting = False
        """True while it waits for memory."""
        self.started_s = port.loop.time()
        port.loop.add_reader(connection, self.read)

    def read(self) -> None:
        """Read all that is there, unless memory is missing."""
        while not self._is_waiting and self._read_some():
            pass

    def _read_some(self) -> bool:
        """Return True if there may be more to read."""
        try:
            data = self._connection.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            self._leave()
            self._connection.close()
            return False
        if data:
            return self._append(data)
        self._leave()
        if self._chunks:
            self._port.take(self._connection, bytes(self._chunks))
        else:
            _close(self._connection)
        return False

    def _append(self, data: bytes) -> bool:
        """Add received bytes. Return True if reading may go on."""
        self._chunks += data
        if len(self._chunks) > self._port.max_bytes:
            self.end(f"a message of more than {self._port.max_bytes} bytes")
            return False
        if len(self._chunks) > SMALL_BYTES and not self._reserved_bytes:
            self._reserve()
        return True

    def _reserve(self) -> None:
        """Reserve the largest message size, because producers do not announce the size."""
        if self._port.receive_budget.reserve(self._port.max_bytes, self._granted):
            self._reserved_bytes = self._port.max_bytes
        else:
            self._is_waiting = True
            self._port.loop.remove_reader(self._connection)

    def _granted(self) -> None:
        self._is_waiting = False
        self._reserved_bytes = self._port.max_bytes
        self._port.loop.add_reader(self._connection, self.read)

    def end(self, why: str) -> None:
        """Log the reason and reset the connection."""
        self._leave()
        self._port.refuse(self._connection, why)

    def close(self) -> None:
        """Reset the connection without a log entry."""
        self._leave()
        self._connection.close()

    def _leave(self) -> None:
        self._port.loop.remove_reader(self._connection)
        if self._is_waiting:
            self._port.receive_budget.withdraw(self._granted)
        if self._reserved_bytes:
            self._port.receive_budget.release(self._reserved_bytes)
        self._is_waiting, self._reserved_bytes = False, 0
        if self.slot is not None:
            self.slot.release()
        self._port.forget(self)
