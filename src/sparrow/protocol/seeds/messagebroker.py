"""The protocol of messagebroker, the broker's side.

The first number of a connection is its kind (all are big-endian):

    u16 action            1 subscribe, 2 unsubscribe, 3 publish, 4 ack, 5 nack

    a subscriber continues with actions:
      1  u32 length, JSON array of topics, u16 start (0 beginning, 1 current, 2 from),
         for 2: u16 offset
      2  u32 length, JSON array of topics
      4, 5                of the message that was delivered last
    a publisher (3, once) with messages:
      u16 length, "topic:" + name, u32 length, data; a u16 length of 0 is skipped, so that a length
      sent as u32 is read as well: its upper half is 0

    u16 status            1 subscribed, 2 unsubscribed, 3 error; then, if there is a text:
                          u16 length, text
    u16 length, topic, u64 length, data       a message for a subscriber

Wrong content with correct lengths is skipped: `RequestFault` reports it as soon as it is known, and
the next action or message is taken. Bytes that cannot be decoded at all end the connection:
`RequestFault` with `is_end`.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sparrow.protocol.seeds.equal_frames import count_equal
from sparrow.protocol.seeds.receive_buffer import ReceiveBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX: Final = b"topic:"
NO_PREFIX: Final = "topic data does not contain 'topic:' prefix"
"""Text of the error for a topic without the prefix. Clients compare it."""
UNKNOWN_ACTION: Final = "unknown action"
"""Text of the error for an action that does not exist, or not here. Clients compare it."""
MAX_NAMES_BYTES: Final = 1 << 20
"""Limit of the JSON array of topics."""
MAX_NAME_BYTES: Final = 0xFFFF
"""Limit of a topic: the largest value of the length in a delivery."""
MAX_UNKNOWN_ACTIONS: Final = 16
"""Number of unknown actions in a row that are accepted."""
MIN_EQUAL: Final = 8
"""Number of equal messages from which a format of their own pays."""

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")


class Action(IntEnum):
    """Actions of a client."""

    SUBSCRIBE = 1
    UNSUBSCRIBE = 2
    PUBLISH = 3
    ACK = 4
    NACK = 5


class Status(IntEnum):
    """Results of an action."""

    SUBSCRIBED = 1
    UNSUBSCRIBED = 2
    ERROR = 3


class StartAt(IntEnum):
    """Start positions of a subscription."""

    BEGINNING = 0
    CURRENT = 1
    FROM = 2


class Subscribe(NamedTuple):
    """A request to deliver topics. `offset`: for StartAt.FROM."""

    topics: list[str]
    start: StartAt
    offset: int = 0


class Unsubscribe(NamedTuple):
    """A request to deliver no more of these topics."""

    topics: list[str]


class Publish(NamedTuple):
    """Messages for one topic, one after the other."""

    topic: bytes
    values: list[bytes]


class Acknowledgement(NamedTuple):
    """A subscriber's acknowledgement of the message that was delivered last."""

    is_ack: bool


class RequestFault(NamedTuple):
    """A fault that is reported by an error."""

    text: str
    is_end: bool = False
    """True if nothing that follows can be decoded."""


Event = Subscribe | Unsubscribe | Publish | Acknowledgement | RequestFault

_STOP: Final = -1
"""Result of a step: more bytes are needed."""


