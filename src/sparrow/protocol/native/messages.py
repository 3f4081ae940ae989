"""The payloads of the native protocol, one class per frame type.

Each payload is a msgpack array: fields by position, so that a later version appends fields with defaults and an older peer
ignores what it does not know. A frame with the flag BATCHES carries raw record batches behind its head. Which side may send
what, and when, is in `rules.py`; the bytes are drawn in `docs/protocol.md`.

Conventions: offsets, sizes and times are integers; times in ms; `partition` -1 means "not chosen"; -1 means "none" for
offsets and timestamps. A `ref` is chosen by the client, unique among its unanswered calls on that channel, and comes back
in the answer.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec

PROTOCOL = "sparrow"
VERSION = 1

CONTROL_CHANNEL = 0


class FrameType(IntEnum):
    """Type byte of a frame."""

    HELLO = 0x01
    WELCOME = 0x02
    PING = 0x03
    PONG = 0x04
    GOODBYE = 0x05
    ERROR = 0x06
    REQUEST = 0x10
    RESPONSE = 0x11
    OPEN_PRODUCER = 0x20
    PRODUCER_OPENED = 0x21
    PUBLISH = 0x22
    CONFIRM = 0x23
    SUBSCRIBE = 0x30
    SUBSCRIBED = 0x31
    CREDIT = 0x32
    PULL = 0x33
    PULLED = 0x34
    DELIVER = 0x35
    UPDATE = 0x36
    ASSIGNED = 0x37
    REVOKE = 0x38
    REVOKED = 0x39
    COMMIT = 0x3A
    CLOSE = 0x40
    CLOSED = 0x41
    OPEN_QUEUE = 0x50
    QUEUE_OPENED = 0x51
    LEASE = 0x52
    LEASED = 0x53
    LEASE_DONE = 0x54
    SETTLE = 0x55
    SETTLED = 0x56
    QUEUE_CREDIT = 0x57
    FETCH = 0x60
    FETCHED = 0x61


class SettleVerb(IntEnum):
    """What becomes of a leased record: the verb of a `Settlement`."""

    ACK = 0
    """Done: never delivered again."""
    NACK = 1
    """Failed: delivered again after a delay, or moved to the dead letters at the delivery limit."""
    REJECT = 2
    """To the dead letters at once."""
    EXTEND = 3
    """Goes on: the lease ends later."""
    RETURN = 4
    """Not looked at: ready again at once, and this delivery does not count."""


class Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all payloads."""


# ── values that stand inside several payloads ─────────────────────────────────────────────────────


class Failure(Head, frozen=True):
    """An error as it travels: see `sparrow.base.errors` for the codes."""

    code: str
    text: str
    retriable: bool = False


class Start(Head, frozen=True):
    """Where to begin where there is neither a committed offset nor an explicit one."""

    at: str = "end"
    """"beginning", "end", "offset" or "timestamp"."""
    value: int = -1
    """The offset, or the timestamp in ms."""


class Selector(Head, frozen=True):
    """What to subscribe to: a topic by name, or all that match a pattern (`*` any run of characters, `?` one)."""

    topic: str
    is_pattern: bool = False
    start: Start = Start()
    offsets: dict[int, int] = {}
    """Explicit positions by partition; they win over committed offsets and `start`. How a client resumes."""


class PartitionAt(Head, frozen=True):
    """A partition and the offset that will be delivered first."""

    topic: str
    partition: int
    offset: int


class OffsetCommit(Head, frozen=True):
    """`offset` is the next one to read, as in Kafka."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


# ── the connection ────────────────────────────────────────────────────────────────────────────────


class Hello(Head, frozen=True):
    """First frame of a client."""

    protocol: str
    min_version: int
    max_version: int
    client_name: str = ""
    client_version: str = ""
    credentials: dict[str, str] = {}
    """{} anonymous, or who the TLS certificate says; {"token": …} a bearer token; {"user": …, "password": …}."""


class Welcome(Head, frozen=True):
    """The broker's answer: the version both speak from here on, and the limits it holds the client to."""

    version: int
    broker_version: str
    cluster_id: str
    session_id: str
    max_frame_bytes: int
    max_channels: int
    idle_timeout_ms: int
    """The broker closes a connection that was silent for so long; send PING in time. 0: never."""


