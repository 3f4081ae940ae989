"""What clients get over a WebSocket: one JSON object per text frame, with its `type`.

    welcome      after hello: who the client is
    published    where each message of a publish is, or why it is not
    subscribed   a subscription began; what follows belongs to it
    assigned     partitions that it reads from here on, with their first offsets
    revoked      partitions that it reads no more
    gap          offsets of a partition that are gone, or that it never had
    messages     records
    acked, nacked, rejected, extended, released   leases were settled, all but those under `failed`
    committed    offsets of a group are kept
    ended        the subscription is over; with `error`, if nobody asked for it
    pong
    error        what the client sent had no effect, and why

Pure: bytes of frames out of plain values.
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


def answer(kind: str, *, id: Id = None, **members: object) -> bytes:  # noqa: A002 - the protocol's own word
    """A frame of this type; members that are None are left out."""
    frame: dict[str, Any] = {"type": kind}
    if id is not None:
        frame["id"] = id
    frame.update((name, value) for name, value in members.items() if value is not None)
    return _encode(frame)


def refusal(error: SparrowError, *, id: Id = None, subscription: str | None = None) -> bytes:  # noqa: A002
    """What the client sent had no effect."""
    return answer("error", id=id, subscription=subscription, error=problem(error))


def problem(error: SparrowError) -> msgspec.Raw:
    """The problem that an error is, as everywhere at this door (RFC 9457)."""
    return msgspec.Raw(body_of(error))


def ended(subscription: str, error: SparrowError | None = None, *, id: Id = None) -> bytes:  # noqa: A002
    """The subscription is over."""
    return answer("ended", id=id, subscription=subscription, error=None if error is None else problem(error))


def messages_prefix(subscription: str) -> bytes:
    """What `messages` begins with, up to its records."""
    return answer("messages", subscription=subscription)[:-1] + b',"messages":['


def messages(prefix: bytes, records: Sequence[bytes]) -> bytes:
    """A frame of records, each an object as JSON."""
    return b"%b%b]}" % (prefix, b",".join(records))


def places(entries: Iterable[tuple[str, int, int]]) -> list[dict[str, object]]:
    """(topic, partition, offset) as objects."""
    return [
        {"topic": topic, "partition": partition, "offset": offset} for topic, partition, offset in entries
    ]


def partitions(entries: Iterable[tuple[str, int]]) -> list[dict[str, object]]:
    """(topic, partition) as objects."""
    return [{"topic": topic, "partition": partition} for topic, partition in entries]
