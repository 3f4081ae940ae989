"""Detection of a peer that speaks another protocol, by its first bytes: for clients at the wrong
port. Pure.

Four protocols meet at a broker's ports: the native one, Kafka's, HTTP, and TLS around any of them.
Their first bytes differ:

    native HELLO   length(4) 01 00 00000000        type, flags and channel follow the length
    Kafka request  length(4) 00 key(1) 00 version  keys and versions are below 256, and lengths
                                                   below 16 MiB
    HTTP           a method and a space, or "HTTP/" in a response
    TLS            16 03 (a ClientHello), 15 03 (an alert)
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final

import msgspec

from sparrow.protocol.native.frames import MAX_FRAME_BYTES, encode_frame
from sparrow.protocol.native.messages import CONTROL_CHANNEL, Error, FrameType

FIRST_BYTES: Final = 16
"""Number of bytes that are enough for the detection."""
_LEAST_BYTES: Final = 8
_METHODS: Final = (
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"OPTIONS ",
    b"DELETE ",
    b"PATCH ",
    b"CONNECT ",
    b"PRI ",
)
_API_VERSIONS: Final = 18
_CORRELATION_ID: Final = 0x53_70_61_72
_KAFKA_HEADER: Final = struct.Struct(">ihhih")
_ALERT: Final = bytes.fromhex("15030100020228")
"""An alert of TLS: fatal, the handshake failed."""
_CLIENT_ID: Final = b"sparrow"


class WireProtocol(Enum):
    """A protocol of a connection."""

    NATIVE = "native"
    KAFKA = "kafka"
    HTTP = "http"
    TLS = "tls"


def protocol_of_client(first: bytes) -> WireProtocol | None:
    """Return the protocol of a client, from the first bytes that it sent; None if it is unknown."""
    if first.startswith(_METHODS):
        return WireProtocol.HTTP
    if len(first) < _LEAST_BYTES:
        return None
    if first[:2] == b"\x16\x03":
        return WireProtocol.TLS
    if first[4] == FrameType.HELLO and not any(first[5:10]):
        return WireProtocol.NATIVE
    if first[0] == first[4] == first[6] == 0 and int.from_bytes(first[:4]) >= _LEAST_BYTES:
        return WireProtocol.KAFKA
    return None


def protocol_of_server(response: bytes) -> WireProtocol | None:
    """Return the protocol of a server, from its response to `probe`; None if it is unknown."""
    if response.startswith(b"HTTP/"):
        return WireProtocol.HTTP
    if response[:2] in (b"\x15\x03", b"\x16\x03"):
        return WireProtocol.TLS
    if response[4:8] == _CORRELATION_ID.to_bytes(4):
        return WireProtocol.KAFKA
    if response[4:5] == bytes([FrameType.ERROR]) and response[5:10] == bytes(5):
        return WireProtocol.NATIVE
    return None


def probe() -> bytes:
    """Return a request to which every listener responds in its own way: ApiVersions of Kafka, which
    needs no login.
    """
    body = _KAFKA_HEADER.pack(0, _API_VERSIONS, 0, _CORRELATION_ID, len(_CLIENT_ID)) + _CLIENT_ID
    return (len(body) - 4).to_bytes(4) + body[4:]


def refusal_in(protocol: WireProtocol, text: str) -> bytes:
    """Return the bytes that tell a client in its own protocol that it is at the wrong port; b"" if
    that protocol has none.
    """
    if protocol is WireProtocol.NATIVE:
        head = msgspec.msgpack.encode(Error("PROTOCOL_ERROR", text))
        return b"".join(encode_frame(FrameType.ERROR, CONTROL_CHANNEL, head, None, MAX_FRAME_BYTES))
    if protocol is WireProtocol.HTTP:
        body = f"{text}\n".encode()
        lines = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
        return f"{lines}content-length: {len(body)}\r\n\r\n".encode() + body
    return _ALERT if protocol is WireProtocol.TLS else b""
