"""NATS JetStream: nats-py (asyncio), and the same commands as bytes that were made beforehand: a
client that counts what it gets instead of decoding it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import select
import socket
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import nats
import uvloop
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy

from bench.pace import due_times, due_times_async, late_s, precise_loop, stamped
from bench.together import Span, Start, Stopwatch

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

_RECEIVE_BYTES = 1 << 20
_WORKER, _READER = "worker", "reader"
"""The durable consumers of a work queue, and of a stream that is read."""
_WAIT_NS = 30_000_000_000
PREFETCH = 5_000


def _url(port: int) -> str:
    return f"nats://127.0.0.1:{port}"


# ── streams ───────────────────────────────────────────────────────────────────────────────────────


def make(port: int, stream: str) -> None:
    """A stream that keeps what it gets; its subject has its name."""
    uvloop.run(_make(port, stream, RetentionPolicy.LIMITS))


def make_queue(port: int, stream: str, acks: str, prefetch: int, *, is_pushed: bool = False) -> None:
    """A stream and its durable consumer, which is sent messages (`is_pushed`) or asks for them.

    With `acks` "explicit" what is acknowledged goes from the stream. "all" is for acknowledgements
    of all up to a message; such a stream keeps what it has, for a work queue of NATS takes explicit
    ones only.
    """
    retention = RetentionPolicy.WORK_QUEUE if acks == "explicit" else RetentionPolicy.LIMITS
    uvloop.run(_make(port, stream, retention))
    config = ConsumerConfig(
        durable_name=_WORKER,
        deliver_subject=f"deliver.{stream}" if is_pushed else None,
        ack_policy=AckPolicy(acks),
        max_ack_pending=prefetch,
    )
    uvloop.run(_make_worker(port, stream, config))


async def _make(port: int, stream: str, retention: RetentionPolicy) -> None:
    async with await nats.connect(_url(port)) as connection:
        await connection.jetstream().add_stream(name=stream, subjects=[stream], retention=retention)


async def _make_worker(port: int, stream: str, config: ConsumerConfig) -> None:
    async with await nats.connect(_url(port)) as connection:
        await connection.jetstream().add_consumer(stream, config)


def end(port: int, stream: str) -> int:
    """Return the number of messages that the stream ever had."""

    async def ask() -> int:
        async with await nats.connect(_url(port), allow_reconnect=False) as connection:
            return (await connection.jetstream().stream_info(stream)).state.last_seq

    return asyncio.run(ask())


def unacknowledged(port: int, stream: str) -> int:
    """Return the number of messages that the worker has not acknowledged, delivered or not."""

    async def ask() -> int:
        async with await nats.connect(_url(port)) as connection:
            worker = await connection.jetstream().consumer_info(stream, _WORKER)
            return (worker.num_ack_pending or 0) + (worker.num_pending or 0)

    return asyncio.run(ask())


def about(port: int) -> bytes:
    """Return JetStream's description of itself.

    Raises:
        ConnectionError: the server runs, JetStream does not.
    """
    link = Link(port)
    try:
        link.ask("$JS.API.INFO", {})
        answer = link.receive()
    finally:
        link.close()
    if b'"error"' in answer or b"503" in answer:
        raise ConnectionError(f"JetStream does not answer: {answer!r}")
    return answer


# ── nats-py ───────────────────────────────────────────────────────────────────────────────────────


def publish(port: int, stream: str, value: bytes, count: int, window: int, start: Start) -> Span:
    """Pipelined, at most `window` unacknowledged."""
    return uvloop.run(_publish(port, stream, value, count, window, start))


async def _publish(port: int, stream: str, value: bytes, count: int, window: int, start: Start) -> Span:
    async with await nats.connect(_url(port)) as connection:
        context = connection.jetstream(publish_async_max_pending=window)
        await context.publish(stream, value)
        watch = Stopwatch(start)
        acks = [await context.publish_async(stream, value) for _ in range(count)]
        await context.publish_async_completed()
        for ack in acks:
            ack.result()
        return watch.span()


def read(port: int, stream: str, count: int, start: Start) -> Span:
    """An ordered consumer; found: how many messages were counted, which is all after the first."""
    return uvloop.run(_read(port, stream, count, start))


async def _read(port: int, stream: str, count: int, start: Start) -> Span:
    watch: Stopwatch | None = None
    seen, is_over = 0, asyncio.Event()

    async def take(_: Msg) -> None:
        nonlocal watch, seen
        if watch is None:
            watch = Stopwatch(start)
        seen += 1
        if seen == count:
            is_over.set()

    async with await nats.connect(_url(port)) as connection:
        await connection.jetstream().subscribe(stream, cb=take, ordered_consumer=True)
        await is_over.wait()
        assert watch is not None
        return watch.span(seen - 1)


def consume_singly(port: int, stream: str, count: int, workers: int, start: Start) -> Span:
    """Consume in `workers` tasks, which acknowledge each message before they take the next; wait
    for the last acknowledgement.
    """
    return uvloop.run(_consume_singly(port, stream, count, workers, start))


async def _consume_singly(port: int, stream: str, count: int, workers: int, start: Start) -> Span:
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    async with await nats.connect(_url(port)) as connection:
        await _deliver(connection, stream, messages)
        await (await messages.get()).ack()
        watch = Stopwatch(start)
        left = count

        async def work() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                message = await messages.get()
                if left:
                    await message.ack()
                else:
                    await message.ack_sync()

        await asyncio.gather(*(work() for _ in range(workers)))
        return watch.span()


async def _deliver(connection: Client, stream: str, messages: asyncio.Queue[Msg]) -> None:
    async def take(message: Msg) -> None:
        messages.put_nowait(message)

    context = connection.jetstream()
    consumer = await context.consumer_info(stream, _WORKER)
    await context.subscribe_bind(
        stream=stream, config=consumer.config, consumer=_WORKER, cb=take, manual_ack=True
    )


def publish_at_rate(port: int, stream: str, rate: int, count: int, start: Start) -> Span:
    """One message of 100 B after the other, each when it is due."""
    return _exactly(_publish_at_rate(port, stream, rate, count, start))


async def _publish_at_rate(port: int, stream: str, rate: int, count: int, start: Start) -> Span:
    async with await nats.connect(_url(port)) as connection:
        context = connection.jetstream(publish_async_max_pending=1_000_000)
        await context.publish(stream, stamped(0, 100))
        watch = Stopwatch(start)
        acks = []
        async for due in due_times_async(watch.began, rate, count):
            acks.append(await context.publish_async(stream, stamped(due, 100)))
            await asyncio.sleep(0)
        await context.publish_async_completed()
        for ack in acks:
            ack.result()
        return watch.span()


def read_late(port: int, stream: str, count: int, start: Start) -> Span:
    """An ordered consumer that looks how late each message is; found: the latencies in seconds."""
    return uvloop.run(_late(port, stream, count, start, is_queue=False))


def work_late(port: int, stream: str, count: int, start: Start) -> Span:
    """Looks how late each message is, and acknowledges it by itself; found: the latencies in
    seconds.
    """
    return uvloop.run(_late(port, stream, count, start, is_queue=True))


async def _late(port: int, stream: str, count: int, start: Start, *, is_queue: bool) -> Span:
    times: list[float] = []
    messages: asyncio.Queue[Msg] = asyncio.Queue()

    async def take(message: Msg) -> None:
        messages.put_nowait(message)

    async with await nats.connect(_url(port)) as connection:
        if is_queue:
            await _deliver(connection, stream, messages)
        else:
            await connection.jetstream().subscribe(stream, cb=take, ordered_consumer=True)
        first = await messages.get()
        if is_queue:
            await first.ack()
        # In a thread, for the connection must answer meanwhile.
        watch = await asyncio.to_thread(Stopwatch, start)
        while len(times) < count:
            message = await messages.get()
            times.append(late_s(message.data))
            if is_queue:
                await message.ack()
        await connection.flush()
        return watch.span(times)


def _exactly(work: Coroutine[Any, Any, Span]) -> Span:
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        return runner.run(work)


# ── bytes only ────────────────────────────────────────────────────────────────────────────────────


class Link:
    """A connection whose commands are bytes; blocking. All answers come to one inbox, its own."""

    def __init__(self, port: int) -> None:
        self.inbox = f"_INBOX.{secrets.token_hex(4)}"
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        options = {"verbose": False, "pedantic": False, "headers": True, "protocol": 1, "lang": "bytes"}
        self.socket.sendall(f"CONNECT {json.dumps(options)}\r\nSUB {self.inbox} 1\r\nPING\r\n".encode())
        said = b""
        while b"PONG\r\n" not in said:
            said += self.receive()

    def receive(self) -> bytes:
        """Wait for bytes."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("NATS closed the connection")
        return data

    def ask(self, subject: str, request: dict[str, Any]) -> None:
        """Send a request of JetStream's API; what it answers comes to the inbox."""
        self.socket.sendall(self.publication(subject, json.dumps(request).encode()))

    def publication(self, subject: str, value: bytes) -> bytes:
        """A message that is to be answered to the inbox."""
        return f"PUB {subject} {self.inbox} {len(value)}\r\n".encode() + value + b"\r\n"

    def close(self) -> None:
        self.socket.close()


