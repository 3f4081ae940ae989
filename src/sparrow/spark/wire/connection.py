"""One connection to a broker, blocking, from hello to its end; it is never revived (`session.py`
opens the next one).

The sans-IO state machine decides what is legal; this module moves bytes. A frame that is larger
than one small read is received into a buffer of exactly its size, and its batches are a view of
that: they are never joined or copied. While something large is sent, what arrives is received, so
that two sides that send much do not wait for each other.

All waits have a deadline on the monotonic clock. One thread, no loop, no callbacks.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import (
    ConnectionLost,
    Draining,
    ProtocolError,
    SparrowError,
    TimedOut,
    Unavailable,
    UnsupportedVersion,
    UsedAfterFork,
    from_code,
)
from sparrow.base.forks import Descriptor, used_after_fork, watch
from sparrow.base.version import VERSION as SOFTWARE_VERSION
from sparrow.client.connection import turned_away, unreachable
from sparrow.client.port_probe import explain
from sparrow.client.security import untrusted_error
from sparrow.protocol.native.connection import Connection as ProtocolConnection
from sparrow.protocol.native.connection import Ended, Received, Role, State, Violation
from sparrow.protocol.native.frames import LENGTH_BYTES
from sparrow.protocol.native.messages import (
    PROTOCOL,
    VERSION,
    Error,
    Fetched,
    Goodbye,
    Head,
    Hello,
    Ping,
    Pong,
    Response,
    Welcome,
)
from sparrow.spark.wire.buffers import Buffers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.client.url import Address
    from sparrow.protocol.native.frames import Buffer
    from sparrow.spark.wire.target import Target

SMALL_BYTES: Final = 64 << 10
"""Bytes of one read while the size of the frame is not known yet."""
PONG_TIMEOUT_S: Final = 5.0
"""Time that the broker may take to receive the response to its ping."""
_AT_ONCE: Final = 64
"""Pieces of one write."""
_FIRST_BYTES: Final = 4096
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Connection:
    """A connection that was welcomed. One thread at a time.

    Arriving frames are sorted: responses to calls by their `ref`, responses to fetches in their
    order, the rest by channel.
    """

    def __init__(self, sock: socket.socket, address: Address) -> None:
        self.address = address
        self.is_draining = False
        """True after the broker's goodbye: it still answers what was asked, and takes nothing
        new.
        """
        self.goodbye: Goodbye | None = None
        self.responses: dict[int, Response] = {}
        self.fetched: deque[tuple[Fetched, memoryview]] = deque()
        self.channels: dict[int, deque[Received]] = {}
        self.heard_at = time.monotonic()
        self._pongs = 0
        self._is_cut = False
        """True while a frame was begun and not ended; outside of a send that means that the send
        was interrupted.
        """
        self._machine = ProtocolConnection(Role.CLIENT)
        self._socket = sock
        self.first_heard = b""
        """The first bytes that the peer sent."""
        self._can_gather = not isinstance(sock, ssl.SSLSocket)
        self._buffers = Buffers()
        self._small = bytearray(SMALL_BYTES)
        self._small_view = memoryview(self._small)
        self._held_bytes = 0
        """Used bytes of the small buffer, from its beginning."""
        self._large: memoryview | None = None
        """The large frame that is being received."""
        self._large_bytes = 0
        self._reading = select.poll()
        self._reading.register(sock, select.POLLIN)
        self._both = select.poll()
        self._both.register(sock, select.POLLIN | select.POLLOUT)
        sock.setblocking(False)
        self._descriptor = Descriptor.of(sock.fileno())
        self._forked: SparrowError | None = None
        watch(self)

    def forked(self, parent: int) -> None:
        """Fail every use in a child process: see `sparrow.base.forks`."""
        self._forked = used_after_fork(f"the connection to {self.address}", parent)
        if self._descriptor is not None and self._socket.fileno() >= 0:
            self._descriptor.detach()
        self.responses.clear()
        self.fetched.clear()
        for arrived in self.channels.values():
            arrived.clear()

    @property
    def is_forked(self) -> bool:
        """Return True in a child of the process that connected."""
        return self._forked is not None

    def _check_process(self) -> None:
        if self._forked is not None:
            raise UsedAfterFork(self._forked.text)

    @property
    def is_usable(self) -> bool:
        """Return True if requests may be sent, as far as is known."""
        return self._machine.state is State.OPEN and not self.is_draining and not self._is_cut

    @property
    def is_over(self) -> bool:
        """Return True if nothing can arrive any more."""
        return self._machine.state is State.CLOSED

    @property
    def max_batch_bytes(self) -> int:
        """Return the largest batch that this broker takes."""
        return self._machine.max_batch_bytes

    def fileno(self) -> int:
        return self._socket.fileno()

    # ── hello and goodbye ─────────────────────────────────────────────────────────────────────────

    def greet(self, hello: Hello, deadline: float) -> None:
        """Say hello and wait for the welcome.

        Raises:
            NotAuthenticated, UnsupportedVersion, Overloaded, Draining: the broker's answer instead.
                TimedOut, ConnectionLost, ProtocolError
        """
        self.send(hello, deadline=deadline)
        while self._machine.state is not State.OPEN:
            self.receive(deadline)
            if self.goodbye is not None:
                raise turned_away(self.address, self.goodbye)

    def close(self) -> None:
        """Say goodbye, without waiting for a response, and close the socket."""
        with suppress(SparrowError):
            if self._machine.may_send(Goodbye) and not self._is_cut:
                self.send(Goodbye(), deadline=0.0)
        self.drop()

    def drop(self) -> None:
        """Close the socket without a goodbye."""
        self._machine.receive_eof()
        self._socket.close()

    def is_alive(self, timeout_s: float) -> bool:
        """Return True if the broker still answers a ping."""
        try:
            self.take_in()
            if not self.is_usable:
                return False
            pongs, deadline = self._pongs, time.monotonic() + timeout_s
            self.send(Ping(0), deadline=deadline)
            while self._pongs == pongs:
                self.receive(deadline)
        except SparrowError:
            return False
        return self.is_usable

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def send(
        self,
        head: Head,
        channel: int = 0,
        batches: Buffer | Sequence[Buffer] | None = None,
        *,
        deadline: float,
    ) -> None:
        """Send a frame; the caller may change the batches when it returns.

        Raises:
            ConnectionLost, TimedOut: the connection is over.
            UsedAfterFork: this is a child of the process that connected.
            FrameTooLarge, InvalidArgument: the frame cannot be sent; nothing was sent.
        """
        self._check_process()
        self._machine.send(head, channel, batches)
        self._flush(deadline)

    def _flush(self, deadline: float) -> None:
        """Send everything that is queued, including responses to pings that arrive meanwhile."""
        pieces = deque(self._machine.data_to_send())
        self._is_cut = bool(pieces)
        while pieces:
            try:
                count = self._send_some(pieces)
            except _WOULD_BLOCK:
                self._wait(self._both, deadline)
                self._read_all()
                continue
            except OSError as error:
                raise self._lost(_reason(error)) from None
            while pieces and count >= len(pieces[0]):
                count -= len(pieces.popleft())
            if count:
                pieces[0] = memoryview(pieces[0])[count:]
            elif not pieces:
                pieces.extend(self._machine.data_to_send())
        self._is_cut = False

    def _send_some(self, pieces: deque[Buffer]) -> int:
        if not self._can_gather or len(pieces) == 1:
            return self._socket.send(pieces[0])
        return self._socket.sendmsg([pieces[number] for number in range(min(len(pieces), _AT_ONCE))])

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────

    def receive(self, deadline: float) -> None:
        """Receive at least something, and answer pings.

        Raises:
            TimedOut: nothing came until the deadline. ConnectionLost, ProtocolError, or the error
                of an ERROR frame: the connection is over.
        """
        self._check_process()
        while not self._read_once():
            self._wait(self._reading, deadline)
        self._flush(deadline)

    def take_in(self) -> None:
        """Receive what is there, without waiting. Raises as `receive`."""
        self._check_process()
        self._read_all()
        self._flush(time.monotonic() + PONG_TIMEOUT_S)

    def _read_all(self) -> None:
        while self._read_once():
            pass

    def _wait(self, poll: select.poll, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if not poll.poll(max(0.0, left_s * 1000)):
            silent_s = time.monotonic() - self.heard_at
            self.drop()
            raise TimedOut(
                f"the broker at {self.address} did not answer in time; nothing came from it for "
                f"{silent_s:.3g} s"
            )

    def _read_once(self) -> bool:
        """Read once; return False when nothing is there now."""
        large = self._large
        into = self._small_view[self._held_bytes :] if large is None else large[self._large_bytes :]
        try:
            count = self._socket.recv_into(into)
        except _WOULD_BLOCK:
            return False
        except OSError as error:
            raise self._lost(_reason(error)) from None
        if not count:
            self._handle_end()
        self.heard_at = time.monotonic()
        if large is None:
            self._held_bytes += count
            self._cut()
        else:
            self._large_bytes += count
            if self._large_bytes == len(large):
                self._large = None
                self._feed(large)
        return True

    def _cut(self) -> None:
        """Cut whole frames out of the small buffer; the rest of a large one goes to a separate
        buffer.
        """
        start, end, small = 0, self._held_bytes, self._small
        while end - start >= LENGTH_BYTES:
            wanted = LENGTH_BYTES + int.from_bytes(small[start : start + LENGTH_BYTES], "big")
            if wanted > end - start:
                break
            start += wanted
        if start:
            self._feed(bytes(self._small_view[:start]))
        rest = end - start
        self._held_bytes = 0
        if rest >= LENGTH_BYTES and self._begin_large(start, end):
            return
        small[:rest] = small[start:end]
        self._held_bytes = rest

    def _begin_large(self, start: int, end: int) -> bool:
        """Return True if the frame that begins at `start` is received into a separate buffer from
        here on.
        """
        wanted = LENGTH_BYTES + int.from_bytes(self._small[start : start + LENGTH_BYTES], "big")
        if wanted > LENGTH_BYTES + self._machine.max_frame_bytes:
            # the state machine reports what is wrong with it
            self._feed(bytes(self._small_view[start:end]))
        if wanted <= SMALL_BYTES:
            return False
        self._large = self._buffers.take(wanted)
        self._large[: end - start] = self._small_view[start:end]
        self._large_bytes = end - start
        return True

    def _feed(self, data: Buffer) -> None:
        machine = self._machine
        if not self.first_heard:
            self.first_heard = bytes(data[:_FIRST_BYTES])
        machine.receive_data(data)
        for event in machine.events():
            if isinstance(event, Received):
                self._sort(event)
            elif isinstance(event, Violation):
                self._farewell()
                raise type(event.error)(
                    f"the peer at {self.address} does not speak as a Sparrow broker does: {event.error.text}"
                )

    def _sort(self, event: Received) -> None:
        head = event.head
        if isinstance(head, Fetched):
            self.fetched.append((head, memoryview(b"") if event.batches is None else event.batches))
        elif event.channel:
            self.channels.setdefault(event.channel, deque()).append(event)
        elif isinstance(head, Response):
            self.responses[head.ref] = head
        elif isinstance(head, Pong):
            self._pongs += 1
        elif isinstance(head, Goodbye):
            self.is_draining = True
            self.goodbye = head
        elif isinstance(head, Error):
            self.drop()
            raise from_code(head.code, head.text)
        else:
            assert isinstance(head, Welcome)

    def _handle_end(self) -> None:
        """Handle the end of the broker's stream."""
        machine = self._machine
        machine.receive_eof()
        ended = [event for event in machine.events() if isinstance(event, Ended)]
        why = next((event.error.text for event in ended if event.error), "the broker closed it")
        raise self._lost(why)

    def _lost(self, why: str) -> ConnectionLost:
        self.drop()
        return ConnectionLost(f"the connection to the broker at {self.address} was lost: {why}")

    def _farewell(self) -> None:
        with suppress(SparrowError):
            self._flush(0.0)
        self.drop()