class Decoder:
    """A decoder: bytes in, events out.

    Args:
        max_message_bytes: the largest message that is taken; larger ones are skipped.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._buffer = ReceiveBuffer()
        self._data = b""
        self._events: list[Event] = []
        self._skip_bytes = 0
        self._unknown_actions = 0
        self._wanted = 0
        self._topics: list[str] | None = None
        """Topics of a subscription whose start is still to come; None: they were wrong."""
        self._step: Callable[[bytes, int], int] = self._first_action

    @property
    def bytes_wanted(self) -> int:
        """Size of the unfinished action or message as far as it is known; 0 if there is none."""
        if len(self._buffer):
            return self._buffer.wanted_bytes
        return (
            1
            if self._skip_bytes or self._step not in (self._first_action, self._action, self._messages)
            else 0
        )

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the peer."""
        self._data = self._buffer.joined(data)

    def events(self) -> list[Event]:
        """Return the events of the received bytes; successive messages for one topic are one
        event.
        """
        data, self._data = self._data, b""
        position = 0
        while position < len(data):
            if self._skip_bytes:
                skipped = min(self._skip_bytes, len(data) - position)
                self._skip_bytes -= skipped
                position += skipped
                continue
            after = self._step(data, position)
            if after == _STOP:
                self._buffer.keep(data, position, self._wanted)
                break
            position = after
        events, self._events = self._events, []
        return events

    # ── steps: each takes one thing at a position and says where the next begins ──────────────────

    def _has(self, data: bytes, position: int, size: int) -> bool:
        """Return True if `size` bytes are there; if not, set them as wanted."""
        self._wanted = size
        return len(data) - position >= size

    def _first_action(self, data: bytes, position: int) -> int:
        if not self._has(data, position, 2):
            return _STOP
        (action,) = _U16.unpack_from(data, position)
        if action == Action.PUBLISH:
            self._step = self._messages
            return position + 2
        if action in (Action.SUBSCRIBE, Action.UNSUBSCRIBE):
            self._step = self._action
            return position
        self._events.append(RequestFault(UNKNOWN_ACTION, is_end=True))
        return len(data)

    def _action(self, data: bytes, position: int) -> int:
        if not self._has(data, position, 2):
            return _STOP
        (action,) = _U16.unpack_from(data, position)
        if action == Action.SUBSCRIBE:
            self._step = self._names_to_subscribe
        elif action == Action.UNSUBSCRIBE:
            self._step = self._names_to_unsubscribe
        elif action in (Action.ACK, Action.NACK):
            self._events.append(Acknowledgement(action == Action.ACK))
        else:
            return self._unknown(data, position)
        self._unknown_actions = 0
        return position + 2

    def _unknown(self, data: bytes, position: int) -> int:
        """Report an unknown action. A peer that sends many of them speaks another protocol."""
        self._unknown_actions += 1
        is_end = self._unknown_actions >= MAX_UNKNOWN_ACTIONS
        self._events.append(RequestFault(UNKNOWN_ACTION, is_end))
        return len(data) if is_end else position + 2

    def _names_to_subscribe(self, data: bytes, position: int) -> int:
        after, self._topics = self._names(data, position)
        if after != _STOP:
            self._step = self._start
        return after

    def _names_to_unsubscribe(self, data: bytes, position: int) -> int:
        after, topics = self._names(data, position)
        if after != _STOP:
            self._step = self._action
            if topics is not None:
                self._events.append(Unsubscribe(topics))
        return after

    def _names(self, data: bytes, position: int) -> tuple[int, list[str] | None]:
        """Return a length and an array of names; None in their place if they are wrong, which is
        reported.
        """
        if not self._has(data, position, 4):
            return _STOP, None
        (size,) = _U32.unpack_from(data, position)
        if size > MAX_NAMES_BYTES:
            self._events.append(
                RequestFault(
                    f"a list of topics of {size} bytes was announced; at most {MAX_NAMES_BYTES} are taken"
                )
            )
            self._skip_bytes = size
            return position + 4, None
        if not self._has(data, position, 4 + size):
            return _STOP, None
        end = position + 4 + size
        try:
            return end, _topics(data[position + 4 : end])
        except ValueError as error:
            self._events.append(RequestFault(str(error)))
            return end, None

    def _start(self, data: bytes, position: int) -> int:
        if not self._has(data, position, 2):
            return _STOP
        (start,) = _U16.unpack_from(data, position)
        offset, size = 0, 2
        if start == StartAt.FROM:
            if not self._has(data, position, 4):
                return _STOP
            (offset,) = _U16.unpack_from(data, position + 2)
            size = 4
        if self._topics is not None and start <= StartAt.FROM:
            self._events.append(Subscribe(self._topics, StartAt(start), offset))
        elif self._topics is not None:
            self._events.append(
                RequestFault(
                    "a subscription begins at 0 (beginning), 1 (current) or 2 (from an offset), "
                    f"not at {start}"
                )
            )
        self._topics = None
        self._step = self._action
        return position + size

    def _messages(self, data: bytes, position: int) -> int:
        """Decode as many messages as there are; this is the hot path."""
        run: Publish | None = None
        end = len(data)
        start = position
        while end - position >= 2:
            name_end = position + 2 + (data[position] << 8 | data[position + 1])
            if name_end == position + 2:
                position = name_end
                continue
            if name_end > end:
                break
            name = data[position + 2 : name_end]
            if not name.startswith(PREFIX):
                return self._unnamed(name_end)
            if name_end + 4 > end:
                break
            (size,) = _U32.unpack_from(data, name_end)
            if size > self._max_message_bytes:
                return self._too_large(name_end + 4, size)
            after = name_end + 4 + size
            if after > end:
                break
            if run is None or run.topic != name:
                run = Publish(name, [])
                self._events.append(run)
                position = _equal_messages(run, data, position, name_end + 4 - position, size)
                if position >= after:
                    continue
            run.values.append(data[name_end + 4 : after])
            position = after
        return position if position > start else self._stop_at_message(data, position)

    def _stop_at_message(self, data: bytes, position: int) -> int:
        self._wanted = self._message_bytes(data, position)
        return _STOP

    def _message_bytes(self, data: bytes, position: int) -> int:
        """Return the size of the message that begins here, as far as it is known: a wrong name must
        be seen before what follows it.
        """
        there = len(data) - position
        if there < 2:
            return 2
        name_end = 2 + (data[position] << 8 | data[position + 1])
        if there < name_end:
            return name_end
        head = name_end + 4
        return head if there < head else head + int(_U32.unpack_from(data, position + head - 4)[0])

    def _unnamed(self, position: int) -> int:
        self._events.append(RequestFault(NO_PREFIX))
        self._step = self._unwanted
        return position

    def _unwanted(self, data: bytes, position: int) -> int:
        """Return the length of a message without a topic."""
        if not self._has(data, position, 4):
            return _STOP
        (self._skip_bytes,) = _U32.unpack_from(data, position)
        self._step = self._messages
        return position + 4

    def _too_large(self, position: int, size: int) -> int:
        self._events.append(
            RequestFault(
                f"a message of {size} bytes was announced; at most {self._max_message_bytes} are taken"
            )
        )
        self._skip_bytes = size
        return position


