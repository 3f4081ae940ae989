"""The examples of queues and workers in docs/client.md work, in the order of the document."""

from __future__ import annotations

import ast
import asyncio
import re
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import sparrow
from sparrow.client.client import Client
from tests.client.frontends import Frontend

DOCUMENT = (Path(__file__).parents[2] / "docs" / "client.md").read_text()


def examples(kind: str) -> list[str]:
    return re.findall(rf"^```python {kind}\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)


def function_of(code: str, names: dict[str, Any]) -> Any:
    body = textwrap.indent(code, "    ")
    exec(compile(ast.parse(f"async def example():\n{body}"), "docs/client.md", "exec"), names)
    return names["example"]


async def test_the_async_examples_work(client: Client) -> None:
    sent: list[bytes | None] = []
    stored: list[bytes | None] = []

    async def send(value: bytes | None) -> None:
        sent.append(value)
        if len(sent) == 2:
            asyncio.get_running_loop().call_soon(asyncio.ensure_future, client.stop_workers())

    async def store(values: list[bytes | None]) -> None:
        stored.extend(values)

    names: dict[str, Any] = {"client": client, "sparrow": sparrow, "send": send, "store": store}
    iterating, asking, working = examples("example")
    async with asyncio.timeout(60):
        await function_of(iterating, names)()
        assert sent == [b"to: alice"]
        async with client.queue("emails") as queue:
            names["queue"] = queue
            for value in (b"one", b"two"):
                await queue.publish(value, partition=0)
            await function_of(asking, names)()
            assert stored == [b"one", b"two"]
            await queue.publish(b"")
            await queue.publish(b"to: carol")
            await function_of(working, names)()
            assert sent == [b"to: alice", b"to: carol"]


async def test_requests_with_replies_and_publishing_once(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"client": client}
    async with asyncio.timeout(60):
        await function_of(*examples("reply"), names)()
        working = asyncio.create_task(client.run_workers(handle_signals=False))
        await function_of(*examples("request"), names)()
        await client.stop_workers()
        await working
        for _ in range(2):
            await function_of(*examples("once"), names)()
    assert capsys.readouterr().out == "b'7.50'\n0 False\n0 True\n"


async def test_the_blocking_example_works(client: Client, frontend: Frontend) -> None:
    sent: list[bytes | None] = []
    await client.admin.create_queue("emails", partitions=1)
    (code,) = examples("sync")

    def run() -> None:
        with sparrow.sync.connect(frontend.url) as blocking:

            def send(value: bytes | None) -> None:
                sent.append(value)
                if len(sent) == 2:
                    threading.Thread(target=blocking.stop_workers).start()

            def publish_for_the_worker() -> None:
                while not blocking._inner._workers._workers:
                    time.sleep(0.01)
                blocking.publish("emails", b"to: dave")

            publishing = threading.Thread(target=publish_for_the_worker)
            publishing.start()
            exec(code, {"client": blocking, "send": send})
            publishing.join()

    await asyncio.to_thread(run)
    assert sent == [b"to: bob", b"to: dave"]