def open_connection(target: Target) -> Connection:
    """Connect, say hello, wait for the welcome: one attempt at each broker that the URL names, and
    at the one that a standby names.

    Raises:
        ConnectionLost: no answer at that address, or not in time. NotAuthenticated,
            UnsupportedVersion, …: the broker's answer instead of a welcome.
        ProtocolError: the peer is no Sparrow broker.
    """
    *others, last = target.address.brokers()
    for address in others:
        with suppress(Unavailable):
            return _open_or_follow(target, address)
    return _open_or_follow(target, last)


def _open_or_follow(target: Target, address: Address) -> Connection:
    try:
        return _open_connection(target, address)
    except Draining as error:
        owner = address.at(error.owner)
        if owner in (None, address):
            raise
    return _open_connection(target, owner)


def _open_connection(target: Target, address: Address) -> Connection:
    tls = target.tls
    deadline = time.monotonic() + target.connect_timeout_s
    hello = Hello(PROTOCOL, 1, VERSION, target.client_name, SOFTWARE_VERSION, target.credentials)
    sock: socket.socket | None = None
    connection: Connection | None = None
    try:
        sock = socket.create_connection((address.host, address.port), target.connect_timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock = tls.wrap_socket(sock, server_hostname=address.host)
        connection = Connection(sock, address)
        connection.greet(hello, deadline)
    except ssl.SSLCertVerificationError as error:
        _close(sock)
        raise untrusted_error(address, error) from None
    except (OSError, TimedOut, ConnectionLost) as error:  # TimeoutError and SSLError are OSErrors
        _close(sock)
        why = error.text if isinstance(error, SparrowError) else _reason(error)
        hint = "" if address.has_tls else " (if it wants TLS, its URL begins with sparrows://)"
        raise unreachable(address, why + (hint if isinstance(error, ConnectionLost) else "")) from None
    except ProtocolError as error:
        _close(sock)
        if isinstance(error, UnsupportedVersion):
            raise
        if type(error) is ProtocolError:  # another port of the broker says so
            raise ProtocolError(f"{address} cannot be used: {error.text}") from None
        raise explain(address, error, connection.first_heard if connection is not None else b"") from None
    except BaseException:
        _close(sock)
        raise
    return connection


def _close(sock: socket.socket | None) -> None:
    if sock is not None:
        sock.close()


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
