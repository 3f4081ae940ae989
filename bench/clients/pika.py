"""pika, RabbitMQ's best known Python client, and the fastest of those measured here."""

from __future__ import annotations

from typing import Any

import pika

from bench.pace import late_s
from bench.together import Span, Start, Stopwatch

_PERSISTENT = pika.BasicProperties(delivery_mode=2)


def _parameters(port: int) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)


class Publisher:
    """Publishes without waiting, at most `window` unconfirmed (the blocking connection of pika
    waits for each).
    """

    def __init__(self, queue: str, value: bytes, count: int, window: int, start: Start) -> None:
        self._queue, self._value, self._window, self._start = queue, value, window, start
        self._last = count + 1
        self._sent, self._all_to = 0, 0
        self._singles: set[int] = set()
        self._watch: Stopwatch | None = None
        self.span: Span | None = None
        self._connection: Any = None
        self._channel: Any = None

    def run(self, port: int) -> Span:
        self._connection = pika.SelectConnection(_parameters(port), on_open_callback=self._opened)
        self._connection.ioloop.start()
        assert self.span is not None
        return self.span

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._send(1))

    def _send(self, number: int) -> None:
        publish, queue, value = self._channel.basic_publish, self._queue, self._value
        for _ in range(number):
            publish("", queue, value, _PERSISTENT)
        self._sent += number

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        if method.NAME != "Basic.Ack":
            raise ConnectionError(f"RabbitMQ sent {method.NAME} instead of a confirmation")
        if method.multiple:
            self._all_to = max(self._all_to, method.delivery_tag)
            self._singles = {each for each in self._singles if each > self._all_to}
        else:
            self._singles.add(method.delivery_tag)
        while self._all_to + 1 in self._singles:
            self._all_to += 1
            self._singles.remove(self._all_to)
        self._go_on()

    def _go_on(self) -> None:
        if self._watch is None:
            self._watch = Stopwatch(self._start)
        confirmed = self._all_to + len(self._singles)
        if confirmed >= self._last:
            self.span = self._watch.span()
            self._connection.ioloop.stop()
            return
        room = self._window - (self._sent - confirmed)
        if room >= self._window // 4:
            self._send(min(room, self._last - self._sent))


def publish(port: int, queue: str, value: bytes, count: int, window: int, start: Start) -> Span:
    """Pipelined, each counted when it is confirmed."""
    return Publisher(queue, value, count, window, start).run(port)


def consume(port: int, queue: str, count: int, prefetch: int, ack_every: int, start: Start) -> Span:
    """Acknowledged this many at a time (`multiple`); 1: each by itself."""
    connection = pika.BlockingConnection(_parameters(port))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=prefetch)
    last = count + 1
    watch: Stopwatch | None = None

    def handle(channel: Any, method: Any, _properties: object, _body: bytes) -> None:
        nonlocal watch
        tag = method.delivery_tag
        if tag == 1:
            channel.basic_ack(1)
            watch = Stopwatch(start)
        elif tag % ack_every == 0 or tag == last:
            channel.basic_ack(tag, multiple=ack_every > 1)
        if tag == last:
            channel.stop_consuming()

    channel.basic_consume(queue, handle)
    channel.start_consuming()
    assert watch is not None
    span = watch.span()
    connection.close()
    return span


def work_late(port: int, queue: str, count: int, start: Start) -> Span:
    """Looks how late each message is, and acknowledges it by itself; found: the latencies in
    seconds.
    """
    connection = pika.BlockingConnection(_parameters(port))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=100)
    times: list[float] = []
    watch: Stopwatch | None = None

    def handle(channel: Any, method: Any, _properties: object, body: bytes) -> None:
        nonlocal watch
        times.append(late_s(body))
        channel.basic_ack(method.delivery_tag)
        if watch is None:
            watch = Stopwatch(start)
        elif len(times) > count:
            channel.stop_consuming()

    channel.basic_consume(queue, handle)
    channel.start_consuming()
    assert watch is not None
    span = watch.span(times[1:])
    connection.close()
    return span