class Ping(Head, frozen=True):
    nonce: int


class Pong(Head, frozen=True):
    nonce: int


class Goodbye(Head, frozen=True):
    """The sender will close. The receiver finishes what it awaits, opens nothing new, says goodbye too, and closes."""

    code: str = "DONE"
    """"DONE", "DRAINING", "IDLE", or an error code."""
    text: str = ""


class Error(Head, frozen=True):
    """On channel 0 the end of the connection; on another channel the end of that channel."""

    code: str
    text: str
    retriable: bool = False


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────


class Request(Head, frozen=True):
    """A call of one verb; `arguments` is a map whose keys the verb defines. Answers may come in any order."""

    ref: int
    verb: str
    arguments: dict[str, Any] = {}


class Response(Head, frozen=True):
    """The answer to REQUEST, UPDATE and COMMIT."""

    ref: int
    failure: Failure | None = None
    result: Any = None


# ── producers ─────────────────────────────────────────────────────────────────────────────────────


class OpenProducer(Head, frozen=True):
    """Opens the channel for publishing. `producer_id` -1 asks for a new identity if `idempotent`."""

    idempotent: bool = True
    producer_id: int = -1
    producer_epoch: int = -1
    stage: str = ""
    """Of a sink (`sink.stage`): what is published is seen when its batch is committed. The answer has the stage's producer."""


class ProducerOpened(Head, frozen=True):
    producer_id: int
    producer_epoch: int
    window_bytes: int
    """The channel's credit: bytes of batches that may be unconfirmed at once (one batch may always be sent)."""


class Publish(Head, frozen=True):
    """One record batch for one partition follows the head. Confirmed by `ref`, in any order (acks 0: never)."""

    ref: int
    topic: str
    partition: int
    acks: int = -1
    """-1 on stable storage, 1 in the page cache, 0 not confirmed."""


class Confirmation(Head, frozen=True):
    ref: int
    base_offset: int
    timestamp: int = -1
    """The append time (ms) where the topic stamps it, else -1."""
    failure: Failure | None = None


class Confirm(Head, frozen=True):
    """What became of PUBLISHes; one frame may confirm many."""

    confirmations: list[Confirmation]


# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────


class Subscribe(Head, frozen=True):
    """Opens the channel for reading. With a group the broker assigns partitions; without, all of them are delivered."""

    selectors: list[Selector]
    push: bool = True
    """True: DELIVER as long as there is credit. False: only as answers to PULL."""
    credit_bytes: int = 0
    """Credit to begin with. Delivery goes on while credit is > 0 and may take it below zero by one DELIVER."""
    max_deliver_bytes: int = 1 << 20
    """Upper bound for the batches in one DELIVER (a larger batch still comes whole)."""
    group: str = ""
    member_id: str = ""
    """"" asks for a new one; a reconnecting member gives its own and keeps its partitions."""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    isolation: str = "read_uncommitted"


class Subscribed(Head, frozen=True):
    member_id: str = ""
    member_epoch: int = -1


class Credit(Head, frozen=True):
    """Adds to the channel's credit."""

    bytes: int


class Pull(Head, frozen=True):
    """Asks for at least one record, at most about `max_records` (the batch that reaches it comes whole)."""

    ref: int
    max_records: int
    max_bytes: int = 1 << 20
    wait_ms: int = 0


class Pulled(Head, frozen=True):
    """Ends the answer to PULL; `records` 0 is an answer too."""

    ref: int
    records: int = 0
    bytes: int = 0


class Deliver(Head, frozen=True):
    """Batches of one partition follow the head. Skip records before `offset`: a batch comes whole."""

    topic: str
    partition: int
    offset: int
    next_offset: int
    high_watermark: int
    ref: int = -1
    """The PULL that it answers, -1 when pushed."""


class Update(Head, frozen=True):
    """Changes what a live subscription reads; answered by RESPONSE."""

    ref: int
    add: list[Selector] = []
    drop: list[str] = []
    """Names or patterns, as they were subscribed."""


