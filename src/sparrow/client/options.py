"""Options of a client, a producer, a subscription and a queue: frozen declarations, checked when
they are made.

Sizes are bytes, times seconds or milliseconds as their names say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from sparrow.base.errors import InvalidArgument
from sparrow.protocol.native.messages import Start
from sparrow.records.compression import Compression
from sparrow.records.readable import ON_CORRUPT, OnCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparrow.base.errors import SparrowError

    OnRefused = Callable[[SparrowError], None]

Acks = Literal["all", "1", "0", -1, 1, 0]
CommitMode = Literal["manual", "auto"]
Mode = Literal["push", "pull"]
Isolation = Literal["read_uncommitted", "read_committed"]
StartAt = str | int | datetime

MAX_PREFETCH: Final = 10_000_000
"""In jobs, because each of them takes memory."""
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
    """Options of a client: connecting, calling, closing."""

    client_name: str = ""
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    """PEM file of the authorities that may sign the broker's certificate (`sparrows://`); None:
    those that the system trusts.
    """
    certificate_file: str | None = None
    """PEM file of the certificate to show to a broker that asks for one."""
    key_file: str | None = None
    """PEM file of that certificate's key; None: `certificate_file` contains it."""
    connect_timeout_s: float = 5.0
    """Limit of the first connection, with as many attempts as fit."""
    reconnect_timeout_s: float | None = None
    """Limit of reconnecting before the client gives up; None: no limit."""
    call_timeout_s: float = 30.0
    """Limit of an administrative call, including the wait for a connection."""
    close_timeout_s: float = 10.0
    """Longest time that `close` waits for confirmations."""
    backoff_initial_s: float = 0.05
    backoff_max_s: float = 5.0
    ping_interval_s: float | None = None
    """Interval of pings; None: a third of the idle timeout that the broker announces."""

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


class ProducerOptions(Struct, frozen=True, kw_only=True):
    """Options of a producer: batching and delivery guarantees."""

    acks: int = ACKS_ALL
    linger_ms: float = 5.0
    """Longest time that a message waits for others to share its batch. 0: until the loop's next
    iteration.
    """
    batch_bytes: int = 128 << 10
    """Size at which a batch is sent regardless of the linger, before compression. Batches grow to
    four times of it while as many wait as may be in flight.
    """
    compression: Compression = Compression.NONE
    idempotent: bool = True
    max_pending_bytes: int = 32 << 20
    """Limit of messages sent and not yet confirmed; beyond it `send` waits."""
    delivery_timeout_s: float = 120.0
    """Time for which a message is retried, from `send` on."""
    metadata_refresh_s: float = 300.0
    """Age at which the number of a topic's partitions is read again."""
    on_refused: OnRefused | None = None
    """Called with the broker's error when it takes no messages for now (its disk is full), while
    the producer retries; None: a line in the log.
    """

    def __post_init__(self) -> None:
        _positive(self, "batch_bytes", "max_pending_bytes", "delivery_timeout_s", "metadata_refresh_s")
        if self.linger_ms < 0:
            raise InvalidArgument(f"linger_ms is {self.linger_ms}; it must be 0 or more")
        if self.idempotent and self.acks == ACKS_NONE:
            raise InvalidArgument(
                "a producer with acks=0 learns nothing of its messages, so it cannot be "
                "idempotent; leave one out"
            )


class SubscribeOptions(Struct, frozen=True, kw_only=True):
    """Options of a subscription: delivery and commits."""

    group: str = ""
    commit: CommitMode = "manual"
    auto_commit_interval_s: float = 5.0
    mode: Mode = "push"
    prefetch_bytes: int = 4 << 20
    """Limit of received batches that wait to be handed out."""
    max_deliver_bytes: int = 1 << 20
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    isolation: Isolation = "read_uncommitted"
    """"read_committed" leaves out records of transactions that are open or were aborted; an open
    one holds back all that follows it.
    """
    on_corrupt: OnCorrupt = "fail"
    """Handling of a batch whose records cannot be read: "fail" raises `CorruptBatch` at each step,
    "skip" logs it and continues behind it.
    """

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
        _one_of("on_corrupt", self.on_corrupt, ON_CORRUPT)
        if self.commit == "auto" and not self.group:
            raise InvalidArgument("commit='auto' needs a group: offsets are committed for a group")


class QueueOptions(Struct, frozen=True, kw_only=True):
    """Options of a queue."""

    prefetch: int = 100
    """Most jobs that are here and not settled, including those that wait to be handed out."""
    subscriber: str = ""
    """The subscriber to consume for, where the queue has subscribers ("all of")."""
    create: bool = True
    """Create the queue if it is missing: with `policy`, or the default one."""
    policy: Mapping[str, Any] | None = None
    """Settings by name that the queue must have before it is used; None: as it is."""
    max_deliver_bytes: int = 1 << 20
    """Approximate size of the batches that the broker sends at a time."""

    def __post_init__(self) -> None:
        _positive(self, "max_deliver_bytes")
        if type(self.prefetch) is not int or not 1 <= self.prefetch <= MAX_PREFETCH:
            raise InvalidArgument(
                f"prefetch is {self.prefetch!r}; it must be a whole number from 1 to {MAX_PREFETCH}"
            )
        if self.subscriber:
            check_name("the subscriber of a queue", self.subscriber)
        if self.policy is not None and not self.create:
            raise InvalidArgument(
                "there are a policy and create=False; leave out the policy to take the queue as it "
                "is, or leave out create"
            )


def parse_acks(acks: object) -> int:
    """Return -1, 1 or 0.

    Raises:
        InvalidArgument: anything but "all", 1, 0 and their other spellings.
    """
    try:
        return _ACKS[acks]
    except (KeyError, TypeError):
        raise InvalidArgument(f"acks is {acks!r}; it must be 'all', 1 or 0") from None


def producer_options(
    *, acks: object, idempotent: bool | None, compression: str | Compression, **others: Any
) -> ProducerOptions:
    """Return options from a user's arguments: `idempotent` None means "unless acks is 0",
    `compression` may be a name.
    """
    number = parse_acks(acks)
    return ProducerOptions(
        acks=number,
        idempotent=number != ACKS_NONE if idempotent is None else idempotent,
        compression=Compression.parse(compression) if isinstance(compression, str) else compression,
        **others,  # the dataclass checks names, its __post_init__ values
    )


def parse_start(start: StartAt) -> Start:
    """Return a start position as the protocol has it: "beginning", "end", an offset, or a time.

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
    """Return a time in ms since the epoch.

    Raises:
        InvalidArgument: a time without time zone; the error names the argument `name`.
    """
    if time.tzinfo is None:
        raise InvalidArgument(
            f"{name} is {time!r}, a time without zone; say which, for instance tzinfo=datetime.UTC"
        )
    return round(time.timestamp() * 1000)


def check_name(what: str, name: object) -> None:
    """Raise InvalidArgument if the name is not text, empty, or cannot be encoded."""
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
