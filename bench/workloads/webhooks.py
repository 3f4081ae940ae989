"""Deliveries of a queue to a webhook endpoint in another process of the same machine."""

from __future__ import annotations

import json
import time
import urllib.request
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from bench.clients import endpoint
from bench.filled import fill_queue
from bench.results import Measurement, Target
from bench.server import Server, free_port, server
from bench.together import together

if TYPE_CHECKING:
    from bench.together import Start

KEPT = "publish, lease and ack on stable storage (group commit)"
QUEUE = "bench"
VALUE = b"m" * 100
CONCURRENCY = 32


def _subscribe(http_port: int, port: int, form: str, start: Start) -> float:
    """Name the endpoint once it listens: what waits is delivered from then on. When that was,
    monotonic seconds.
    """
    start()
    time.sleep(0.2)
    body = {"url": f"http://127.0.0.1:{port}/hook", "concurrency": CONCURRENCY, "format": form}
    request = urllib.request.Request(
        f"http://127.0.0.1:{http_port}/v1/queues/{QUEUE}/subscribers/endpoint",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    began = time.monotonic()
    with urllib.request.urlopen(request) as answer:
        answer.read()
    return began


def _delivered(broker: Server, count: int, form: str) -> float:
    """Deliveries per second of messages that wait already."""
    uvloop.run(fill_queue(broker.url, QUEUE, VALUE, count))
    port = free_port()
    taken, began = together(
        partial(endpoint.take, port, count), partial(_subscribe, broker.http_port, port, form)
    )
    return count / (taken.ended - began)


def deliveries(runs: int, scale: float) -> list[Measurement]:
    """10,000 messages that wait, to one endpoint; bodies as they are, and signed."""
    signed = Measurement("webhooks: raw, signed, 32 at a time", "deliveries/s", Target(1_500), KEPT)
    events = Measurement("webhooks: CloudEvents, signed, 32 at a time", "deliveries/s", None, KEPT)
    count = round(20_000 * scale)
    for _ in range(runs):
        for row, form in ((signed, "raw"), (events, "cloudevents")):
            with server("--webhooks-allow", "private") as broker:
                row.runs.append(_delivered(broker, count, form))
    return [signed, events]