class Assigned(Head, frozen=True):
    """Which partitions are delivered from here on, in addition to those assigned before."""

    epoch: int
    added: list[PartitionAt]


class Revoke(Head, frozen=True):
    """These partitions are not delivered any more. A group's member finishes, commits and answers REVOKED."""

    epoch: int
    partitions: list[tuple[str, int]]
    reason: str = ""
    """"" for a rebalance; "DROPPED", "UNKNOWN_TOPIC", "OFFSET_OUT_OF_RANGE", …"""


class Revoked(Head, frozen=True):
    epoch: int
    partitions: list[tuple[str, int]]


class Commit(Head, frozen=True):
    """Commits offsets as the channel's member; answered by RESPONSE when durable."""

    ref: int
    offsets: list[OffsetCommit]


# ── queues ────────────────────────────────────────────────────────────────────────────────────────


class OpenQueue(Head, frozen=True):
    """Opens the channel as a consumer of a queue, whose records are leased to it."""

    queue: str
    consumer_id: str = ""
    """"" asks for a new one; a reconnecting consumer gives its own and may settle what it still holds."""
    subscriber: str = ""
    """Whose part of an "all of" queue it takes; "" for all other queues."""
    prefetch: int = 0
    """Records that this consumer may hold leased; 0: as the queue's policy says."""
    push: bool = True
    """True: LEASED as long as there is credit. False: only as answers to LEASE."""
    credit: int = 0
    """Records that may be pushed to begin with; every pushed record takes one."""
    max_deliver_bytes: int = 1 << 20
    """Upper bound for the batches that one lease of a push brings (a larger batch still comes whole)."""
    create: bool = False
    """Make the queue, with the default policy, if there is none of that name."""


class QueueOpened(Head, frozen=True):
    consumer_id: str
    lease_ms: int
    """How long a lease lasts, counted by the broker from when it leased."""
    prefetch: int = 0
    """Records that this consumer may hold leased; 0: no limit."""
    subscriber: str = ""


class Lease(Head, frozen=True):
    """Asks for records, on a channel that does not push; waits for the first at most `wait_ms`."""

    ref: int
    max_records: int
    max_bytes: int = 1 << 20
    wait_ms: int = 0


class Leased(Head, frozen=True):
    """Records of one partition are leased; their batches follow the head, whole: skip the records that no range names."""

    ref: int
    """The LEASE that it answers, -1 when pushed."""
    topic: str
    partition: int
    lease_ms: int
    """How much is left of the lease."""
    ranges: list[tuple[int, int, int]]
    """First offset, last offset, which delivery of these records it is (from 1); by offset. Credit and LEASE_DONE count offsets: there
    may be one without a record, which is settled with the others."""


class LeaseDone(Head, frozen=True):
    """Ends the answer to LEASE; `records` 0 is an answer too."""

    ref: int
    records: int = 0


class Settlement(Head, frozen=True):
    """One verb for ranges of leased records of one partition."""

    verb: int
    """A `SettleVerb`; an unknown number is answered by a failure."""
    topic: str
    partition: int
    ranges: list[tuple[int, int]]
    """First and last offset."""
    delay_ms: int = -1
    """NACK: until they are ready again, -1 as the queue's policy says. EXTEND: from now on, -1 the queue's lease time."""
    text: str = ""
    """NACK: the error; REJECT: the reason. Kept with a dead letter."""
    delivery: int = 0
    """Of which delivery it is said (as LEASED counted it): a later one to the same consumer is not meant. 0: of whichever there is."""


class Settle(Head, frozen=True):
    """Settles leased records. Takes effect at once and in order; answered by SETTLED when durable. At most 256 KiB."""

    ref: int
    settlements: list[Settlement]


class SettleFailure(Head, frozen=True):
    """A range that is as it was, because not all of its records were leased by this consumer."""

    settlement: int
    """Index in SETTLE."""
    range: int
    """Index among the ranges of that settlement."""
    code: str
    text: str
    retriable: bool = False


class Settled(Head, frozen=True):
    """The answer to SETTLE; a range without a failure is settled, on stable storage."""

    ref: int
    failures: list[SettleFailure] = []


