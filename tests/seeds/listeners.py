"""Listeners on free ports, and reading and writing of topics without a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

from sparrow.broker.broker import Broker
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.frontends.seeds.frontend import SeedFrontend
from sparrow.frontends.seeds.settings import SeedSettings
from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.record import Record, decode

TIMEOUT_S = 10.0


class OpenListeners:
    """A function that opens listeners of one broker: `ports = await open_listeners("mbus",
    "mbus_consumer")`.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.frontends: list[SeedFrontend] = []

    async def __call__(self, *names: str, **settings: Any) -> Mapping[str, int]:
        frontend = SeedFrontend(self.broker, SeedSettings(ports=dict.fromkeys(names, 0), **settings))
        self.frontends.append(frontend)
        return await frontend.start()

    async def close(self) -> None:
        for frontend in self.frontends:
            await frontend.drain(2.0)
        self.frontends.clear()

    async def close_all(self) -> None:
        """Close the listeners, and the connections of tests to them."""
        await self.close()
        while Wire.opened:
            await Wire.opened.pop().close()


class Wire:
    """A connection that sends and reads bytes; every wait has a timeout."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    opened: ClassVar[list[Wire]] = []
    """All connections of a test; the fixture closes them."""

    @classmethod
    async def open(cls, port: int) -> Wire:
        wire = cls(*await asyncio.open_connection("127.0.0.1", port))
        cls.opened.append(wire)
        return wire

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.reader.readexactly(size)

    async def read_to_end(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def is_silent(self, seconds: float = 0.05) -> bool:
        """Return True if nothing arrives for a moment."""
        try:
            async with asyncio.timeout(seconds):
                return not await self.reader.read(1)
        except TimeoutError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def abort(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


async def publish(broker: Broker, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    """Publish as any other frontend does."""
    await broker.records.publish(
        topic, 0, build_batch(list(values), [key] * len(values), None, 1_700_000_000_000)
    )


async def records(broker: Broker, topic: str, count: int, partition: int = 0) -> list[Record]:
    """Return the first records of a partition as soon as there are `count`."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = await stored(broker, topic, partition)
            if len(found) >= count:
                return found
            await asyncio.sleep(0.005)


async def stored(broker: Broker, topic: str, partition: int = 0) -> list[Record]:
    """Return the records that are in a partition now."""
    if broker.parts.topic_registry.find(topic) is None:
        return []
    response = (await broker.records.fetch([FetchRequest(topic, partition, 0, 64 << 20)]))[0]
    data = b"" if response.chunk is None else bytes(response.chunk.data)
    return [record for _, batch in split(data) for record in decode(batch, topic, partition)]


async def until(condition: Any) -> None:
    """Wait for a condition to become true."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.005)
