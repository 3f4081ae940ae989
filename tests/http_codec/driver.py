"""A codec, fed in pieces, and its events in a form that does not depend on the pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparrow.base.errors import SparrowError
from sparrow.protocol.http.codec import BodyPart, CommonHeaders, HttpCodec, RequestEnd
from sparrow.protocol.http.heads import RequestHead


def codec(**limits: Any) -> HttpCodec:
    chosen = {"max_head_bytes": 4096, "max_headers": 50, "max_pipelined": 100, **limits}
    return HttpCodec(CommonHeaders([]), **chosen)


def shown(head: RequestHead) -> dict[str, Any]:
    return {name: getattr(head, name) for name in RequestHead.__slots__}


def events_of(pieces: Iterable[bytes], **limits: Any) -> list[Any]:
    """Return the events of bytes that come in these pieces; parts of a body are joined."""
    reader = codec(**limits)
    found: list[Any] = []
    for piece in pieces:
        reader.receive_data(piece)
        for event in reader.events():
            if isinstance(event, RequestHead):
                found += [shown(event), b""]
            elif isinstance(event, BodyPart):
                assert event.data
                found[-1] += event.data
            elif isinstance(event, SparrowError):
                found.append((type(event).__name__, event.code))
            else:
                assert isinstance(event, RequestEnd)
                found.append("end")
    return found


def in_two(data: bytes) -> Iterable[list[bytes]]:
    """Return all divisions into two pieces, the whole, and single bytes."""
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]
