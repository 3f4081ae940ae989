"""The protocol of diy_message_broker, both sides.

    u32 length | u8 type | i64 timestamp (ns since the epoch) | payload          big-endian

    0x01 goodbye         any bytes; the broker responds with one of its own, and closes
    0x02 publish         u8 topic length, topic, u8 key length, key, data; no response
    0x03 consume         the same; a client asks with it (key and data empty), the broker
                         responds with it
    0x04 consume-empty   nothing

`length` counts type, timestamp and payload. For 0x02 and 0x03 it leaves out the two bytes that are
the lengths of topic and key: the frame is two bytes longer than it says. Other types are skipped,
as the original skips them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import BadFrame, FrameTooLarge
from sparrow.protocol.seeds.equal_frames import count_equal
from sparrow.protocol.seeds.receive_buffer import ReceiveBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator

GOODBYE: Final = 1
PUBLISH: Final = 2
CONSUME: Final = 3
CONSUME_EMPTY: Final = 4
GOODBYE_TEXT: Final = b"Goodbye from server"
MAX_NAME_BYTES: Final = 255
"""Limit of a topic and of a key: their lengths have one byte."""

MIN_EQUAL: Final = 8
"""Number of equal frames from which a format of their own pays."""
_HEAD: Final = struct.Struct(">IBq")
_COUNTED: Final = 9
"""Type and timestamp: further bytes that `length` counts besides the payload."""
_NOT_COUNTED: Final = 2
"""The lengths of topic and key."""
_LENGTH_BYTES: Final = 4


class Publish(NamedTuple):
    """Messages for one topic, one after the other, as columns: keys, data, and timestamps in ns."""

    topic: bytes
    keys: list[bytes]
    values: list[bytes]
    timestamps_ns: list[int]


class Consume(NamedTuple):
    """A request for the next message of a topic; as a response that message."""

    topic: bytes
    key: bytes = b""
    data: bytes = b""
    timestamp_ns: int = 0


class ConsumeEmpty(NamedTuple):
    """The response if there is no message."""

    timestamp_ns: int = 0


class Goodbye(NamedTuple):
    """The end of the connection."""

    text: bytes


Event = Publish | Consume | ConsumeEmpty | Goodbye


class Decoder:
    """A decoder: bytes in, events out. After `receive_data` call `events` for all events.

    Args:
        max_message_bytes: the largest payload that is taken.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self._max_length = max_message_bytes + _COUNTED + 2 * MAX_NAME_BYTES
        self._buffer = ReceiveBuffer()
        self._data = b""

    @property
    def bytes_wanted(self) -> int:
        """Size of the unfinished frame as far as it is known; 0 if there is none."""
        return self._buffer.wanted_bytes if len(self._buffer) else 0

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the peer."""
        self._data = self._buffer.joined(data)

    def events(self) -> Iterator[Event]:
        """Return the events of the received bytes; successive messages for one topic are one event.

        Raises:
            BadFrame, FrameTooLarge: after the events before it; nothing that follows can be
                decoded.
        """
        data, self._data = self._data, b""
        position, end = 0, len(data)
        while end - position >= _HEAD.size:
            length, kind, timestamp_ns = _HEAD.unpack_from(data, position)
            size = self._size_of(length, kind)
            if position + size > end:
                self._buffer.keep(data, position, size)
                return
            if kind == PUBLISH:
                run, position = self._run(data, position)
                yield run
                continue
            event = _maybe_event(kind, data, position + _HEAD.size, position + size, timestamp_ns)
            position += size
            if event is not None:
                yield event
        if position < end:
            self._buffer.keep(data, position, _HEAD.size)

    def _run(self, data: bytes, position: int) -> tuple[Publish, int]:
        """Return the publish frames from here on that are for one topic, and their end; the first
        is whole. This is the hot path: a frame that is not like the others ends the run, and
        `events` handles it.
        """
        size = self._size_of(*_HEAD.unpack_from(data, position)[:2])
        topic, key, _ = _fields(data, position + _HEAD.size, position + size)
        named = bytes((len(topic),)) + topic
        run = Publish(topic, [], [], [])
        position = _equal_frames(run, data, position, (size, len(named), len(key)))
        add_key, add_value, add_time = run.keys.append, run.values.append, run.timestamps_ns.append
        unpack, startswith, end, most = _HEAD.unpack_from, data.startswith, len(data), self._max_length
        key_position = _HEAD.size + len(named)
        extra = _LENGTH_BYTES + _NOT_COUNTED
        while end - position > key_position:
            length, kind, timestamp_ns = unpack(data, position)
            after = position + length + extra
            if (
                kind != PUBLISH
                or after > end
                or length > most
                or not startswith(named, position + _HEAD.size)
            ):
                break
            key_at = position + key_position
            value_at = key_at + 1 + data[key_at]
            if value_at > after:
                break
            add_key(data[key_at + 1 : value_at])
            add_value(data[value_at:after])
            add_time(timestamp_ns)
            position = after
        return run, position

    def _size_of(self, length: int, kind: int) -> int:
        """Return the size of the frame in bytes."""
        if length < _COUNTED:
            raise BadFrame(f"a frame of type {kind} has the length {length}; the least is {_COUNTED}")
        if length > self._max_length:
            raise FrameTooLarge(
                f"a frame of type {kind} of {length} bytes was announced; at most "
                f"{self._max_length} are taken"
            )
        return _LENGTH_BYTES + length + (_NOT_COUNTED if kind in (PUBLISH, CONSUME) else 0)


def _equal_frames(run: Publish, data: bytes, position: int, shape: tuple[int, int, int]) -> int:
    """Add the frames from here on that differ from the first in time and content alone. Return
    their end.

    Args:
        shape: the size of the first, and of its topic (with its length) and key.
    """
    size, named_bytes, key_bytes = shape
    names = range(_HEAD.size, _HEAD.size + named_bytes + 1)  # the topic, and the length of the key
    count = count_equal(data, position, size, (3, 2, 1, 0, 4, *names))
    if count < MIN_EQUAL:
        return position
    frame = struct.Struct(
        f">5xq{named_bytes + 1}x{key_bytes}s{size - _HEAD.size - named_bytes - 1 - key_bytes}s"
    )
    end = position + count * size
    times, keys, values = zip(*frame.iter_unpack(memoryview(data)[position:end]), strict=True)
    run.timestamps_ns.extend(times)
    run.keys.extend(keys)
    run.values.extend(values)
    return end


def _fields(data: bytes, start: int, end: int) -> tuple[bytes, bytes, bytes]:
    """Return topic, key and data of a payload."""
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
    """Return a publish or consume frame. A key that has more than 255 bytes together with the topic
    is left out: the original adds both lengths in one byte, so its client would wait for data that
    never comes; and a part of the key would be another key.
    """
    if len(topic) + len(key) > MAX_NAME_BYTES:
        key = b""
    head = _HEAD.pack(_COUNTED + len(topic) + len(key) + len(data), kind, timestamp_ns)
    return b"".join((head, bytes((len(topic),)), topic, bytes((len(key),)), key, data))


def consume_empty(timestamp_ns: int) -> bytes:
    """Return the frame for "no message"."""
    return _HEAD.pack(_COUNTED, CONSUME_EMPTY, timestamp_ns)


def goodbye(timestamp_ns: int, text: bytes = GOODBYE_TEXT) -> bytes:
    """Return the frame that ends the connection."""
    return _HEAD.pack(_COUNTED + len(text), GOODBYE, timestamp_ns) + text
