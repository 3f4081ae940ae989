"""msbq's protocol without I/O: frames of JSON over one connection that many streams share.

    u32 length, little-endian | JSON, with the field MessageType

    Queue         client → server    Name, Type (P2P | PUBSUB), Durable, StreamID
    EPMessage     both directions    Route, Type, Body (base64), StreamID
    Consumer      client → server    without meaning today
    ErrorMessage  server → client    Body (base64 of a text), StreamID

Decision: lenient in, exact out. The peers are written in Go, whose decoder takes field names in any
case, null for the empty value, unknown fields, and line breaks in base64. So a frame is first read
by a strict decoder (fast: the output of Go's encoder), and only a frame that it refuses is read
again field by field. Wrong content is an event, not the end: the length says where the next frame
begins. Only a length over the limit ends the connection, as nothing behind it may be kept.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec

from sparrow.base.errors import BadFrame, FrameTooLarge, InvalidArgument
from sparrow.protocol.seeds.receive_buffer import ReceiveBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P2P: Final = "P2P"
PUBSUB: Final = "PUBSUB"
MAX_NAME: Final = 249
"""Characters of a queue's name and of a type; no topic's name is longer."""
MAX_STREAM: Final = 200
"""Characters of a stream's id; those of the original's client are UUIDs."""
ENVELOPE_BYTES: Final = 8_192
"""Limit of a frame besides its body: the longest names, each character of which may be written as
an escape of six bytes.
"""
_LENGTH: Final = struct.Struct("<I")


_Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
_Stream = Annotated[str, msgspec.Meta(max_length=MAX_STREAM)]


class QueueAssertion(msgspec.Struct, tag_field="MessageType", tag="Queue", forbid_unknown_fields=True):
    """A request to create a queue, if it does not exist, and to send its messages to the stream."""

    name: _Name = msgspec.field(name="Name", default="")
    type: _Name = msgspec.field(name="Type", default="")
    is_durable: bool = msgspec.field(name="Durable", default=False)
    stream: _Stream = msgspec.field(name="StreamID", default="")


class EndpointMessage(
    msgspec.Struct, tag_field="MessageType", tag="EPMessage", forbid_unknown_fields=True, gc=False
):
    """A message for a queue."""

    route: _Name = msgspec.field(name="Route", default="")
    type: _Name = msgspec.field(name="Type", default="")
    body: bytes | None = msgspec.field(name="Body", default=None)
    stream: _Stream = msgspec.field(name="StreamID", default="")


class Registration(msgspec.Struct, tag_field="MessageType", tag="Consumer"):
    """The registration of an older client; an assertion registers by now."""


class ErrorReport(msgspec.Struct, tag_field="MessageType", tag="ErrorMessage"):
    """An echo of an error that the server sent."""


class Refusal(NamedTuple):
    """A frame without meaning; `error` is for its sender."""

    error: BadFrame | FrameTooLarge | InvalidArgument
    stream: str

    @property
    def is_last(self) -> bool:
        """True if nothing behind it can be read."""
        return isinstance(self.error, FrameTooLarge)


Event = QueueAssertion | EndpointMessage | Refusal

_decode: Final[Callable[[memoryview], Any]] = msgspec.json.Decoder(
    QueueAssertion | EndpointMessage | Registration | ErrorReport
).decode
_MEANINGLESS: Final = frozenset({Registration, ErrorReport})
_decode_any: Final = msgspec.json.Decoder().decode
_TAGS: Final = ("Queue", "EPMessage", "Consumer", "ErrorMessage")


class Receiver:
    """The receiving side of a server's connection; any way of cutting the bytes gives the same
    events.

    Args:
        max_body_bytes: limit of one message.
    """

    def __init__(self, max_body_bytes: int) -> None:
        self.max_frame_bytes = (max_body_bytes + 2) // 3 * 4 + ENVELOPE_BYTES
        self._buffer = ReceiveBuffer()
        self._events: list[Event] = []
        self._is_over = False

    @property
    def bytes_wanted(self) -> int:
        """Size of the unfinished frame as far as it is known; 0 if there is none."""
        return self._buffer.wanted_bytes

    def receive_data(self, data: bytes) -> None:
        """Take more bytes; nothing is kept of a frame over the limit, and nothing behind it."""
        if self._is_over:
            return
        data = self._buffer.joined(data)
        view, add = memoryview(data), self._events.append
        position, size = 0, len(data)
        while size - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, position)
            start = position + _LENGTH.size
            if length > self.max_frame_bytes:
                self._refuse_length(length)
                return
            position = start + length
            if position > size:
                self._buffer.keep(data, start - _LENGTH.size, length + _LENGTH.size)
                return
            try:
                event = _decode(view[start:position])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                event = _read_leniently(data[start:position])
            if event is not None and type(event) not in _MEANINGLESS:
                add(event)
        if position < size:
            self._buffer.keep(data, position, _LENGTH.size)

    def events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def _refuse_length(self, length: int) -> None:
        self._is_over = True
        self._buffer.clear()
        text = (
            f"a frame of {length} bytes was announced; at most {self.max_frame_bytes} are taken, "
            "so the connection ends"
        )
        self._events.append(Refusal(FrameTooLarge(text), ""))


# ── as Go's decoder reads ─────────────────────────────────────────────────────────────────────────


def _read_leniently(frame: bytes) -> Event | None:
    try:
        value = _decode_any(frame.decode(errors="replace"))
    except (msgspec.DecodeError, RecursionError) as error:
        return Refusal(BadFrame(f"a frame of {len(frame):,} bytes is not JSON: {error}"), "")
    if not isinstance(value, dict):
        return Refusal(BadFrame("a frame's JSON is not an object; it has the field MessageType"), "")
    fields = _Fields(value)
    tag = fields.values.get("messagetype")
    stream = fields.values.get("streamid")
    echo = stream[:MAX_STREAM] if isinstance(stream, str) else ""
    if tag not in _TAGS:
        return Refusal(BadFrame(f"the MessageType is {_shown(tag)}; it is Queue or EPMessage"), echo)
    try:
        return _event_of(tag, fields)
    except BadFrame as error:
        return Refusal(error, echo)


def _event_of(
    tag: Literal["Queue", "EPMessage", "Consumer", "ErrorMessage"], fields: _Fields
) -> Event | None:
    if tag == "Queue":
        return _checked(
            QueueAssertion(
                fields.text("Name"), fields.text("Type"), fields.truth("Durable"), fields.text("StreamID")
            )
        )
    if tag == "EPMessage":
        return _checked(
            EndpointMessage(
                fields.text("Route"), fields.text("Type"), fields.content("Body"), fields.text("StreamID")
            )
        )
    return None


def _checked(event: QueueAssertion | EndpointMessage) -> Event:
    name = event.route if isinstance(event, EndpointMessage) else event.name
    for field, text, limit in (
        ("StreamID", event.stream, MAX_STREAM),
        ("Type", event.type, MAX_NAME),
        ("queue's name", name, MAX_NAME),
    ):
        if len(text) > limit:
            refusal = InvalidArgument(f"the {field} is too long: {len(text)} characters of at most {limit}")
            return Refusal(refusal, event.stream[:MAX_STREAM])
    return event


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:60]


class _Fields:
    """The fields of a frame by their names in lower case; null is the empty value, as in Go."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = {name.lower(): value for name, value in values.items()}
        self.values.update({name.lower(): value for name, value in values.items() if name in _EXACT})

    def _of(self, name: str, kind: type, empty: object, expected: str) -> object:
        value = self.values.get(name.lower())
        if value is None:
            return empty
        if not isinstance(value, kind):
            raise BadFrame(f"the field {name} is {_shown(value)}; it is {expected}")
        return value

    def text(self, name: str) -> str:
        return str(self._of(name, str, "", "a text"))

    def truth(self, name: str) -> bool:
        return bool(self._of(name, bool, False, "true or false"))

    def content(self, name: str) -> bytes | None:
        value = self._of(name, str, None, "a text in base64")
        if value is None:
            return None
        try:
            return b64decode(str(value).replace("\r", "").replace("\n", ""), validate=True)
        except ValueError as error:
            raise BadFrame(f"the field {name} is not base64: {error}") from None


