"""Frames that clients get over a WebSocket: one JSON object per text frame, with its `type`.

    welcome      reply to hello: the client's principal
    published    position of each message of a publish, or its problem
    subscribed   a subscription began; what follows belongs to it
    assigned     partitions that it reads from here on, with their first offsets
    revoked      partitions that it reads no more
    gap          offsets of a partition that are gone, or that it never had
    messages     records
    acked, nacked, rejected, extended, released   leases were settled, all but those under `failed`
    committed    offsets of a group are stored
    ended        the subscription is over; with `error` unless the client ended it
    pong
    error        the client's frame had no effect, and why

Pure: bytes of frames made from plain values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.frontends.http.problems import body_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparrow.base.errors import SparrowError

Id = str | int | None
_encode: Final = msgspec.json.Encoder().encode


def frame(kind: str, *, id: Id = None, **members: object) -> bytes:  # noqa: A002 - the protocol's own word
    """Return a frame of this type; members that are None are left out."""
    content: dict[str, Any] = {"type": kind}
    if id is not None:
        content["id"] = id
    content.update((name, value) for name, value in members.items() if value is not None)
    return _encode(content)


def refusal(error: SparrowError, *, id: Id = None, subscription: str | None = None) -> bytes:  # noqa: A002
    """Return the frame for a client's frame that had no effect."""
    return frame("error", id=id, subscription=subscription, error=problem(error))


def problem(error: SparrowError) -> msgspec.Raw:
    """Return the problem of an error, as in all responses of this frontend (RFC 9457)."""
    return msgspec.Raw(body_of(error))


def ended(subscription: str, error: SparrowError | None = None, *, id: Id = None) -> bytes:  # noqa: A002
    """Return the frame for the end of a subscription."""
    return frame("ended", id=id, subscription=subscription, error=None if error is None else problem(error))


def messages_prefix(subscription: str) -> bytes:
    """Return the beginning of a `messages` frame, up to its records."""
    return frame("messages", subscription=subscription)[:-1] + b',"messages":['


def messages(prefix: bytes, records: Sequence[bytes]) -> bytes:
    """Return a frame of records, each a JSON object."""
    return b"%b%b]}" % (prefix, b",".join(records))


def offsets(entries: Iterable[tuple[str, int, int]]) -> list[dict[str, object]]:
    """Return (topic, partition, offset) as objects."""
    return [
        {"topic": topic, "partition": partition, "offset": offset} for topic, partition, offset in entries
    ]


def partitions(entries: Iterable[tuple[str, int]]) -> list[dict[str, object]]:
    """Return (topic, partition) as objects."""
    return [{"topic": topic, "partition": partition} for topic, partition in entries]