class QueueCredit(Head, frozen=True):
    """Adds to the records that may be pushed."""

    records: int


# ── reading without a channel ─────────────────────────────────────────────────────────────────────


class Fetch(Head, frozen=True):
    """Asks for batches of one partition, by offset. The broker remembers nothing of it."""

    ref: int
    topic: str
    topic_id: str
    """The topic must be this one, not another that was made under its name since; "" for any."""
    partition: int
    offset: int
    max_bytes: int = 1 << 20
    """At most so much, but a batch at least."""
    isolation: str = "read_uncommitted"
    wait_ms: int = 0
    """How long to wait for the first batch where there is none."""


class Fetched(Head, frozen=True):
    """The answer to FETCH; batches follow the head, whole as on disk, or nothing. Skip records before the offset that was asked for."""

    ref: int
    failure: Failure | None = None
    next_offset: int = -1
    """Where to read on."""
    start_offset: int = -1
    """Where the log begins."""
    end_offset: int = -1
    stable_offset: int = -1
    """The first offset of the oldest open transaction; the end where there is none."""
    aborted: list[tuple[int, int]] = []
    """[producer id, first offset] of aborted transactions with records among these, for readers of committed records, who drop them."""


# ── the end of a channel ──────────────────────────────────────────────────────────────────────────


class Close(Head, frozen=True):
    """The client is done with the channel. Unconfirmed publishes are still confirmed and settlements answered before CLOSED; what a
    queue's consumer still holds is ready again at once, and its delivery does not count."""


class Closed(Head, frozen=True):
    """The broker is done with the channel; its number may be used again."""


HEADS: dict[FrameType, type[Head]] = {
    FrameType.HELLO: Hello,
    FrameType.WELCOME: Welcome,
    FrameType.PING: Ping,
    FrameType.PONG: Pong,
    FrameType.GOODBYE: Goodbye,
    FrameType.ERROR: Error,
    FrameType.REQUEST: Request,
    FrameType.RESPONSE: Response,
    FrameType.OPEN_PRODUCER: OpenProducer,
    FrameType.PRODUCER_OPENED: ProducerOpened,
    FrameType.PUBLISH: Publish,
    FrameType.CONFIRM: Confirm,
    FrameType.SUBSCRIBE: Subscribe,
    FrameType.SUBSCRIBED: Subscribed,
    FrameType.CREDIT: Credit,
    FrameType.PULL: Pull,
    FrameType.PULLED: Pulled,
    FrameType.DELIVER: Deliver,
    FrameType.UPDATE: Update,
    FrameType.ASSIGNED: Assigned,
    FrameType.REVOKE: Revoke,
    FrameType.REVOKED: Revoked,
    FrameType.COMMIT: Commit,
    FrameType.CLOSE: Close,
    FrameType.CLOSED: Closed,
    FrameType.OPEN_QUEUE: OpenQueue,
    FrameType.QUEUE_OPENED: QueueOpened,
    FrameType.LEASE: Lease,
    FrameType.LEASED: Leased,
    FrameType.LEASE_DONE: LeaseDone,
    FrameType.SETTLE: Settle,
    FrameType.SETTLED: Settled,
    FrameType.QUEUE_CREDIT: QueueCredit,
    FrameType.FETCH: Fetch,
    FrameType.FETCHED: Fetched,
}
APPENDED: dict[type[Head], tuple[Any, ...]] = {OpenProducer: ("",)}
"""The defaults of fields that were appended after a release. They are not written as long as they say nothing, so that what could be said before has the bytes that it had."""


def written_fields(head: Head) -> Head | tuple[Any, ...]:
    """What of a payload is written."""
    defaults = APPENDED.get(type(head))
    if defaults is None:
        return head
    fields: tuple[Any, ...] = msgspec.structs.astuple(head)
    for default in reversed(defaults):
        if fields[-1] != default:
            break
        fields = fields[:-1]
    return fields


TYPE_OF: dict[type[Head], FrameType] = {head: kind for kind, head in HEADS.items()}
CARRIES_BATCHES = frozenset({FrameType.PUBLISH, FrameType.DELIVER, FrameType.LEASED, FrameType.FETCHED})
