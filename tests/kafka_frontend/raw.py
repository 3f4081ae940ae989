"""A client without checks: sends any request in any version, or any bytes, and reads the
response.
"""

from __future__ import annotations

import io
import socket
import struct
from types import TracebackType
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_reader, entity_writer

from sparrow.frontends.kafka.codec.schema import wire_fields

SECONDS = 30


def encode(request: Any, correlation_id: int = 1, client_id: str | None = "tests") -> bytes:
    """Encode a request as a frame."""
    kind = type(request)
    header_kind = HeaderV2 if kind.__flexible__ else HeaderV1
    out = io.BytesIO()
    header = header_kind(
        request_api_key=kind.__api_key__,
        request_api_version=kind.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    entity_writer(header_kind)(out, header)
    entity_writer(kind)(out, request)
    return struct.pack(">i", out.tell()) + out.getvalue()


def decode(api_key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """Decode the correlation id and body of a response; every byte must be used."""
    kind = load_response_schema(api_key, version)
    (correlation_id,) = struct.unpack_from(">i", frame)
    offset = 4
    if kind.__flexible__ and api_key != 18:
        assert frame[4] == 0, "a header without tagged fields"
        offset = 5
    body, size = entity_reader(kind)(frame, offset)
    assert offset + size == len(frame), f"{len(frame) - offset - size} bytes too many"
    return correlation_id, body


class RawClient:
    """One connection. `bootstrap` is host:port."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def call(self, request: Any) -> Any:
        """Send a request and return the response, in the request's version."""
        self.send(request)
        return self.receive(type(request).__api_key__, type(request).__version__)

    def send(self, request: Any) -> int:
        self._correlation_id += 1
        self.socket.sendall(encode(request, self._correlation_id))
        return self._correlation_id

    def receive(self, api_key: int, version: int) -> Any:
        correlation_id, body = decode(api_key, version, self.receive_frame())
        assert correlation_id <= self._correlation_id
        return body

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def is_closed(self) -> bool:
        """Wait for the broker to close. Return True if it sent nothing before."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker hung up")
            data += more
        return data


def new(kind: Any, **given: Any) -> Any:
    """Make a message with the given fields; the others have their defaults. Fields that the class
    lacks are omitted.
    """
    fields = {each.name: each.default for each in wire_fields(kind)}
    return kind(**fields | {name: value for name, value in given.items() if name in fields})


def request(api_key: int, version: int, **given: Any) -> Any:
    """Make a request, as `new` does."""
    return new(load_request_schema(api_key, version), **given)


def part(kind: Any, path: str) -> Any:
    """Return the class of a nested message, by the field names that lead to it, separated by
    dots.
    """
    for name in path.split("."):
        (kind,) = (each.entity for each in wire_fields(kind) if each.name == name)
    return kind
