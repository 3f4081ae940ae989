"""A client of diy_message_broker, written from its wire format alone."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass

from tests.seeds.listeners import Wire

GOODBYE, PUBLISH, CONSUME, CONSUME_EMPTY = 1, 2, 3, 4


@dataclass(frozen=True)
class Frame:
    type: int
    timestamp_ns: int
    topic: bytes = b""
    key: bytes = b""
    data: bytes = b""


def frame(kind: int, payload: bytes, left_out: int = 0, timestamp_ns: int | None = None) -> bytes:
    """Return a frame. `left_out`: bytes of the payload that the length does not count."""
    now = time.time_ns() if timestamp_ns is None else timestamp_ns
    return struct.pack(">IBq", 9 + len(payload) - left_out, kind, now) + payload


def fields(topic: bytes, key: bytes = b"", data: bytes = b"") -> bytes:
    return bytes([len(topic)]) + topic + bytes([len(key)]) + key + data


class DiyClient:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @classmethod
    async def connect(cls, port: int) -> DiyClient:
        return cls(await Wire.open(port))

    def publish(self, topic: bytes, data: bytes, key: bytes = b"", timestamp_ns: int | None = None) -> None:
        self.wire.send(frame(PUBLISH, fields(topic, key, data), 2, timestamp_ns))

    async def consume(self, topic: bytes) -> Frame:
        self.wire.send(frame(CONSUME, fields(topic), 2))
        return await self.read()

    async def goodbye(self, text: bytes = b"bye") -> bytes:
        """Return the server's response to a goodbye."""
        self.wire.send(frame(GOODBYE, text))
        response = await self.read()
        assert response.type == GOODBYE
        return response.data

    async def read(self) -> Frame:
        length, kind, timestamp_ns = struct.unpack(">IBq", await self.wire.read(13))
        if kind == CONSUME_EMPTY:
            assert length == 9
            return Frame(kind, timestamp_ns)
        if kind == GOODBYE:
            return Frame(kind, timestamp_ns, data=await self.wire.read(length - 9))
        assert kind == CONSUME
        payload = await self.wire.read(length - 9 + 2)
        topic_end = 1 + payload[0]
        key_end = topic_end + 1 + payload[topic_end]
        return Frame(
            kind,
            timestamp_ns,
            payload[1:topic_end],
            payload[topic_end + 1 : key_end],
            payload[key_end:],
        )

    async def close(self) -> None:
        await self.wire.close()
