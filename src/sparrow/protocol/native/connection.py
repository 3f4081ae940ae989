"""The state machine of the native protocol: one class for both sides, without I/O and without a
clock.

The tables in `rules.py` define what may be sent when; this module applies them. A frame changes the
state of both sides in the same way, the sender's when it sends, the receiver's when it receives: so
the same function, `Connection._apply`, serves both directions.

Crossing in flight. The broker may end a channel with ERROR while frames of the client for it are
under way. It ignores frames for a channel that it ended, until the client opens the number again.
It must remember only the last `max_channels` ended ones: for the client each channel whose ERROR it
has not read yet still counts as open, and it has at most `max_channels`. The client never meets
this: a channel is free for it only when it has read ERROR or CLOSED, which come last.

Events are `Received`, `Violation` and `Ended`. PING is answered here and is no event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from sparrow.base.errors import (
    BadFrame,
    ConnectionLost,
    FrameTooLarge,
    InternalError,
    InvalidArgument,
    Overloaded,
    ProtocolError,
    UnsupportedVersion,
)
from sparrow.protocol.native import frames
from sparrow.protocol.native.frames import FLAG_BATCHES, Buffer, FrameDecoder, encode_frame, split_payload
from sparrow.protocol.native.messages import (
    APPENDED,
    CARRIES_BATCHES,
    CONTROL_CHANNEL,
    HEADS,
    PROTOCOL,
    TYPE_OF,
    VERSION,
    Error,
    FrameType,
    Head,
    Hello,
    Ping,
    Pong,
    Welcome,
    written_fields,
)
from sparrow.protocol.native.rules import (
    AFTER_OWN_GOODBYE,
    AFTER_PEERS_GOODBYE,
    MAX_CHANNEL_NUMBER,
    MAX_CHANNELS,
    MAX_PAYLOAD_BYTES,
    MAY_SEND,
    ON_CHANNEL,
    ON_CONTROL_CHANNEL,
    OPENS,
    STATE_CHANGING,
    ChannelKind,
    ChannelState,
    Role,
    State,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.base.errors import SparrowError

__all__ = [
    "MAX_CHANNELS",
    "ChannelKind",
    "ChannelState",
    "Connection",
    "Ended",
    "Event",
    "Received",
    "Role",
    "State",
    "Violation",
]

MIN_VERSION = 1

T = FrameType


# ── events ────────────────────────────────────────────────────────────────────────────────────────


class Received(msgspec.Struct, frozen=True, gc=False):
    """A frame that is legal in the present state. `batches` is a view of the chunk it came in: keep
    it no longer than needed.
    """

    channel: int
    head: Head
    batches: memoryview | None = None


class Violation(msgspec.Struct, frozen=True):
    """A breach of the rules by the peer. An ERROR frame is queued; the state is CLOSED: send the
    queue, then close.
    """

    error: ProtocolError


class Ended(msgspec.Struct, frozen=True):
    """The end of the peer's stream. `error` is None after a goodbye or an error frame, else it
    names what was cut short.
    """

    error: ConnectionLost | None


Event: TypeAlias = Received | Violation | Ended


class _Codec(NamedTuple):
    name: str
    flags: int
    max_bytes: int
    decode: Callable[[Buffer], Head]


_CODECS: Final[dict[int, _Codec]] = {
    int(kind): _Codec(
        kind.name,
        FLAG_BATCHES if kind in CARRIES_BATCHES else 0,
        MAX_PAYLOAD_BYTES.get(int(kind), frames.MAX_LENGTH_BYTES),
        msgspec.msgpack.Decoder(head).decode,
    )
    for kind, head in HEADS.items()
}
_KIND_OF: Final[dict[type[Head], int]] = {head: int(kind) for head, kind in TYPE_OF.items()}
_encode_head = msgspec.msgpack.Encoder().encode
_PING = int(T.PING)


class _Channel:
    __slots__ = ("kind", "receives", "sends", "state")

    def __init__(self, kind: ChannelKind, role: Role) -> None:
        self.kind = kind
        self.enter(ChannelState.OPENING, role)

    def enter(self, state: ChannelState, role: Role) -> None:
        self.state = state
        self.sends = ON_CHANNEL[role, self.kind, state]
        self.receives = ON_CHANNEL[role.peer, self.kind, state]


class Connection:
    """One side of one connection. Not thread-safe; every call is short and does no I/O.

    Pass it the socket's bytes (`receive_data`, `receive_eof`), handle `events()`, write what
    `data_to_send()` returns after every call that may have queued something, and close the socket
    when `state` is CLOSED and all is written.

    Args:
        max_frame_bytes: limit of a frame's length field. A client takes over the broker's limit
            from WELCOME.
        max_channels: how many channels a client may have open (a broker's rule; a client takes it
            from WELCOME).
    """

    __slots__ = (
        "_channels",
        "_decoder",
        "_ended",
        "_events",
        "_heard_goodbye",
        "_hello",
        "_max_frame_bytes",
        "_may_receive",
        "_may_send",
        "_said_goodbye",
        "_version",
        "bytes_wanted",
        "max_channels",
        "queued",
        "role",
        "state",
    )

    def __init__(
        self, role: Role, *, max_frame_bytes: int = frames.MAX_FRAME_BYTES, max_channels: int = MAX_CHANNELS
    ) -> None:
        self.role = role
        self.max_channels = max_channels
        self._max_frame_bytes = max_frame_bytes
        self._decoder = FrameDecoder(min(max_frame_bytes, frames.MAX_FRAME_BYTES_BEFORE_WELCOME))
        self._channels: dict[int, _Channel] = {}
        self._ended: dict[int, None] = {}
        self._events: list[Event] = []
        self.queued: list[Buffer] = []
        """Pieces that wait for `data_to_send`."""
        self._said_goodbye = False
        self._heard_goodbye = False
        self._hello: Hello | None = None
        self._version = VERSION
        self.bytes_wanted = 0
        """Size of the frame that is being received, as announced; 0 between frames."""
        self.state: State
        self._enter(State.AWAIT_HELLO)

    # ── what one may ask ──────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int:
        """The protocol version of the connection: the highest in both ranges. Valid once HELLO has
        passed.
        """
        return self._version

    @property
    def max_frame_bytes(self) -> int:
        """Limit of a frame's length field in both directions, valid once OPEN."""
        return self._max_frame_bytes

    @property
    def max_batch_bytes(self) -> int:
        """The largest batch that may be published: the frame limit less the reserve for a head."""
        return self._max_frame_bytes - frames.HEAD_RESERVE_BYTES

    @property
    def buffered_bytes(self) -> int:
        """Received bytes of an unfinished frame."""
        return self._decoder.buffered_bytes

    @property
    def goodbye_received(self) -> bool:
        return self._heard_goodbye

    @property
    def goodbye_sent(self) -> bool:
        return self._said_goodbye

    @property
    def channels(self) -> int:
        """Number of channels that are not free."""
        return len(self._channels)

    def channel_state(self, channel: int) -> ChannelState | None:
        """Return the state of a channel, None if the number is free."""
        found = self._channels.get(channel)
        return found.state if found else None

    def may_send(self, head: type[Head], channel: int = CONTROL_CHANNEL) -> bool:
        """Return True if `send` would take such a frame now."""
        kind = _KIND_OF[head]
        return kind in self._may_send and self._channel_objection(kind, channel) is None

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────

    def receive_data(self, data: Buffer) -> None:
        """Take the next bytes of the peer; never raise because of their content. After CLOSED they
        are ignored.
        """
        if self.state is State.CLOSED:
            return
        decoder = self._decoder
        try:
            decoder.receive_data(data, self._receive_frame)
        except ProtocolError as error:
            self._violated(error)
        self.bytes_wanted = decoder.bytes_wanted

    def receive_eof(self) -> None:
        """Take the end of the peer's stream. Reports `Ended` once; the state is CLOSED."""
        if self.state is State.CLOSED:
            return
        error = None if self._heard_goodbye and not self._decoder.buffered_bytes else self._cut_short()
        self._enter(State.CLOSED)
        self._events.append(Ended(error))

    def events(self) -> list[Event]:
        """Return the events since the last call."""
        events = self._events
        if events:
            self._events = []
        return events

    def _receive_frame(self, kind: int, flags: int, number: int, payload: memoryview) -> bool:
        """Take a frame. Return False if the rest is ignored, as the state is CLOSED."""
        codec = _CODECS.get(kind)
        if codec is None:
            raise BadFrame(
                f"Frame type 0x{kind:02x} is not known in version {self._version} of the protocol; "
                "the peer may be newer."
            )
        if flags != codec.flags:
            raise BadFrame(f"{codec.name} has flags 0x{flags:02x}; it must have 0x{codec.flags:02x}.")
        channel = self._channels.get(number)
        if channel is None or kind not in channel.receives or kind not in self._may_receive:
            if self._is_late(kind, number):
                return True
            self._check_receivable(kind, number)
        if len(payload) > codec.max_bytes:
            raise _payload_too_large(codec, len(payload))
        batches = None
        if flags:
            payload, batches = split_payload(payload)
        try:
            head = codec.decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
            raise BadFrame(
                f"The head of {codec.name} on channel {number} does not decode: {error}. See "
                "docs/protocol.md for its fields."
            ) from error
        if kind not in STATE_CHANGING or self._receive_transition(kind, number, head):
            self._events.append(Received(number, head, batches))
        return self.state is not State.CLOSED

    def _is_late(self, kind: int, number: int) -> bool:
        """Return True if a frame was under way when the broker ended its channel."""
        return (
            number in self._ended
            and kind in self._may_receive
            and kind not in OPENS
            and kind not in ON_CONTROL_CHANNEL[Role.CLIENT]
        )

    def _check_receivable(self, kind: int, number: int) -> None:
        if kind not in self._may_receive:
            raise BadFrame(
                f"{_CODECS[kind].name} may not be sent by a {self.role.peer.value} when the "
                f"connection is in state '{self.state.value}'."
            )
        objection = self._channel_objection(kind, number, self.role.peer)
        if objection:
            raise BadFrame(objection)

    def _receive_transition(self, kind: int, number: int, head: Head) -> bool:
        """Take a frame that changes a state. Return False if it was answered here and is no
        event.
        """
        if kind == _PING:
            if isinstance(head, Ping) and T.PONG in self._may_send:
                self.send(Pong(head.nonce))
            return False
        if isinstance(head, Hello):
            self._check_hello(head)
        elif isinstance(head, Welcome):
            self._check_welcome(head)
        elif kind in OPENS and len(self._channels) >= self.max_channels:
            self._refuse_channel(number)
            return False
        self._apply(kind, number, head, self.role.peer)
        return True

    def _check_hello(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            raise BadFrame(
                f"HELLO is for the protocol '{hello.protocol[:40]}'; this is '{PROTOCOL}'. Check the port."
            )
        if hello.max_version < MIN_VERSION or hello.min_version > VERSION:
            raise UnsupportedVersion(
                f"The client speaks versions {hello.min_version} to {hello.max_version} of the "
                "protocol, this broker "
                f"{MIN_VERSION} to {VERSION}; update the older of the two."
            )

    def _check_welcome(self, welcome: Welcome) -> None:
        hello = self._hello
        if hello and not hello.min_version <= welcome.version <= hello.max_version:
            raise UnsupportedVersion(
                f"The broker chose version {welcome.version}, which was not offered ({hello.min_version} to "
                f"{hello.max_version}); update the older of the two."
            )

    def _refuse_channel(self, number: int) -> None:
        error = Overloaded(
            f"Channel {number} cannot be opened: the connection has {self.max_channels} open, "
            "which is the limit; close some first."
        )
        self._queue_error(number, error)
        self._remember_ended(number)

    def _violated(self, error: ProtocolError) -> None:
        self._queue_error(CONTROL_CHANNEL, error)
        self._enter(State.CLOSED)
        self._events.append(Violation(error))

    def _cut_short(self) -> ConnectionLost:
        if self._decoder.buffered_bytes:
            return ConnectionLost(
                f"The peer closed the connection within a frame ({self._decoder.buffered_bytes} of "
                f"{self._decoder.bytes_wanted or 'unknown'} bytes); it is treated as not sent."
            )
        return ConnectionLost(
            "The peer closed the connection without a goodbye; what was not answered is undecided."
        )

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def send(
        self, head: Head, channel: int = CONTROL_CHANNEL, batches: Buffer | Sequence[Buffer] | None = None
    ) -> None:
        """Queue a frame.

        Args:
            batches: record batches, whole ones; with PUBLISH, DELIVER and LEASED always, else
                never. They are not copied: leave them unchanged until they are written.

        Raises:
            ConnectionLost: the connection is closed.
            FrameTooLarge: the frame is over the broker's limit, or over that of its type; nothing
                was queued.
            InvalidArgument: it has a number over 64 bits, or text that is no Unicode; nothing was
                queued.
            InternalError: the peer may not get such a frame now: a bug of the caller.
        """
        kind = _KIND_OF[type(head)]
        found = self._channels.get(channel)
        if kind not in self._may_send or found is None or kind not in found.sends:
            self._check_sendable(kind, channel)
        codec = _CODECS[kind]
        if (batches is not None) != bool(codec.flags):
            raise InternalError(
                f"{codec.name} is sent {'with' if batches is not None else 'without'} batches."
            )
        try:
            payload = _encode_head(head if type(head) not in APPENDED else written_fields(head))
        except (OverflowError, UnicodeEncodeError) as error:
            raise InvalidArgument(f"{codec.name} cannot be sent: {error}") from None
        if len(payload) > codec.max_bytes:
            raise _payload_too_large(codec, len(payload))
        try:
            self.queued += encode_frame(kind, channel, payload, batches, self._decoder.max_frame_bytes)
        except FrameTooLarge as error:
            raise FrameTooLarge(f"{codec.name} cannot be sent: {error.text}") from None
        if kind in STATE_CHANGING:
            self._apply(kind, channel, head, self.role)

    def data_to_send(self) -> list[Buffer]:
        """Return the bytes to write, in order, for `transport.writelines`; the queue is empty
        afterwards.
        """
        queued, self.queued = self.queued, []
        return queued

    def _check_sendable(self, kind: int, channel: int) -> None:
        name = _CODECS[kind].name
        if self.state is State.CLOSED:
            raise ConnectionLost(f"{name} cannot be sent: the connection is closed.")
        if kind not in self._may_send:
            raise InternalError(
                f"{name} may not be sent by a {self.role.value} when the connection is in state "
                f"'{self.state.value}'."
            )
        objection = self._channel_objection(kind, channel)
        if objection is None and kind in OPENS and len(self._channels) >= self.max_channels:
            objection = (
                f"Channel {channel} cannot be opened: {self.max_channels} are open, which is the limit."
            )
        if objection:
            raise InternalError(objection)

    def _queue_error(self, channel: int, error: SparrowError) -> None:
        """Queue ERROR, in whatever state the connection is."""
        payload = _encode_head(Error(error.code, error.text, error.retriable))
        self.queued += encode_frame(int(T.ERROR), channel, payload, None, frames.MAX_LENGTH_BYTES)

    # ── rules for both directions ─────────────────────────────────────────────────────────────────

    def _channel_objection(self, kind: int, number: int, sender: Role | None = None) -> str | None:
        """Return why a frame of this type does not fit the channel, or None."""
        role = sender or self.role
        name = _CODECS[kind].name
        if number == CONTROL_CHANNEL:
            return (
                None if kind in ON_CONTROL_CHANNEL[role] else f"{name} is not for channel 0, the connection."
            )
        channel = self._channels.get(number)
        if kind in OPENS:
            if not 0 < number <= MAX_CHANNEL_NUMBER:
                return f"{name} on channel {number}; channels have numbers from 1 to {MAX_CHANNEL_NUMBER}."
            return f"{name} on channel {number}, which is in use." if channel else None
        if channel is None:
            return f"{name} on channel {number}, which is not open."
        if kind not in (channel.sends if role is self.role else channel.receives):
            return (
                f"{name} is not for a {channel.kind.value} channel that is {channel.state.value} "
                f"(channel {number})."
            )
        return None

    def _apply(self, kind: int, number: int, head: Head, sender: Role) -> None:
        """Change the states for a frame that was sent or received."""
        if number != CONTROL_CHANNEL:
            self._apply_to_channel(kind, number, sender)
        elif isinstance(head, Hello):
            self._hello = head
            self._version = min(head.max_version, VERSION)
            self._enter(State.AWAIT_WELCOME)
        elif isinstance(head, Welcome):
            self._welcome(head)
        elif kind == T.GOODBYE:
            self._goodbye(sender)
        elif kind == T.ERROR:
            self._enter(State.CLOSED)

    def _apply_to_channel(self, kind: int, number: int, sender: Role) -> None:
        if kind in OPENS:
            self._ended.pop(number, None)
            self._channels[number] = _Channel(OPENS[kind], self.role)
        elif kind == T.CLOSED:
            del self._channels[number]
        elif kind == T.ERROR:
            del self._channels[number]
            if sender is self.role:
                self._remember_ended(number)
        elif kind == T.CLOSE:
            self._channels[number].enter(ChannelState.CLOSING, self.role)
        elif self._channels[number].state is ChannelState.OPENING:
            self._channels[number].enter(ChannelState.OPEN, self.role)

    def _remember_ended(self, number: int) -> None:
        self._ended.pop(number, None)
        self._ended[number] = None
        if len(self._ended) > self.max_channels:
            del self._ended[next(iter(self._ended))]

    def _welcome(self, welcome: Welcome) -> None:
        self._version = welcome.version
        self._max_frame_bytes = self._decoder.max_frame_bytes = welcome.max_frame_bytes
        self.max_channels = welcome.max_channels
        self._hello = None
        self._enter(State.OPEN)

    def _goodbye(self, sender: Role) -> None:
        early = self.state is not State.OPEN and self.state is not State.CLOSING
        if sender is self.role:
            self._said_goodbye = True
        else:
            self._heard_goodbye = True
        both = self._said_goodbye and self._heard_goodbye
        self._enter(State.CLOSED if early or both else State.CLOSING)

    def _enter(self, state: State) -> None:
        self.state = state
        if state is State.CLOSING:
            peer = self.role.peer
            self._may_send = (AFTER_OWN_GOODBYE if self._said_goodbye else AFTER_PEERS_GOODBYE)[self.role]
            self._may_receive = AFTER_OWN_GOODBYE[peer] if self._heard_goodbye else MAY_SEND[peer, State.OPEN]
        else:
            self._may_send = MAY_SEND[self.role, state]
            self._may_receive = MAY_SEND[self.role.peer, state]


def _payload_too_large(codec: _Codec, size_bytes: int) -> FrameTooLarge:
    return FrameTooLarge(
        f"{codec.name} has {size_bytes} bytes; this type has at most {codec.max_bytes}: send several."
    )
