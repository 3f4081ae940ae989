"""The clients of the seed systems. Those that ask for no confirmation are beside the same client
against a server that only reads and drops; of those that wait for one, each answer follows a sync.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import sparrow
from bench.clients import http, seeds
from bench.results import Measurement, Target
from bench.server import Server, free_port, server
from bench.together import seconds, together
from sparrow.base.errors import UnknownTopic

if TYPE_CHECKING:
    from sparrow.client.client import Client

NOTE = "asks for no confirmation; group commit at once, counted in the log afterwards"


@contextmanager
def _dropping() -> Iterator[int]:
    """The port of a server that reads and drops, in a process of its own."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        process = multiprocessing.get_context("fork").Process(
            target=seeds.drop, args=(listening,), daemon=True
        )
        process.start()
        try:
            yield listening.getsockname()[1]
        finally:
            process.kill()
            process.join()


def _wait_until_stored(broker: Server, count: int) -> None:
    async def wait() -> None:
        async with sparrow.connect(broker.url) as client, asyncio.timeout(120):
            while True:
                if await _stored(client) >= count:
                    return
                await asyncio.sleep(0.02)

    asyncio.run(wait())


async def _stored(client: Client) -> int:
    """Return the number of messages in the log. The first one creates the topic."""
    try:
        return sum(place.offset for place in await client.admin.offsets(seeds.TOPIC, "end"))
    except UnknownTopic:
        return 0


def _measure(name: str, runs: int, count: int) -> list[Measurement]:
    ours = Measurement(f"{name}: a client's publish, 100 B", "msg/s", None, NOTE)
    stored = Measurement(f"{name}: the same until all is in the log", "msg/s", None, NOTE)
    dropped = Measurement(
        f"{name}: the same client, read and dropped",
        "msg/s",
        figure=ours.figure,
        broker="a server that reads and drops",
    )
    share = Measurement(f"{name}: ratio of the medians", "", Target(1.0))
    publish = seeds.publish_by_connections if name == "mbus" else seeds.publish
    for _ in range(runs):
        port = free_port()
        with server(f"--seeds-{name.replace('_', '-')}-port", str(port)) as broker:
            broker.until_listening(port)
            (span,) = together(partial(publish, name, port, count))
            ours.runs.append(count / seconds([span]))
            _wait_until_stored(broker, count)
            stored.runs.append(count / (time.monotonic() - span.began))
        with _dropping() as port:
            (span,) = together(partial(publish, name, port, count))
            dropped.runs.append(count / seconds([span]))
    share.runs.append(statistics.median(ours.runs) / statistics.median(dropped.runs))
    return [ours, stored, dropped, share]


def publishing(runs: int, scale: float) -> list[Measurement]:
    """All of them; `mbus` has a connection for each message."""
    rows: list[Measurement] = []
    for name in seeds.MAKERS:
        rows += _measure(name, runs, round((20_000 if name == "mbus" else 400_000) * scale))
    return rows


def waiting(runs: int, scale: float) -> list[Measurement]:
    """Measure clients that wait for stable storage: Syncbrok's HTTP and producers of mbus, which
    are answered when their message is synced, and consumers of diy_message_broker, which get a
    message when no other consumer can get it any more.
    """
    after = "each answer after its fdatasync"
    many = Measurement("syncbrok: POST /msg, 100 B, 32 connections", "msg/s", None, after)
    one = Measurement("syncbrok: POST /msg, 100 B, one at a time", "msg/s", Target(1_500), after)
    ended = "each connection ends after the fdatasync of its message"
    producers = {
        number: Measurement(f"mbus: {who}, each waits for the end of its connection", "msg/s", None, ended)
        for number, who in ((1, "one producer"), (16, "16 producers"))
    }
    producers[16].target = Target(6_000)
    once = "each message is handed out once, whatever is killed"
    consumers = {
        number: Measurement(f"diy_message_broker: consume, {who}", "msg/s", Target(floor), once)
        for number, who, floor in ((1, "one consumer", 6_000), (16, "16 consumers", 15_000))
    }
    for _ in range(runs):
        _post(many, one, round(1_000 * scale))
        for number, row in producers.items():
            _publish_waiting(row, number, round(10_000 * scale))
        for number, row in consumers.items():
            _consume(row, number, round(30_000 * scale))
    return [many, one, *producers.values(), *consumers.values()]


def _post(many: Measurement, one: Measurement, each: int) -> None:
    port = free_port()
    with server("--seeds-syncbrok-port", str(port)) as broker:
        broker.until_listening(port)
        queue = f"queue: {seeds.TOPIC}"
        together(partial(http.repeat, port, http.post("/queue", b"", "text/plain", queue), 1, 1))
        request = http.post("/msg", seeds.VALUE, "application/octet-stream", queue)
        for row, connections in ((many, 32), (one, 1)):
            (span,) = together(partial(http.repeat, port, request, connections, each))
            row.runs.append(connections * each / seconds([span]))
        assert broker.process is not None
        assert broker.process.poll() is None


def _publish_waiting(row: Measurement, producers: int, count: int) -> None:
    port = free_port()
    with server("--seeds-mbus-port", str(port)) as broker:
        broker.until_listening(port)
        (span,) = together(partial(seeds.publish_waiting, port, count, producers))
        row.runs.append(count / seconds([span]))
        _wait_until_stored(broker, count)


def _consume(row: Measurement, consumers: int, count: int) -> None:
    port = free_port()
    with server("--seeds-diy-message-broker-port", str(port)) as broker:
        broker.until_listening(port)
        together(partial(seeds.publish, "diy_message_broker", port, count))
        _wait_until_stored(broker, count)
        (span,) = together(partial(seeds.consume, port, count, consumers))
        row.runs.append(count / seconds([span]))
