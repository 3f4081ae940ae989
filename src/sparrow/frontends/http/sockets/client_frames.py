"""Frames that clients send over a WebSocket: one JSON object per text frame, with its `type`.

Every frame may have an `id` (text or a number), which the response repeats. `docs/http.md` has the
table of all frames; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from sparrow.base.errors import InvalidArgument
from sparrow.frontends.http.sockets.window import MAX_CREDIT
from sparrow.records.readable import FAIL, OnCorrupt

MAX_NAME_CHARACTERS: Final = 200
MAX_LEASES: Final = 10_000
"""Leases of one frame."""
MAX_TOPICS: Final = 100
MAX_OFFSETS: Final = 10_000
MAX_WAIT_MS: Final = 1 << 40

_Id: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)] | int | None
_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
_Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=2000)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_CREDIT)]
_Partition: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Leases: TypeAlias = Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_LEASES)]
_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)]


class PartitionOffset(msgspec.Struct, forbid_unknown_fields=True):
    """A position in a partition: `offset` is the next to read."""

    topic: str
    partition: _Partition
    offset: _Offset
    metadata: Annotated[str, msgspec.Meta(max_length=4096)] = ""


class ClientFrame(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """The base of all frames."""

    id: _Id = None


class Hello(ClientFrame, tag="hello"):
    """Credentials, if the handshake had none."""

    token: str | None = None
    user: str | None = None
    password: str | None = None


class Publish(ClientFrame, tag="publish"):
    """Messages for a topic, in the form of POST /v1/topics/{topic}/messages."""

    topic: str
    message: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    partition: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)] = -1
    acks: Literal["all", "leader", "none"] = "all"


FOR_TOPICS: Final = (
    "topic",
    "topics",
    "pattern",
    "partition",
    "start",
    "positions",
    "isolation",
    "on_corrupt",
    "group",
)
FOR_QUEUES: Final = ("queue", "subscriber", "consumer", "create")


class Subscribe(ClientFrame, tag="subscribe"):
    """A subscription to topics, alone or in a group, or to a queue. `subscription` is the client's
    name for it.
    """

    subscription: _Name
    credit: _Count = 0
    encoding: Literal["text", "base64"] = "text"
    topic: str | None = None
    topics: Annotated[list[str], msgspec.Meta(max_length=MAX_TOPICS)] = []
    pattern: str | None = None
    partition: _Partition | None = None
    start: str | int = msgspec.field(name="from", default="end")
    positions: Annotated[list[PartitionOffset], msgspec.Meta(max_length=MAX_OFFSETS)] = []
    isolation: Literal["uncommitted", "committed"] = "uncommitted"
    on_corrupt: OnCorrupt = FAIL
    group: Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)] = ""
    queue: str | None = None
    subscriber: Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)] = ""
    consumer: Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)] = ""
    create: bool = False

    def given(self, names: Iterable[str]) -> list[str]:
        """Return those of the named members that are set, by their names in JSON."""
        fields = {field.name: field for field in msgspec.structs.fields(self)}
        return [
            fields[name].encode_name for name in names if getattr(self, name) != _default_of(fields[name])
        ]


class Credit(ClientFrame, tag="credit"):
    """Credit for this many more records."""

    subscription: _Name
    records: _Count


class Ack(ClientFrame, tag="ack"):
    """Acknowledgement: the messages are handled."""

    subscription: _Name
    leases: _Leases


class Nack(ClientFrame, tag="nack"):
    """Negative acknowledgement: the messages failed and are retried."""

    subscription: _Name
    leases: _Leases
    delay_ms: _Time | None = None
    error: _Text = ""


class Reject(ClientFrame, tag="reject"):
    """Rejection: the messages can never be handled and go to the dead letters."""

    subscription: _Name
    leases: _Leases
    reason: _Text = ""


class Extend(ClientFrame, tag="extend"):
    """Extension of leases whose messages are still being handled."""

    subscription: _Name
    leases: _Leases
    lease_ms: Annotated[int, msgspec.Meta(ge=1, le=MAX_WAIT_MS)] | None = None


class Release(ClientFrame, tag="release"):
    """Release of unused messages: they are ready again, and the delivery does not count."""

    subscription: _Name
    leases: _Leases


Settle: TypeAlias = Ack | Nack | Reject | Extend | Release


class Commit(ClientFrame, tag="commit"):
    """Offsets of the group: everything before them is handled."""

    subscription: _Name
    offsets: Annotated[list[PartitionOffset], msgspec.Meta(min_length=1, max_length=MAX_OFFSETS)]


class Unsubscribe(ClientFrame, tag="unsubscribe"):
    """End of a subscription; leases that are not settled go back to the queue."""

    subscription: _Name


class Ping(ClientFrame, tag="ping"):
    """Check of the connection."""


AnyFrame: TypeAlias = Hello | Publish | Subscribe | Credit | Settle | Commit | Unsubscribe | Ping


class _OnlyId(msgspec.Struct):
    id: _Id = None
    subscription: str | None = None


_decode: Final = msgspec.json.Decoder(AnyFrame).decode
_decode_id: Final = msgspec.json.Decoder(_OnlyId).decode


def _default_of(field: msgspec.structs.FieldInfo) -> object:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


class WrongFrame(InvalidArgument):
    """An invalid frame; has `id` and `subscription` as far as they could be read."""

    def __init__(self, text: str, only: _OnlyId) -> None:
        super().__init__(text)
        self.id = only.id
        self.subscription = only.subscription


def parse_frame(text: str) -> AnyFrame:
    """Parse a frame.

    Raises:
        WrongFrame: the text is not a frame.
    """
    try:
        frame: AnyFrame = _decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise WrongFrame(
            f"not a frame of this protocol: {error}; docs/http.md has them all", _maybe_id(text)
        ) from None
    return frame


def _maybe_id(text: str) -> _OnlyId:
    try:
        return _decode_id(text)
    except (msgspec.MsgspecError, RecursionError):
        return _OnlyId()
