"""The functions from the socket to the file: docs/architecture.md shows all of them, and there are
few.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import sparrow
from sparrow.frontends.coalescer import Coalescer
from sparrow.frontends.http.connection import HttpConnection
from sparrow.frontends.kafka.context import Listener
from sparrow.frontends.kafka.frontend import KafkaFrontend
from sparrow.frontends.transport.context import TransportContext
from tests.http_frontend.conftest import MakeHttp
from tests.http_frontend.raw import Raw
from tests.kafka_frontend.raw import RawClient
from tests.kafka_frontend.requests import produce
from tests.native_frontend.raw import OpenListener, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.broker import Broker

PACKAGE: Final = Path(sparrow.__file__).parent
ARCHITECTURE: Final = PACKAGE.parents[1] / "docs" / "architecture.md"
MOST_OF_KAFKA: Final = 16
MOST_OF_NATIVE: Final = 12
MOST_OF_HTTP: Final = 16
_STEP: Final = re.compile(r"^ +([\w.]+) +([a-z_/]+\.py)\b", re.MULTILINE)


class WritePaths:
    """Records the functions of Sparrow that are running when a file is written to."""

    def __init__(self) -> None:
        self.found: list[list[tuple[str, str]]] = []

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: Any, event: str, function: object) -> None:
        if event == "c_call" and function in {os.pwritev, os.pwrite, os.write, os.writev}:
            self.found.append(_functions(frame))


def _functions(frame: Any) -> list[tuple[str, str]]:
    """Return (name, path) of the running functions, the outermost first."""
    running = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            running.append((frame.f_code.co_qualname, path.relative_to(PACKAGE).as_posix()))
        frame = frame.f_back
    return running[::-1]


def documented(heading: str) -> list[tuple[str, str]]:
    text = ARCHITECTURE.read_text("utf-8")
    return _STEP.findall(text[text.index(heading) :].split("```")[1])


async def path_of(publish: Callable[[], Any]) -> list[tuple[str, str]]:
    await publish()  # opens the log, loads modules
    with WritePaths() as paths:
        await publish()
    found = [each for each in paths.found if each[0][0].endswith(("buffer_updated", "data_received"))]
    assert len(found) == 1
    return found[0]


async def test_a_produce_of_kafka_reaches_the_file_by_the_functions_that_are_documented(
    broker: Broker,
) -> None:
    await broker.topics.create("orders", 1)
    frontend = KafkaFrontend(broker)
    port = await frontend.start(Listener("kafka", "127.0.0.1", 0))
    request = produce(9, "orders", [(0, bytes(batch_of(b"x")))])
    try:
        with await asyncio.to_thread(RawClient, f"127.0.0.1:{port}") as client:
            found = await path_of(lambda: asyncio.to_thread(client.call, request))
    finally:
        await frontend.drain(1)
    assert found == documented("A Kafka client produces:")
    assert len(found) <= MOST_OF_KAFKA


async def test_a_publish_of_the_native_client_reaches_the_file_by_the_functions_that_are_documented(
    broker: Broker,
) -> None:
    await broker.topics.create("orders", 1)
    opener = OpenListener()
    client = await (await opener(broker)).client()
    try:
        await client.open_producer()
        found = await path_of(lambda: client.publish("orders", b"x"))
    finally:
        await opener.close()
    assert found == documented("The native client publishes:")
    assert len(found) <= MOST_OF_NATIVE


async def test_a_publish_by_http_reaches_the_file_by_the_functions_that_are_documented(
    make_http: MakeHttp,
) -> None:
    """It runs in three steps: the bytes start a task; the task waits for what other requests
    publish at the same time; all of that is appended.
    """
    http = await make_http()
    await http.broker.topics.create("orders", 1)
    steps = {TransportContext.spawn.__code__: "read", Coalescer.publish.__code__: "handled"}
    found: dict[str, list[tuple[str, str]]] = {}

    def note(frame: Any, event: str, function: object) -> None:
        if event == "call" and frame.f_code in steps:
            found.setdefault(steps[frame.f_code], _functions(frame))
        elif event == "c_call" and function in {os.pwritev, os.pwrite, os.write, os.writev}:
            stack = _functions(frame)
            if stack[0][0] == Coalescer._flush.__qualname__:
                found["written"] = stack

    async with Raw(http.port) as raw:
        await raw.ask("POST", "/v1/topics/orders/messages", b"x")  # opens the log, loads modules
        sys.setprofile(note)
        try:
            response = await raw.ask("POST", "/v1/topics/orders/messages", b"x")
        finally:
            sys.setprofile(None)
    assert response.status == 200
    path = found["read"] + found["handled"] + found["written"]
    assert path[0][0] == HttpConnection.data_received.__qualname__
    assert path == documented("A message comes by HTTP")
    assert len(path) <= MOST_OF_HTTP
