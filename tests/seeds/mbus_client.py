"""A producer and a consumer of Message Bus (mbus), written from its wire format alone."""

from __future__ import annotations

import struct

from tests.seeds.listeners import Wire


def text(value: bytes) -> bytes:
    """Return a msgpack str."""
    if len(value) < 32:
        return bytes([0xA0 | len(value)]) + value
    return b"\xda" + struct.pack(">H", len(value)) + value


def binary(value: bytes) -> bytes:
    """Return a msgpack bin, always with the longest length."""
    return b"\xc6" + struct.pack(">I", len(value)) + value


def message(topic: bytes, data: bytes) -> bytes:
    return b"\x82" + text(b"Topic") + text(topic) + text(b"Data") + binary(data)


async def send(port: int, data: bytes) -> Wire:
    """Connect, write and close the sending side, as a producer does."""
    wire = await Wire.open(port)
    wire.send(data)
    wire.writer.write_eof()
    return wire


async def produce(port: int, topic: bytes, data: bytes) -> None:
    """Send, and wait until the broker closes, too."""
    wire = await send(port, message(topic, data))
    assert await wire.read_to_end() == b""


async def consume(port: int, topic: bytes) -> list[bytes]:
    wire = await Wire.open(port)
    wire.send(topic + b"\n")
    lines = await wire.read_to_end()
    assert not lines or lines.endswith(b"\n")
    return lines.split(b"\n")[:-1]
