"""What clients send over a WebSocket: one JSON object per text frame, with its `type`.

Every frame may have an `id` (text or a number), which its answer repeats. `docs/http.md` has the table of all; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from sparrow.base.errors import InvalidArgument
from sparrow.frontends.http.sockets.window import MAX_CREDIT

MAX_NAME_CHARACTERS: Final = 200
MAX_LEASES: Final = 10_000
"""Of one frame."""
MAX_TOPICS: Final = 100
MAX_PLACES: Final = 10_000
MAX_WAIT_MS: Final = 1 << 40

_Id: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)] | int | None
_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
_Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=2000)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_CREDIT)]
_Partition: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Leases: TypeAlias = Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_LEASES)]
_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)]


class Place(msgspec.Struct, forbid_unknown_fields=True):
    """Where to go on in a partition: `offset` is the next to read."""

    topic: str
    partition: _Partition
    offset: _Offset
    metadata: Annotated[str, msgspec.Meta(max_length=4096)] = ""


class ClientFrame(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Any of the frames."""

    id: _Id = None


class Hello(ClientFrame, tag="hello"):
    """Who the client is, where the handshake did not say so."""

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
    "group",
)
FOR_QUEUES: Final = ("queue", "subscriber", "consumer", "create")


class Subscribe(ClientFrame, tag="subscribe"):
    """Read topics, alone or in a group, or take from a queue. `subscription` is the client's name for it."""

    subscription: _Name
    credit: _Count = 0
    encoding: Literal["text", "base64"] = "text"
    topic: str | None = None
    topics: Annotated[list[str], msgspec.Meta(max_length=MAX_TOPICS)] = []
    pattern: str | None = None
    partition: _Partition | None = None
    start: str | int = msgspec.field(name="from", default="end")
    positions: Annotated[list[Place], msgspec.Meta(max_length=MAX_PLACES)] = []
    isolation: Literal["uncommitted", "committed"] = "uncommitted"
    group: Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)] = ""
    queue: str | None = None
    subscriber: Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)] = ""
    consumer: Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)] = ""
    create: bool = False

    def given(self, names: Iterable[str]) -> list[str]:
        """Those of its members that say something, by the names that clients know."""
        fields = {field.name: field for field in msgspec.structs.fields(self)}
        return [
            fields[name].encode_name for name in names if getattr(self, name) != _default_of(fields[name])
        ]


class Credit(ClientFrame, tag="credit"):
    """So many records more may be sent."""

    subscription: _Name
    records: _Count


class Ack(ClientFrame, tag="ack"):
    """Handled."""

    subscription: _Name
    leases: _Leases


class Nack(ClientFrame, tag="nack"):
    """Not handled: try again."""

    subscription: _Name
    leases: _Leases
    delay_ms: _Time | None = None
    error: _Text = ""


class Reject(ClientFrame, tag="reject"):
    """Can never be handled: to the dead letters."""

    subscription: _Name
    leases: _Leases
    reason: _Text = ""


class Extend(ClientFrame, tag="extend"):
    """Still being handled."""

    subscription: _Name
    leases: _Leases
    lease_ms: Annotated[int, msgspec.Meta(ge=1, le=MAX_WAIT_MS)] | None = None


class Release(ClientFrame, tag="release"):
    """Not begun: ready again, and the delivery does not count."""

    subscription: _Name
    leases: _Leases


Settle: TypeAlias = Ack | Nack | Reject | Extend | Release


class Commit(ClientFrame, tag="commit"):
    """The group is done with what is before these offsets."""

    subscription: _Name
    offsets: Annotated[list[Place], msgspec.Meta(min_length=1, max_length=MAX_PLACES)]


class Unsubscribe(ClientFrame, tag="unsubscribe"):
    """Send no more; what is leased and not settled goes back to the queue."""

    subscription: _Name


class Ping(ClientFrame, tag="ping"):
    """Are you there?"""


AnyFrame: TypeAlias = Hello | Publish | Subscribe | Credit | Settle | Commit | Unsubscribe | Ping


class _OnlyId(msgspec.Struct):
    id: _Id = None
    subscription: str | None = None


_decode: Final = msgspec.json.Decoder(AnyFrame).decode
_decode_id: Final = msgspec.json.Decoder(_OnlyId).decode


def _default_of(field: msgspec.structs.FieldInfo) -> object:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


class WrongFrame(InvalidArgument):
    """A frame that means nothing; `id` and `subscription` as far as they could be read."""

    def __init__(self, text: str, only: _OnlyId) -> None:
        super().__init__(text)
        self.id = only.id
        self.subscription = only.subscription


def parse_frame(text: str) -> AnyFrame:
    """The frame that a text is.

    Raises:
        WrongFrame: it is none.
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