_EXACT: Final = frozenset({"MessageType", "Name", "Type", "Durable", "StreamID", "Route", "Body"})


# ── as Go's encoder writes ────────────────────────────────────────────────────────────────────────


class MessageFrames:
    """A writer of the messages of one queue for one stream."""

    def __init__(self, route: str, stream: str) -> None:
        self._head = b'{"MessageType":"EPMessage","Route":' + quoted(route) + b',"Type":'
        self._tail = b',"StreamID":' + quoted(stream) + b"}"

    def frame(self, quoted_type: bytes, quoted_body: bytes) -> bytes:
        """Return the frame; its parts come from `quoted` and `quoted_body`."""
        length = len(self._head) + len(quoted_type) + 8 + len(quoted_body) + len(self._tail)
        return b"".join(
            (length.to_bytes(4, "little"), self._head, quoted_type, b',"Body":', quoted_body, self._tail)
        )


def quoted_body(body: bytes | None) -> bytes:
    """Return a body in its form in a frame."""
    return b"null" if body is None else b'"' + b64encode(body) + b'"'


def error_frame(text: str, stream: str) -> bytes:
    """Return a frame that reports an error to a client."""
    content = (
        b'{"MessageType":"ErrorMessage","Body":'
        + quoted_body(text.encode(errors="replace"))
        + b',"StreamID":'
        + quoted(stream)
        + b"}"
    )
    return len(content).to_bytes(4, "little") + content


_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def quoted(text: str) -> bytes:
    """Return a text in its form in a frame: as JSON, with the characters escaped that Go keeps out
    of HTML and scripts.
    """
    written = msgspec.json.encode(text.encode(errors="replace").decode())
    for plain, escaped in _ESCAPES:
        if plain in written:
            written = written.replace(plain, escaped)
    return written
