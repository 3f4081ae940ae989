"""The door for producers of Message Bus (mbus), who connect for each message.

A message costs its producer a connection, which takes it 20 µs; a transport and a protocol for each would take us 90, and the queue of those who wait to be
accepted would overflow, which makes a producer wait for a second. So the sockets are read here without them: all who wait are accepted at once, most of
them have sent everything by then and are read in two calls, and only the slow ones are watched. What became whole within one turn of the loop is
appended as one batch per topic.

A connection is closed when its message is on stable storage, and reset when that is not kept, also if this process is killed: so a producer that waits
for the end of its connection knows. The original's producer does not wait.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.frontends.publishing import Message
from sparrow.frontends.seeds.intake import Intake
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.pump import (
    LINGER,
    NO_LINGER,
    SHARE_OF_DRAIN_FOR_WORK,
    SMALL_BYTES,
    Port,
    Pump,
    name_of,
)
from sparrow.protocol.seeds import mbus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.frontends.seeds.frontend import Context

BACKLOG: Final = 4096
ACCEPTED_AT_ONCE: Final = 512
MAX_BUSY: Final = 2000
"""Connections that may wait for us; each is an open file."""
READ_AT_ONCE: Final = 128
"""New connections that are read before others get their turn."""
LOOKED_AT_FIRST: Final = 64
"""Connections whose message is not whole that are looked at before newer ones are read: who does not wait for the end of a connection before it opens the next
has said everything on the first by then, and wants its messages in that order."""
FIRST_READ_BYTES: Final = 16 << 10
READ_BYTES: Final = 64 << 10
ACCEPT_PAUSE_S: Final = 0.5
"""After the system would not give us one more socket."""


class ProducerPort(Port):
    """The port of producers. Loop thread only."""

    def __init__(self, context: Context) -> None:
        super().__init__("mbus", context, Pump)
        self.peer = "producers"
        self.max_bytes = context.settings.max_message_bytes + mbus.OVERHEAD_BYTES
        self._listeners: list[socket.socket] = []
        self._fresh: deque[socket.socket] = deque()
        """Accepted, and not read from yet."""
        self._slow: dict[_Producer, None] = {}
        """Those whose message is not whole, the oldest first."""
        self._taken: set[socket.socket] = set()
        """Those whose message is not confirmed."""
        self._batch: dict[str, tuple[list[Message], list[socket.socket]]] = {}
        self._intake = Intake(self, self._not_kept)
        self._is_reading = self._is_held = self._is_full = False
        self._most_busy = min(MAX_BUSY, context.settings.max_connections)

    @property
    def port(self) -> Port:
        """Itself: what it publishes is of all its connections."""
        return self

    @property
    def connections(self) -> int:
        return len(self._fresh) + len(self._slow) + len(self._taken)

    # ── accepting ─────────────────────────────────────────────────────────────────────────────────

    async def listen(self, host: str, port: int) -> int:
        """Listen; the port.

        Raises:
            OSError: the address cannot be listened on.
        """
        for family, _, _, _, address in await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            listener = socket.create_server((address[0], port), family=family, backlog=BACKLOG)
            listener.setblocking(False)
            self._listeners.append(listener)
            port = listener.getsockname()[1]
        self._accept_again()
        return port

    def _accept_again(self) -> None:
        if not self._is_held and not self._is_full and not self.is_draining:
            for listener in self._listeners:
                self.loop.add_reader(listener, self._accept, listener)

    def _accept_no_more(self) -> None:
        for listener in self._listeners:
            self.loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> None:
        """Those who wait, up to a limit: the others wait in the system's queue. Only if there are too many slow ones are new ones refused."""
        has_room = len(self._slow) < self.context.settings.max_connections
        for _ in range(min(ACCEPTED_AT_ONCE, self._most_busy - self._busy)):
            try:
                connection, address = listener.accept()
            except BlockingIOError:
                break
            except ConnectionAbortedError:  # it is gone already
                continue
            except OSError as error:
                self.context.logger.warning("mbus: no more connections for a moment: %s", error)
                self._accept_no_more()
                self.loop.call_later(ACCEPT_PAUSE_S, self._accept_again)
                break
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            if has_room and self.has_place():
                self._fresh.append(connection)
            else:
                self.context.logger.warning("mbus: %s is refused: too many are connected", name_of(address))
                connection.close()
        if self._busy >= self._most_busy:
            self._is_full = True
            self._accept_no_more()
        self._read_soon()

    @property
    def _busy(self) -> int:
        """Connections that wait for us, not for their producers."""
        return len(self._fresh) + len(self._taken)

    def _look_for_room(self) -> None:
        if self._is_full and self._busy < self._most_busy:
            self._is_full = False
            self._accept_again()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    def _read_soon(self) -> None:
        if self._fresh and not self._is_reading and not self._is_held:
            self._is_reading = True
            self.loop.call_soon(self._read_fresh)

    def _read_fresh(self) -> None:
        self._is_reading = False
        youngest = list(islice(reversed(self._slow), LOOKED_AT_FIRST))
        for producer in reversed(youngest):
            producer.read()
        for _ in range(min(READ_AT_ONCE, len(self._fresh))):
            self._read(self._fresh.popleft())
        self._look_for_room()
        self._read_soon()

    def _read(self, connection: socket.socket) -> None:
        """Most producers have sent everything by now."""
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
        else:  # it came to see whether somebody is here
            _close(connection)

    def _wait(self, connection: socket.socket, data: bytes) -> None:
        """Read the rest when it is there."""
        self._slow[_Producer(self, connection, data)] = None
        if self._sweeping is None:
            self._sweep_later()

    def forget(self, producer: _Producer) -> None:
        """It is whole, or gone."""
        self._slow.pop(producer, None)
        if not self._slow and self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def refuse(self, connection: socket.socket, why: str) -> None:
        """Reset it, as its message is not kept, and say why in the log."""
        try:
            peer = name_of(connection.getpeername())
        except OSError:
            peer = "somebody who is gone"
        self.context.logger.warning("mbus: the connection of %s ends: %s", peer, why)
        connection.close()

    def _sweep(self) -> None:
        self._sweep_later()
        late_s = self.loop.time() - self._limit_s
        while self._slow and (oldest := next(iter(self._slow))).began_s < late_s:
            oldest.end(f"its message was not whole within {self._limit_s:g} s")

    # ── publishing ────────────────────────────────────────────────────────────────────────────────

    def take(self, connection: socket.socket, data: bytes) -> None:
        """Publish what a producer sent, with all others of this turn of the loop."""
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
        for topic, (messages, connections) in batch.items():
            size_bytes = sum(len(message.value or b"") for message in messages)
            self._intake.publish(topic, messages, size_bytes, partial(self._tell, connections))

    def _tell(
        self, connections: Sequence[socket.socket], places: Sequence[int], error: SparrowError | None
    ) -> None:
        for place in places:
            connection = connections[place]
            self._taken.discard(connection)
            if error is None:
                _close(connection)
            else:
                connection.close()  # which resets it
        self._look_for_room()

    def _not_kept(self, topic: str, count: int, error: SparrowError) -> None:
        """Each connection has been told."""

    def hold(self, reason: int) -> None:  # noqa: ARG002 - there is one
        """Too much is unconfirmed: accept nobody."""
        self._is_held = True
        self._accept_no_more()

    def unhold(self, reason: int) -> None:  # noqa: ARG002 - there is one
        """Go on."""
        if self._is_held:
            self._is_held = False
            self._accept_again()
            self._read_soon()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    async def drain(self, timeout_s: float) -> None:
        self.is_draining = True
        self._accept_no_more()
        for listener in self._listeners:
            listener.close()
        for producer in list(self._slow):
            producer.read()
        while self._fresh:
            self._read(self._fresh.popleft())
        for producer in list(self._slow):
            producer.end("the broker stops")
        await asyncio.sleep(0)  # what was read is published
        await self._until_settled(timeout_s * SHARE_OF_DRAIN_FOR_WORK)
        await super().drain(0)
        for connection in self._taken:
            connection.close()


