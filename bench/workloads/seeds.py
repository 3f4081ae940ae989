"""Publishing by the clients of the seed systems, beside the same client against a server that only
reads and drops.
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
    """How many messages are in the log. The first one makes the topic."""
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


def syncbrok(runs: int, scale: float) -> list[Measurement]:
    """Messages by Syncbrok's HTTP, each answered with its id when it is on stable storage; a server
    that drops could not answer.
    """
    row = Measurement(
        "syncbrok: POST /msg, 100 B, 32 connections", "msg/s", None, "each answer after its fdatasync"
    )
    each = round(1_000 * scale)
    for _ in range(runs):
        port = free_port()
        with server("--seeds-syncbrok-port", str(port)) as broker:
            broker.until_listening(port)
            queue = f"queue: {seeds.TOPIC}"
            together(partial(http.repeat, port, http.post("/queue", b"", "text/plain", queue), 1, 1))
            request = http.post("/msg", seeds.VALUE, "application/octet-stream", queue)
            (span,) = together(partial(http.repeat, port, request, 32, each))
            row.runs.append(32 * each / seconds([span]))
            assert broker.process is not None
            assert broker.process.poll() is None
    return [row]