class Counter:
    """Counts a mark in received bytes, wherever the pieces are cut."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._rest = b""
        self.count = 0

    def add(self, data: bytes) -> bytes:
        """Count in the next piece; returns it after what was left of the one before."""
        whole = self._rest + data
        self.count += whole.count(self._mark)
        last = whole.rfind(self._mark)
        after = len(self._mark) + last if last >= 0 else 0
        self._rest = whole[max(after, len(whole) - len(self._mark) + 1) :]
        return whole


class Acknowledgements:
    """Counts the publications of a connection that the stream has acknowledged."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._ends = Counter(b"}\r\n")

    @property
    def count(self) -> int:
        return self._ends.count

    def look(self) -> None:
        """Take what has come, without waiting."""
        if select.select([self._link.socket], [], [], 0)[0]:
            self.wait()

    def wait(self) -> int:
        """Take what comes next, waiting for it; returns how many there are altogether.

        Raises:
            ConnectionError: the stream refused one.
        """
        whole = self._ends.add(self._link.receive())
        if b'"error"' in whole or b"-ERR" in whole:
            raise ConnectionError(f"NATS refused a message: {whole[:500]!r}")
        return self._ends.count


def publish_bytes(port: int, stream: str, value: bytes, count: int, window: int, start: Start) -> Span:
    """Pipelined, at most `window` unacknowledged."""
    link = Link(port)
    acks = Acknowledgements(link)
    message = link.publication(stream, value)
    link.socket.sendall(message)
    while (acknowledged := acks.wait()) < 1:
        pass
    watch = Stopwatch(start)
    piece = max(1, window // 10)
    sent, last = 1, count + 1
    while acknowledged < last:
        while sent < last and sent - acknowledged <= window - piece:
            number = min(piece, last - sent)
            link.socket.sendall(message * number)
            sent += number
        acknowledged = acks.wait()
    span = watch.span()
    link.close()
    return span


class Pull:
    """A consumer from which messages are asked for in pieces, two of them under way; equal
    messages, counted by how each ends.
    """

    def __init__(self, link: Link, stream: str, consumer: str, ending: bytes, piece: int) -> None:
        self._link = link
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._messages = Counter(ending + b"\r\n")
        self._piece = piece
        self._asked = 0

    @property
    def count(self) -> int:
        """The number of marks received."""
        return self._messages.count

    def take(self, last: int) -> bytes:
        """Wait for more, asking for this many in all; returns the bytes."""
        while self._asked < last and self._asked - self.count <= self._piece:
            number = min(self._piece, last - self._asked) if self._asked else 1
            self._link.ask(self._subject, {"batch": number, "expires": _WAIT_NS})
            self._asked += number
        return self._messages.add(self._link.receive())


def _make_reader(link: Link, stream: str) -> None:
    """A durable consumer from the stream's beginning, without acknowledgements."""
    config = {"durable_name": _READER, "ack_policy": "none", "deliver_policy": "all"}
    subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{_READER}"
    link.ask(subject, {"stream_name": stream, "config": config})
    link.receive()


def read_bytes(port: int, stream: str, ending: bytes, count: int, start: Start) -> Span:
    """A pull consumer without acknowledgements, from the beginning; found: how many messages were
    counted.
    """
    link = Link(port)
    _make_reader(link, stream)
    pull = Pull(link, stream, _READER, ending, PREFETCH)
    while pull.count < 1:
        pull.take(1)
    watch, first = Stopwatch(start), pull.count
    while pull.count < count:
        pull.take(count)
    span = watch.span(pull.count - first)
    link.close()
    return span


def consume_bytes(port: int, stream: str, ending: bytes, count: int, ack_every: int, start: Start) -> Span:
    """All up to a message are acknowledged at once, this many at a time; the last acknowledgement
    is waited for.
    """
    link = Link(port)
    pull = Pull(link, stream, _WORKER, ending, PREFETCH // 2)
    seen = b""
    while pull.count < 1:
        seen = pull.take(1)
    watch = Stopwatch(start)
    acknowledged, last = 0, count + 1
    while acknowledged < last:
        if pull.count < last:
            seen = pull.take(last)
        if pull.count - acknowledged >= ack_every or pull.count >= last:
            acknowledged = pull.count
            _acknowledge(link, seen, ending, is_last=acknowledged >= last)
    span = watch.span()
    link.close()
    return span


def _acknowledge(link: Link, seen: bytes, ending: bytes, *, is_last: bool) -> None:
    """Acknowledge up to the last message that is whole in what was seen; of the last one of all,
    wait until it is confirmed.
    """
    whole = seen.rfind(ending + b"\r\n")
    begin = seen.rfind(b"$JS.ACK.", 0, whole)
    subject = seen[begin : seen.index(b" ", begin)].decode()
    if not is_last:
        link.socket.sendall(f"PUB {subject} 0\r\n\r\n".encode())
        return
    link.socket.sendall(link.publication(subject, b"+ACK"))
    link.receive()


def publish_bytes_at_rate(port: int, stream: str, rate: int, count: int, start: Start) -> Span:
    """One message of 100 B after the other, each when it is due."""
    link = Link(port)
    acks = Acknowledgements(link)
    link.socket.sendall(link.publication(stream, stamped(0, 100)))
    while acks.wait() < 1:
        pass
    watch = Stopwatch(start)
    for due in due_times(watch.began, rate, count):
        link.socket.sendall(link.publication(stream, stamped(due, 100)))
        acks.look()
    while acks.count < count + 1:
        acks.wait()
    span = watch.span()
    link.close()
    return span


def read_bytes_late(port: int, stream: str, count: int, start: Start) -> Span:
    """Looks how late each message is; found: the latencies in seconds."""
    link = Link(port)
    _make_reader(link, stream)
    return _bytes_late(link, stream, _READER, count, start)


def work_bytes_late(port: int, stream: str, count: int, start: Start) -> Span:
    """Looks how late each message is, and acknowledges it by itself; found: the latencies in
    seconds.
    """
    return _bytes_late(Link(port), stream, _WORKER, count, start)


def _bytes_late(link: Link, stream: str, consumer: str, count: int, start: Start) -> Span:
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
    link.ask(subject, {"batch": count + 1, "expires": 4 * _WAIT_NS})
    arrived = messages(link)
    next(arrived)
    watch = Stopwatch(start)
    times: list[float] = []
    while len(times) < count:
        reply, value = next(arrived)
        times.append(late_s(value))
        if consumer == _WORKER:
            link.socket.sendall(b"PUB " + reply + b" 0\r\n\r\n")
    span = watch.span(times)
    link.close()
    return span


def messages(link: Link) -> Iterator[tuple[bytes, bytes]]:
    """Where to acknowledge it, and the value, of each message that comes.

    Raises:
        ConnectionError: something else came.
    """
    received = b""
    while True:
        line, found, rest = received.partition(b"\r\n")
        words = line.split()
        if found and words == [b"PING"]:
            link.socket.sendall(b"PONG\r\n")
            received = rest
            continue
        if found and (len(words) != 5 or words[0] != b"MSG"):
            raise ConnectionError(f"NATS sent {line!r} instead of a message")
        if not found or len(rest) < int(words[4]) + 2:
            received += link.receive()
            continue
        size = int(words[4])
        yield words[3], rest[:size]
        received = rest[size + 2 :]