def _equal_messages(run: Publish, data: bytes, position: int, head_bytes: int, size_bytes: int) -> int:
    """Add the messages from here on that differ from the first in content alone. Return their
    end.
    """
    stride = head_bytes + size_bytes
    # The field that differs most often first: the length of the data.
    count = count_equal(data, position, stride, range(head_bytes - 1, -1, -1))
    if count < MIN_EQUAL:
        return position
    end = position + count * stride
    message = struct.Struct(f"{head_bytes}x{size_bytes}s")
    run.values.extend(value for (value,) in message.iter_unpack(memoryview(data)[position:end]))
    return end


def _topics(data: bytes) -> list[str]:
    if not data:
        raise ValueError("the list of topics has the length 0; it is a JSON array of names")
    try:
        topics = msgspec.json.decode(data, type=list[str] | None) or []
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"the list of topics is no JSON array of names: {error}") from None
    for topic in topics:
        if not 0 < len(topic.encode()) <= MAX_NAME_BYTES:
            raise ValueError(
                f"the name of a topic has 1 to {MAX_NAME_BYTES} bytes, not {len(topic.encode())}"
            )
    return topics


# ── what the broker sends ─────────────────────────────────────────────────────────────────────────


def status(code: Status, text: str = "") -> bytes:
    """Return a status; without a text there is no length either."""
    if not text:
        return _U16.pack(code)
    raw = text.encode()[:0xFFFF]
    return _U16.pack(code) + _U16.pack(len(raw)) + raw


def delivery(topic: bytes, data: bytes) -> bytes:
    """Return a message for a subscriber, in one piece: the original's client takes the result of
    one read for the whole.
    """
    return b"".join((_U16.pack(len(topic)), topic, _U64.pack(len(data)), data))
