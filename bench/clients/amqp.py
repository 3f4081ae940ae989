"""AMQP 0-9-1 by hand: a client that only moves bytes, as the most that Python can get out of
RabbitMQ.

Every frame that it sends is made beforehand; what it gets is not decoded but counted: deliveries of
equal messages are of equal size. Only what a publisher's confirmations and a consumer's
acknowledgements need is read.
"""

from __future__ import annotations

import select
import socket
import struct
from typing import Final

from bench.pace import due_times, late_s, stamped
from bench.together import Span, Start, Stopwatch

_FRAME: Final = struct.Struct(">BHI")
_METHOD: Final = struct.Struct(">HH")
_TAG: Final = struct.Struct(">QB")
_END: Final = b"\xce"
_METHOD_FRAME, _HEADER_FRAME, _BODY_FRAME = 1, 2, 3
_ACK_BYTES: Final = _FRAME.size + _METHOD.size + _TAG.size + 1
_ACK, _DELIVER = (60, 80), (60, 60)
_PERSISTENT: Final = struct.pack(">HB", 0x1000, 2)
_CHANNEL: Final = 1
_RECEIVE_BYTES: Final = 1 << 20
ACK_EVERY: Final = 500


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + _END


def _method(channel: int, method: tuple[int, int], arguments: bytes = b"") -> bytes:
    return _frame(_METHOD_FRAME, channel, _METHOD.pack(*method) + arguments)


def ack(tag: int, multiple: bool) -> bytes:
    """The frame that acknowledges a delivery, or all up to it."""
    return _method(_CHANNEL, _ACK, _TAG.pack(tag, multiple))


def publication(queue: str, body: bytes) -> bytes:
    """The three frames of one persistent message."""
    properties = struct.pack(">HHQ", 60, 0, len(body)) + _PERSISTENT
    return (
        _method(_CHANNEL, (60, 40), b"\0\0" + _short("") + _short(queue) + b"\0")
        + _frame(_HEADER_FRAME, _CHANNEL, properties)
        + _frame(_BODY_FRAME, _CHANNEL, body)
    )


class Link:
    """A connection with one channel; blocking."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self._expect((10, 10))
        login = _long(b"") + _short("PLAIN") + _long(b"\0guest\0guest") + _short("en_US")
        self.socket.sendall(_method(0, (10, 11), login))
        limits = self._expect((10, 30))
        self.socket.sendall(_method(0, (10, 31), limits[:6] + b"\0\0"))  # no heartbeats
        self._call(0, (10, 40), _short("/") + b"\0\0", (10, 41))
        self._call(_CHANNEL, (20, 10), b"\0", (20, 11))

    def declare(self, queue: str, kind: str) -> int:
        """A durable queue: "quorum", "stream", or "classic" (version 2); returns how many messages
        are ready in it.
        """
        arguments = _short("x-queue-type") + b"S" + _long(kind.encode())
        if kind == "classic":
            arguments += _short("x-queue-version") + b"I" + struct.pack(">i", 2)
        request = b"\0\0" + _short(queue) + b"\x02" + _long(arguments)
        answer = self._call(_CHANNEL, (50, 10), request, (50, 11))
        found: int = struct.unpack_from(">I", answer, 1 + answer[0])[0]
        return found

    def confirm(self) -> None:
        """Every publication is confirmed from now on."""
        self._call(_CHANNEL, (85, 10), b"\0", (85, 11))

    def consume(self, queue: str, prefetch: int, *, is_stream: bool = False) -> None:
        """Deliveries begin, at most this many unacknowledged; a stream's from its beginning."""
        self.settle(prefetch)
        arguments = _short("x-stream-offset") + b"S" + _long(b"first") if is_stream else b""
        consumer = b"\0\0" + _short(queue) + _short("c") + b"\0" + _long(arguments)
        self._call(_CHANNEL, (60, 20), consumer, (60, 21))

    def settle(self, prefetch: int) -> None:
        """Set the prefetch; when it returns, what was sent before has been handled by the
        channel.
        """
        self._call(_CHANNEL, (60, 10), struct.pack(">IHB", 0, prefetch, 0), (60, 11))

    def receive(self) -> None:
        """Wait for bytes; they are added to `received`."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("RabbitMQ closed the connection")
        self.received += data

    def close(self) -> None:
        self.socket.close()

    def _call(
        self, channel: int, method: tuple[int, int], arguments: bytes, answer: tuple[int, int]
    ) -> bytes:
        self.socket.sendall(_method(channel, method, arguments))
        return self._expect(answer)

    def _expect(self, method: tuple[int, int]) -> bytes:
        """The arguments of the next frame, which must be this method."""
        payload = self.next_frame()
        found = _METHOD.unpack_from(payload)
        if found != method:
            raise ConnectionError(f"RabbitMQ sent {found}, not {method}: {payload!r}")
        return payload[_METHOD.size :]

    def next_frame(self) -> bytes:
        """The payload of the next frame."""
        while True:
            if len(self.received) >= _FRAME.size:
                _, _, size = _FRAME.unpack_from(self.received)
                end = _FRAME.size + size + 1
                if len(self.received) >= end:
                    payload = bytes(self.received[_FRAME.size : end - 1])
                    del self.received[:end]
                    return payload
            self.receive()


class Confirmations:
    """Which publications of a link are confirmed; single ones may come out of order."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._all_to = 0
        self._singles: set[int] = set()

    @property
    def confirmed(self) -> int:
        return self._all_to + len(self._singles)

    def take(self, *, wait: bool) -> None:
        """Read what has come; with `wait`, at least something."""
        if not wait and not select.select([self._link.socket], [], [], 0)[0]:
            return
        self._link.receive()
        data = self._link.received
        end = len(data) - len(data) % _ACK_BYTES
        for position in range(0, end, _ACK_BYTES):
            method = _METHOD.unpack_from(data, position + _FRAME.size)
            if method != _ACK:
                raise ConnectionError(f"RabbitMQ sent {method} instead of a confirmation")
            self._add(*_TAG.unpack_from(data, position + _FRAME.size + _METHOD.size))
        del data[:end]

    def _add(self, tag: int, multiple: int) -> None:
        if multiple:
            self._all_to = max(self._all_to, tag)
            self._singles = {each for each in self._singles if each > self._all_to}
        else:
            self._singles.add(tag)
        while self._all_to + 1 in self._singles:
            self._all_to += 1
            self._singles.remove(self._all_to)


