"""The options of a client, a producer and a subscription: three frozen declarations, checked once when they are made.

Sizes are bytes, times seconds or milliseconds as their names say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from sparrow.base.errors import InvalidArgument
from sparrow.protocol.native.messages import Start
from sparrow.records.compression import Compression

if TYPE_CHECKING:
    from collections.abc import Mapping

Acks = Literal["all", "1", "0", -1, 1, 0]
CommitMode = Literal["manual", "auto"]
Mode = Literal["push", "pull"]
Isolation = Literal["read_uncommitted", "read_committed"]
StartAt = str | int | datetime

MAX_PREFETCH: Final = 10_000_000
"""Jobs; each that is here takes memory."""
ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
_ACKS: Final[Mapping[object, int]] = {
    "all": ACKS_ALL,
    -1: ACKS_ALL,
    1: 1,
    "1": 1,
    0: ACKS_NONE,
    "0": ACKS_NONE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client connects, calls and ends."""

    client_name: str = ""
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    """PEM file of the authorities that may vouch for the broker (`sparrows://`); None: those that the system trusts."""
    certificate_file: str | None = None
    """PEM file of the certificate to show to a broker that asks for one."""
    key_file: str | None = None
    """PEM file of that certificate's key; None: it stands in `certificate_file`, too."""
    connect_timeout_s: float = 5.0
    """How long the first connection is tried for; it is tried again and again within that time."""
    reconnect_timeout_s: float | None = None
    """How long a lost connection is tried for before the client gives up; None: for ever."""
    call_timeout_s: float = 30.0
    """How long an administrative call may take, waiting for a connection included."""
    close_timeout_s: float = 10.0
    """How long `close` waits for what was published to be confirmed."""
    backoff_initial_s: float = 0.05
    backoff_max_s: float = 5.0
    ping_interval_s: float | None = None
    """None: a third of the idle timeout that the broker announces."""

    def __post_init__(self) -> None:
        _positive(
            self,
            "connect_timeout_s",
            "call_timeout_s",
            "close_timeout_s",
            "backoff_initial_s",
            "backoff_max_s",
        )
        for name in ("token", "user", "password", "ca_file", "certificate_file", "key_file"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise InvalidArgument(f"the {name} is {type(value).__name__}, it must be text")
        if self.token is not None and self.user is not None:
            raise InvalidArgument("there are a token and a user; log in as one of them")
        if self.key_file is not None and self.certificate_file is None:
            raise InvalidArgument("there is a key_file and no certificate_file; give both")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How messages become batches, and what is promised of them."""

    acks: int = ACKS_ALL
    linger_ms: float = 5.0
    """How long a message may wait for company. 0: until the loop's next turn."""
    batch_bytes: int = 128 << 10
    """A batch is sent when it has so many bytes (before compression), whatever the linger."""
    compression: Compression = Compression.NONE
    idempotent: bool = True
    max_pending_bytes: int = 32 << 20
    """Messages sent and not yet confirmed; beyond that `send` waits."""
    delivery_timeout_s: float = 120.0
    """How long a message is tried for, from `send` on."""
    metadata_refresh_s: float = 300.0
    """How old the known number of partitions of a topic may become."""

    def __post_init__(self) -> None:
        _positive(self, "batch_bytes", "max_pending_bytes", "delivery_timeout_s", "metadata_refresh_s")
        if self.linger_ms < 0:
            raise InvalidArgument(f"linger_ms is {self.linger_ms}; it must be 0 or more")
        if self.idempotent and self.acks == ACKS_NONE:
            raise InvalidArgument(
                "a producer with acks=0 learns nothing of its messages, so it cannot be idempotent; leave one out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """How records come, and what becomes of their offsets."""

    group: str = ""
    commit: CommitMode = "manual"
    auto_commit_interval_s: float = 5.0
    mode: Mode = "push"
    prefetch_bytes: int = 4 << 20
    """Bytes of batches that may have come and wait to be handed out."""
    max_deliver_bytes: int = 1 << 20
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    isolation: Isolation = "read_uncommitted"
    """"read_committed" leaves out records of transactions that are open or were aborted; an open one holds back all that follows it."""

    def __post_init__(self) -> None:
        _positive(
            self,
            "auto_commit_interval_s",
            "prefetch_bytes",
            "max_deliver_bytes",
            "session_timeout_ms",
            "rebalance_timeout_ms",
        )
        _one_of("commit", self.commit, ("manual", "auto"))
        _one_of("mode", self.mode, ("push", "pull"))
        _one_of("isolation", self.isolation, ("read_uncommitted", "read_committed"))
        if self.commit == "auto" and not self.group:
            raise InvalidArgument("commit='auto' needs a group: offsets are committed for a group")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """How a queue's jobs come."""

    prefetch: int = 100
    """Jobs that are here at a time and not settled, those that wait to be handed out included."""
    subscriber: str = ""
    """Whose part of an "all of" queue."""
    create: bool = True
    """Whether a queue that is missing is made, with the default policy."""
    max_deliver_bytes: int = 1 << 20
    """About how many bytes of batches the broker sends at a time."""

    def __post_init__(self) -> None:
        _positive(self, "max_deliver_bytes")
        if type(self.prefetch) is not int or not 1 <= self.prefetch <= MAX_PREFETCH:
            raise InvalidArgument(
                f"prefetch is {self.prefetch!r}; it must be a whole number from 1 to {MAX_PREFETCH}"
            )
        if self.subscriber:
            check_name("the subscriber of a queue", self.subscriber)


def parse_acks(acks: object) -> int:
    """-1, 1 or 0.

    Raises:
        InvalidArgument: anything but "all", 1, 0 and their other spellings.
    """
    try:
        return _ACKS[acks]
    except (KeyError, TypeError):
        raise InvalidArgument(f"acks is {acks!r}; it must be 'all', 1 or 0") from None


def producer_options(
    *, acks: object, idempotent: bool | None, compression: str | Compression, **others: float
) -> ProducerOptions:
    """Options from what a user writes: `idempotent` None means "unless acks is 0", `compression` may be a name."""
    number = parse_acks(acks)
    return ProducerOptions(
        acks=number,
        idempotent=number != ACKS_NONE if idempotent is None else idempotent,
        compression=Compression.parse(compression) if isinstance(compression, str) else compression,
        **others,  # type: ignore[arg-type]  # the dataclass checks names, its __post_init__ values
    )


def parse_start(start: StartAt) -> Start:
    """Where to begin, as the wire says it: "beginning", "end", an offset, or a point in time.

    Raises:
        InvalidArgument: another word, a negative offset, or a datetime without time zone.
    """
    if isinstance(start, datetime):
        return Start("timestamp", epoch_ms("start", start))
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return Start("offset", start)
    if isinstance(start, str) and start in {"beginning", "end"}:
        return Start(start)
    raise InvalidArgument(f"start is {start!r}; it must be 'beginning', 'end', an offset or a datetime")


def epoch_ms(name: str, time: datetime) -> int:
    """Milliseconds since the epoch.

    Raises:
        InvalidArgument: a time without zone; says so of the argument `name`.
    """
    if time.tzinfo is None:
        raise InvalidArgument(
            f"{name} is {time!r}, a time without zone; say which, for instance tzinfo=datetime.UTC"
        )
    return round(time.timestamp() * 1000)


def check_name(what: str, name: object) -> None:
    """Raises InvalidArgument: it is no text, or none that can be sent."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{what} is {name!r}; it must be text that is not empty")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} is {name!r}, which is no Unicode: {error.reason}") from None


def _positive(options: object, *names: str) -> None:
    for name in names:
        if getattr(options, name) <= 0:
            raise InvalidArgument(f"{name} is {getattr(options, name)}; it must be greater than 0")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidArgument(f"{name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}")
