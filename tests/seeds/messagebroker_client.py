"""Clients of messagebroker, written from its wire format alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from tests.seeds.listeners import Wire

SUBSCRIBE, UNSUBSCRIBE, PUBLISH, ACK, NACK = 1, 2, 3, 4, 5
SUBSCRIBED, UNSUBSCRIBED, ERROR = 1, 2, 3
BEGINNING, CURRENT, FROM = 0, 1, 2


def names(topics: Sequence[str]) -> bytes:
    array = json.dumps(list(topics)).encode()
    return struct.pack(">I", len(array)) + array


def subscription(topics: Sequence[str], start: int = BEGINNING, offset: int = 0) -> bytes:
    data = struct.pack(">H", SUBSCRIBE) + names(topics) + struct.pack(">H", start)
    return data + struct.pack(">H", offset) if start == FROM else data


def message(topic: bytes, data: bytes, prefix: bytes = b"topic:") -> bytes:
    name = prefix + topic
    return struct.pack(">H", len(name)) + name + struct.pack(">I", len(data)) + data


class Client:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    async def status(self) -> tuple[int, str]:
        """Return a status; only an error has a text."""
        (code,) = struct.unpack(">H", await self.wire.read(2))
        if code != ERROR:
            return code, ""
        (size,) = struct.unpack(">H", await self.wire.read(2))
        return code, (await self.wire.read(size)).decode()


class Publisher(Client):
    @classmethod
    async def connect(cls, port: int) -> Publisher:
        wire = await Wire.open(port)
        wire.send(struct.pack(">H", PUBLISH))
        return cls(wire)

    def publish(self, topic: bytes, *values: bytes) -> None:
        self.wire.send(b"".join(message(topic, value) for value in values))


class Subscriber(Client):
    @classmethod
    async def connect(cls, port: int, *topics: str, start: int = BEGINNING, offset: int = 0) -> Subscriber:
        client = cls(await Wire.open(port))
        await client.subscribe(*topics, start=start, offset=offset)
        return client

    async def subscribe(self, *topics: str, start: int = BEGINNING, offset: int = 0) -> None:
        self.wire.send(subscription(topics, start, offset))
        assert await self.status() == (SUBSCRIBED, "")

    async def unsubscribe(self, *topics: str) -> None:
        self.wire.send(struct.pack(">H", UNSUBSCRIBE) + names(topics))
        assert await self.status() == (UNSUBSCRIBED, "")

    async def delivered(self) -> tuple[bytes, bytes]:
        (size,) = struct.unpack(">H", await self.wire.read(2))
        topic = await self.wire.read(size)
        (size,) = struct.unpack(">Q", await self.wire.read(8))
        return topic, await self.wire.read(size)

    def reply(self, action: int = ACK) -> None:
        self.wire.send(struct.pack(">H", action))

    async def take(self, count: int = 1) -> list[bytes]:
        """Return the next messages; acknowledge each."""
        taken = []
        for _ in range(count):
            taken.append((await self.delivered())[1])
            self.reply()
        return taken