def _close(connection: socket.socket) -> None:
    """Close it in peace; a socket of this port that is only closed is reset, and its producer's next read or write fails."""
    with suppress(OSError):  # the producer is gone already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
    connection.close()


class _Producer:
    """One whose message is not whole yet."""

    __slots__ = ("_chunks", "_connection", "_is_waiting", "_port", "_reserved_bytes", "began_s")

    def __init__(self, port: ProducerPort, connection: socket.socket, data: bytes) -> None:
        self._port = port
        self._connection = connection
        self._chunks = bytearray(data)
        self._reserved_bytes = 0
        self._is_waiting = False
        """For memory."""
        self.began_s = port.loop.time()
        port.loop.add_reader(connection, self.read)

    def read(self) -> None:
        """All that is there, unless it waits for memory."""
        while not self._is_waiting and self._read_some():
            pass

    def _read_some(self) -> bool:
        """Whether there may be more."""
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
        """Whether it may go on."""
        self._chunks += data
        if len(self._chunks) > self._port.max_bytes:
            self.end(f"a message of more than {self._port.max_bytes} bytes")
            return False
        if len(self._chunks) > SMALL_BYTES and not self._reserved_bytes:
            self._reserve()
        return True

    def _reserve(self) -> None:
        """Nobody announces a size: a message that is not small may become as large as is allowed."""
        if self._port.budget.reserve(self._port.max_bytes, self._granted):
            self._reserved_bytes = self._port.max_bytes
        else:
            self._is_waiting = True
            self._port.loop.remove_reader(self._connection)

    def _granted(self) -> None:
        self._is_waiting = False
        self._reserved_bytes = self._port.max_bytes
        self._port.loop.add_reader(self._connection, self.read)

    def end(self, why: str) -> None:
        """Say why in the log, reset."""
        self._leave()
        self._port.refuse(self._connection, why)

    def _leave(self) -> None:
        self._port.loop.remove_reader(self._connection)
        if self._is_waiting:
            self._port.budget.withdraw(self._granted)
        if self._reserved_bytes:
            self._port.budget.release(self._reserved_bytes)
        self._is_waiting, self._reserved_bytes = False, 0
        self._port.forget(self)
