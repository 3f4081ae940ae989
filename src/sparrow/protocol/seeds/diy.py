"""The protocol of diy_message_broker, both sides.

    u32 length | u8 type | i64 timestamp (ns since the epoch) | payload          big-endian

    0x01 goodbye         any bytes; the broker answers with one of its own, and closes
    0x02 publish         u8 topic length, topic, u8 key length, key, data; no answer
    0x03 consume         the same; a client asks with it (key and data empty), the broker answers with it
    0x04 consume-empty   nothing

`length` counts type, timestamp and payload. Of 0x02 and 0x03 it leaves out the two bytes that are the lengths of topic and key: the frame is two bytes
longer than it says. Other types are skipped, as the original skips them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import BadFrame, FrameTooLarge, ProtocolError
from sparrow.protocol.seeds.leftover import Leftover

if TYPE_CHECKING:
    from collections.abc import Iterator

GOODBYE: Final = 1
PUBLISH: Final = 2
CONSUME: Final = 3
CONSUME_EMPTY: Final = 4
GOODBYE_TEXT: Final = b"Goodbye from server"
MAX_NAME_BYTES: Final = 255
"""Of a topic and of a key: their lengths have one byte."""

_HEAD: Final = struct.Struct(">IBq")
_COUNTED: Final = 9
"""Type and timestamp: what `length` counts besides the payload."""
_NOT_COUNTED: Final = 2
"""The lengths of topic and key."""
_LENGTH_BYTES: Final = 4

Item = tuple[bytes, bytes, int]
"""Key, data, and timestamp in ns."""


class Publish(NamedTuple):
    """Messages for one topic, one after the other."""

    topic: bytes
    items: list[Item]


class Consume(NamedTuple):
    """A question for the next message of a topic; as an answer that message."""

    topic: bytes
    key: bytes = b""
    data: bytes = b""
    timestamp_ns: int = 0


class ConsumeEmpty(NamedTuple):
    """There is none."""

    timestamp_ns: int = 0


class Goodbye(NamedTuple):
    """The connection ends."""

    text: bytes


Event = Publish | Consume | ConsumeEmpty | Goodbye


class Decoder:
    """Bytes in, events out; after `receive_data` ask for all events.

    Args:
        max_message_bytes: the largest payload that is taken.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self._max_length = max_message_bytes + _COUNTED + 2 * MAX_NAME_BYTES
        self._leftover = Leftover()
        self._data = b""

    @property
    def bytes_wanted(self) -> int:
        """How large the frame under way is, as far as that is known; 0: none is."""
        return self._leftover.wanted_bytes if len(self._leftover) else 0

    def receive_data(self, data: bytes) -> None:
        """Take what came from the peer."""
        self._data = self._leftover.joined(data)

    def events(self) -> Iterator[Event]:
        """What the peer said; messages for one topic that follow each other are one event.

        Raises:
            BadFrame, FrameTooLarge: after the events before it; nothing can be made of what follows.
        """
        run: Publish | None = None
        try:
            for kind, start, end, timestamp_ns in self._frames():
                if kind == PUBLISH:
                    topic, key, data = _fields(self._data, start, end)
                    if run is None or run.topic != topic:
                        if run is not None:
                            yield run
                        run = Publish(topic, [])
                    run.items.append((key, data, timestamp_ns))
                    continue
                if run is not None:
                    yield run
                    run = None
                event = _maybe_event(kind, self._data, start, end, timestamp_ns)
                if event is not None:
                    yield event
        except ProtocolError:
            if run is not None:
                yield run
            raise
        if run is not None:
            yield run

    def _frames(self) -> Iterator[tuple[int, int, int, int]]:
        """Type, where the payload begins and ends, and the timestamp, of each whole frame."""
        data = self._data
        position, end, wanted = 0, len(data), _HEAD.size
        while end - position >= _HEAD.size:
            length, kind, timestamp_ns = _HEAD.unpack_from(data, position)
            wanted = self._size_of(length, kind)
            if position + wanted > end:
                break
            yield kind, position + _HEAD.size, position + wanted, timestamp_ns
            position += wanted
            wanted = _HEAD.size
        if position < end:
            self._leftover.keep(data, position, wanted)
        self._data = b""

    def _size_of(self, length: int, kind: int) -> int:
        """How many bytes the frame takes."""
        if length < _COUNTED:
            raise BadFrame(f"a frame of type {kind} has the length {length}; the least is {_COUNTED}")
        if length > self._max_length:
            raise FrameTooLarge(
                f"a frame of type {kind} of {length} bytes was announced; at most {self._max_length} are taken"
            )
        return _LENGTH_BYTES + length + (_NOT_COUNTED if kind in (PUBLISH, CONSUME) else 0)


def _fields(data: bytes, start: int, end: int) -> tuple[bytes, bytes, bytes]:
    """Topic, key and data of a payload."""
    key_at = start + 1 + data[start]
    if key_at < end:
        body_at = key_at + 1 + data[key_at]
        if body_at <= end:
            return data[start + 1 : key_at], data[key_at + 1 : body_at], data[body_at:end]
    raise BadFrame("the lengths of topic and key are over the length of their frame")


def _maybe_event(kind: int, data: bytes, start: int, end: int, timestamp_ns: int) -> Event | None:
    if kind == CONSUME:
        return Consume(*_fields(data, start, end), timestamp_ns)
    if kind == CONSUME_EMPTY:
        return ConsumeEmpty(timestamp_ns)
    if kind == GOODBYE:
        return Goodbye(data[start:end])
    return None


# ── the bytes of frames ───────────────────────────────────────────────────────────────────────────


def message(kind: int, topic: bytes, key: bytes, data: bytes, *, timestamp_ns: int) -> bytes:
    """A publish or consume frame. A key that is too long for its length is left out: a part of it would be another key."""
    if len(key) > MAX_NAME_BYTES:
        key = b""
    head = _HEAD.pack(_COUNTED + len(topic) + len(key) + len(data), kind, timestamp_ns)
    return b"".join((head, bytes((len(topic),)), topic, bytes((len(key),)), key, data))


def consume_empty(timestamp_ns: int) -> bytes:
    """There is nothing."""
    return _HEAD.pack(_COUNTED, CONSUME_EMPTY, timestamp_ns)


def goodbye(timestamp_ns: int, text: bytes = GOODBYE_TEXT) -> bytes:
    """The end."""
    return _HEAD.pack(_COUNTED + len(text), GOODBYE, timestamp_ns) + text
