"""A client of msbq, written from its wire format alone."""

from __future__ import annotations

import base64
import json
import struct
import uuid
from typing import Any

from tests.seeds.listeners import Wire


def frame(content: object) -> bytes:
    """Return a frame. `content`: a value to be encoded as JSON, or raw bytes."""
    data = content if isinstance(content, bytes) else json.dumps(content, separators=(",", ":")).encode()
    return struct.pack("<I", len(data)) + data


def queue(name: str, kind: str = "P2P", *, durable: bool = True, stream: str = "s") -> dict[str, Any]:
    return {"MessageType": "Queue", "Name": name, "Type": kind, "Durable": durable, "StreamID": stream}


def message(route: str, body: bytes, kind: str = "P2P", stream: str = "s") -> dict[str, Any]:
    return {
        "MessageType": "EPMessage",
        "Route": route,
        "Type": kind,
        "Body": base64.b64encode(body).decode(),
        "StreamID": stream,
    }


class MsbqClient:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @classmethod
    async def connect(cls, port: int) -> MsbqClient:
        return cls(await Wire.open(port))

    def consume(self, name: str, kind: str = "P2P", *, durable: bool = True, stream: str = "") -> str:
        """Register a stream as a consumer and return it; without a name, a new one."""
        stream = stream or str(uuid.uuid4())
        self.wire.send(frame(queue(name, kind, durable=durable, stream=stream)))
        return stream

    def publish(self, route: str, *bodies: bytes, kind: str = "P2P", stream: str = "s") -> None:
        self.wire.send(b"".join(frame(message(route, body, kind, stream)) for body in bodies))

    async def read(self) -> dict[str, Any]:
        (length,) = struct.unpack("<I", await self.wire.read(4))
        content: dict[str, Any] = json.loads(await self.wire.read(length))
        return content

    async def get(self) -> tuple[str, bytes]:
        """Return stream and body of the next message."""
        content = await self.read()
        assert content["MessageType"] == "EPMessage", content
        return content["StreamID"], base64.b64decode(content["Body"])

    async def bodies(self, count: int) -> list[bytes]:
        return [(await self.get())[1] for _ in range(count)]

    async def error(self) -> tuple[str, str]:
        """Return text and stream of the next error."""
        content = await self.read()
        assert list(content) == ["MessageType", "Body", "StreamID"], content
        assert content["MessageType"] == "ErrorMessage"
        return base64.b64decode(content["Body"]).decode(), content["StreamID"]