def make(port: int, queue: str, kind: str) -> None:
    """Declare a durable queue."""
    link = Link(port)
    link.declare(queue, kind)
    link.close()


def ready(port: int, queue: str, kind: str) -> int:
    """Return the number of messages that no consumer has; the first declaration after a start waits
    until the queue exists.
    """
    link = Link(port)
    try:
        return link.declare(queue, kind)
    finally:
        link.close()


def publish(port: int, queue: str, value: bytes, count: int, window: int, start: Start) -> Span:
    """Pipelined, at most `window` unconfirmed."""
    link = Link(port)
    link.confirm()
    message = publication(queue, value)
    confirmations = Confirmations(link)
    link.socket.sendall(message)
    while confirmations.confirmed < 1:
        confirmations.take(wait=True)
    piece = max(1, window // 20)
    watch = Stopwatch(start)
    sent, last = 1, count + 1
    while sent < last:
        number = min(piece, last - sent)
        link.socket.sendall(message * number)
        sent += number
        confirmations.take(wait=False)
        while sent - confirmations.confirmed > window - piece:
            confirmations.take(wait=True)
    while confirmations.confirmed < last:
        confirmations.take(wait=True)
    span = watch.span()
    link.close()
    return span


def consume(
    port: int, queue: str, count: int, prefetch: int, ack_every: int, start: Start, *, is_stream: bool = False
) -> Span:
    """Acknowledged this many at a time (`multiple`); found: how many were counted."""
    link = Link(port)
    link.consume(queue, prefetch, is_stream=is_stream)
    _next_delivery(link)
    link.socket.sendall(ack(1, multiple=False))
    watch = Stopwatch(start)
    size = sum(_frame_sizes(link))
    received, tag, acknowledged, last = 0, 1, 1, count + 1
    data = link.received
    while tag < last:
        received += len(data)
        tag = 1 + received // size
        data.clear()
        if tag - acknowledged >= ack_every or tag >= last:
            link.socket.sendall(ack(tag, multiple=True))
            acknowledged = tag
        if tag < last:
            link.receive()
    link.settle(prefetch)
    span = watch.span(count)
    link.close()
    return span


def _next_delivery(link: Link) -> bytes:
    """The body of the next delivery."""
    method, _, body = link.next_frame(), link.next_frame(), link.next_frame()
    assert _METHOD.unpack_from(method) == _DELIVER
    return body


def _frame_sizes(link: Link) -> list[int]:
    """The sizes of the three frames of a delivery; it stays in `received`."""
    sizes: list[int] = []
    while len(sizes) < 3:
        position = sum(sizes)
        if len(link.received) < position + _FRAME.size:
            link.receive()
            continue
        sizes.append(_FRAME.unpack_from(link.received, position)[2] + _FRAME.size + 1)
    return sizes


def publish_at_rate(port: int, queue: str, rate: int, count: int, start: Start) -> Span:
    """One message of 100 B after the other, each when it is due."""
    link = Link(port)
    link.confirm()
    confirmations = Confirmations(link)
    link.socket.sendall(publication(queue, stamped(0, 100)))
    while confirmations.confirmed < 1:
        confirmations.take(wait=True)
    watch = Stopwatch(start)
    for due in due_times(watch.began, rate, count):
        link.socket.sendall(publication(queue, stamped(due, 100)))
        confirmations.take(wait=False)
    while confirmations.confirmed < count + 1:
        confirmations.take(wait=True)
    span = watch.span()
    link.close()
    return span


def work_late(port: int, queue: str, count: int, start: Start, *, is_stream: bool = False) -> Span:
    """Looks how late each message is, and acknowledges it by itself; found: the latencies in
    seconds.
    """
    link = Link(port)
    link.consume(queue, 100, is_stream=is_stream)
    _next_delivery(link)
    link.socket.sendall(ack(1, multiple=False))
    watch = Stopwatch(start)
    times = []
    for tag in range(2, count + 2):
        body = _next_delivery(link)
        times.append(late_s(body))
        link.socket.sendall(ack(tag, multiple=False))
    span = watch.span(times)
    link.close()
    return span
