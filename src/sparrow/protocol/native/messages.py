"""The payloads of the native protocol, one class per frame type.

Each payload is a msgpack array: fields by position, so that a later version appends fields with
defaults and an older peer ignores fields that it does not know. A frame with the flag BATCHES
carries raw record batches behind its head. `rules.py` defines which side may send what, and when;
`docs/protocol.md` shows the bytes.

Conventions: offsets, sizes and times are integers; times in ms; `partition` -1 means "not chosen";
-1 means "none" for offsets and timestamps. A `ref` is chosen by the client, unique among its
unanswered calls on that channel, and comes back in the response.
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
    """The operation of a `Settlement` on leased records."""

    ACK = 0
    """The record is done: never delivered again."""
    NACK = 1
    """The record failed: delivered again after a delay, or moved to the dead letters at the
    delivery limit.
    """
    REJECT = 2
    """The record becomes a dead letter at once."""
    EXTEND = 3
    """The lease ends later."""
    RETURN = 4
    """The record was unused: ready again at once, and this delivery does not count."""


class Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all payloads."""


# ── values that several payloads have ─────────────────────────────────────────────────────


class Failure(Head, frozen=True):
    """An error in the protocol: see `sparrow.base.errors` for the codes."""

    code: str
    text: str
    retriable: bool = False


class Start(Head, frozen=True):
    """The start position where there is neither a committed offset nor an explicit one."""

    at: str = "end"
    """"beginning", "end", "offset" or "timestamp"."""
    value: int = -1
    """The offset, or the timestamp in ms."""


class Selector(Head, frozen=True):
    """A subscribed topic by name, or all topics that match a pattern (`*` any run of characters,
    `?` one).
    """

    topic: str
    is_pattern: bool = False
    start: Start = Start()
    offsets: dict[int, int] = {}
    """Explicit positions by partition; they take precedence over committed offsets and `start`. A
    client resumes with them.
    """


class PartitionAt(Head, frozen=True):
    """A partition and the offset that will be delivered first."""

    topic: str
    partition: int
    offset: int


class OffsetCommit(Head, frozen=True):
    """A committed offset. `offset` is the next one to read, as in Kafka."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


# ── the connection ────────────────────────────────────────────────────────────────────────────────


class Hello(Head, frozen=True):
    """The first frame of a client."""

    protocol: str
    min_version: int
    max_version: int
    client_name: str = ""
    client_version: str = ""
    credentials: dict[str, str] = {}
    """{}: anonymous, or the subject of the TLS certificate; {"token": …}: a bearer token; {"user":
    …, "password": …}.
    """


class Welcome(Head, frozen=True):
    """The broker's response to HELLO: the version used from here on, and the limits that the client
    must keep.
    """

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
    """Announcement that the sender will close. The receiver finishes what it awaits, opens nothing
    new, says goodbye too, and closes.
    """

    code: str = "DONE"
    """"DONE", "DRAINING", "IDLE", or an error code."""
    text: str = ""
    address: str = ""
    """Host and port of the broker that serves instead, where the sender knows it."""


class Error(Head, frozen=True):
    """The end of the connection on channel 0; on another channel the end of that channel."""

    code: str
    text: str
    retriable: bool = False


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────


class Request(Head, frozen=True):
    """A call of one operation; `arguments` is a map whose keys the operation defines. Responses may
    come in any order.
    """

    ref: int
    verb: str
    arguments: dict[str, Any] = {}


class Response(Head, frozen=True):
    """The response to REQUEST, UPDATE and COMMIT."""

    ref: int
    failure: Failure | None = None
    result: Any = None


# ── producers ─────────────────────────────────────────────────────────────────────────────────────


class OpenProducer(Head, frozen=True):
    """Opening of the channel for publishing. `producer_id` -1 requests a new identity if
    `idempotent`.
    """

    idempotent: bool = True
    producer_id: int = -1
    producer_epoch: int = -1
    stage: str = ""
    """Stage of a sink (`sink.stage`): published records become visible when its batch is committed.
    The response has the stage's producer.
    """


class ProducerOpened(Head, frozen=True):
    producer_id: int
    producer_epoch: int
    window_bytes: int
    """The channel's credit: bytes of batches that may be unconfirmed at once (one batch may always
    be sent).
    """


class Publish(Head, frozen=True):
    """A record batch for one partition, which follows the head. Confirmed by `ref`, in any order
    (acks 0: never).
    """

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
    """Results of PUBLISHes; one frame may confirm many."""

    confirmations: list[Confirmation]


# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────


class Subscribe(Head, frozen=True):
    """Opening of the channel for reading. With a group the broker assigns partitions; without, all
    of them are delivered.
    """

    selectors: list[Selector]
    push: bool = True
    """True: DELIVER as long as there is credit. False: only as response to PULL."""
    credit_bytes: int = 0
    """Initial credit. Delivery continues while credit is > 0 and may take it below zero by one
    DELIVER.
    """
    max_deliver_bytes: int = 1 << 20
    """Upper bound for the batches in one DELIVER (a larger batch still comes whole)."""
    group: str = ""
    member_id: str = ""
    """"" requests a new one; a reconnecting member gives its own and keeps its partitions."""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    isolation: str = "read_uncommitted"


class Subscribed(Head, frozen=True):
    member_id: str = ""
    member_epoch: int = -1


class Credit(Head, frozen=True):
    """An addition to the channel's credit."""

    bytes: int


class Pull(Head, frozen=True):
    """A request for at least one record, at most about `max_records` (the batch that reaches it
    comes whole).
    """

    ref: int
    max_records: int
    max_bytes: int = 1 << 20
    wait_ms: int = 0


class Pulled(Head, frozen=True):
    """The end of the response to PULL; `records` may be 0."""

    ref: int
    records: int = 0
    bytes: int = 0


class Deliver(Head, frozen=True):
    """Delivered batches of one partition, which follow the head. Skip records before `offset`: a
    batch comes whole.
    """

    topic: str
    partition: int
    offset: int
    next_offset: int
    high_watermark: int
    ref: int = -1
    """The PULL that it responds to, -1 when pushed."""


class Update(Head, frozen=True):
    """A change of the selectors of a live subscription; the response is a RESPONSE."""

    ref: int
    add: list[Selector] = []
    drop: list[str] = []
    """Names or patterns, as they were subscribed."""


class Assigned(Head, frozen=True):
    """Partitions that are delivered from here on, in addition to those assigned before."""

    epoch: int
    added: list[PartitionAt]


class Revoke(Head, frozen=True):
    """Partitions that are not delivered any more. A group's member finishes, commits and responds
    with REVOKED.
    """

    epoch: int
    partitions: list[tuple[str, int]]
    reason: str = ""
    """"" for a rebalance; "DROPPED", "UNKNOWN_TOPIC", "OFFSET_OUT_OF_RANGE", …"""


class Revoked(Head, frozen=True):
    epoch: int
    partitions: list[tuple[str, int]]


class Commit(Head, frozen=True):
    """A commit of offsets as the channel's member; the response is a RESPONSE when they are
    durable.
    """

    ref: int
    offsets: list[OffsetCommit]


# ── queues ────────────────────────────────────────────────────────────────────────────────────────


class OpenQueue(Head, frozen=True):
    """Opening of the channel as a consumer of a queue, whose records are leased to it."""

    queue: str
    consumer_id: str = ""
    """"" requests a new one; a reconnecting consumer gives its own and may settle its leases."""
    subscriber: str = ""
    """The subscriber of an "all of" queue whose records are leased; "" for all other queues."""
    prefetch: int = 0
    """Records that this consumer may have leased; 0: the queue's policy decides."""
    push: bool = True
    """True: LEASED as long as there is credit. False: only as response to LEASE."""
    credit: int = 0
    """Records that may be pushed initially; every pushed record takes one."""
    max_deliver_bytes: int = 1 << 20
    """Upper bound for the batches that one lease of a push brings (a larger batch still comes
    whole).
    """
    create: bool = False
    """Create the queue, with the default policy, if there is none of that name."""


class QueueOpened(Head, frozen=True):
    consumer_id: str
    lease_ms: int
    """Duration of a lease, counted by the broker from when it leased."""
    prefetch: int = 0
    """Records that this consumer may have leased; 0: no limit."""
    subscriber: str = ""


class Lease(Head, frozen=True):
    """A request for records, on a channel that does not push; waits for the first at most
    `wait_ms`.
    """

    ref: int
    max_records: int
    max_bytes: int = 1 << 20
    wait_ms: int = 0


class Leased(Head, frozen=True):
    """Leased records of one partition; their batches follow the head, whole: skip the records that
    no range names.
    """

    ref: int
    """The LEASE that it responds to, -1 when pushed."""
    topic: str
    partition: int
    lease_ms: int
    """Remaining duration of the lease."""
    ranges: list[tuple[int, int, int]]
    """First offset, last offset, number of this delivery of the records (from 1); by offset. Credit
    and LEASE_DONE count offsets: an offset may be without a record, and is settled with the others.
    """


class LeaseDone(Head, frozen=True):
    """The end of the response to LEASE; `records` may be 0."""

    ref: int
    records: int = 0


class Settlement(Head, frozen=True):
    """One operation on ranges of leased records of one partition."""

    verb: int
    """A `SettleVerb`; an unknown number results in a failure."""
    topic: str
    partition: int
    ranges: list[tuple[int, int]]
    """First and last offset."""
    delay_ms: int = -1
    """NACK: until the records are ready again, -1: the queue's policy decides. EXTEND: from now on,
    -1: the queue's lease time.
    """
    text: str = ""
    """NACK: the error; REJECT: the reason. Kept with a dead letter."""
    delivery: int = 0
    """The delivery that is settled (as LEASED counted it): a later one to the same consumer is not
    affected. 0: any.
    """


class Settle(Head, frozen=True):
    """Settlements of leased records. They take effect at once and in order; SETTLED responds when
    they are durable. At most 256 KiB.
    """

    ref: int
    settlements: list[Settlement]


class SettleFailure(Head, frozen=True):
    """A range that is unchanged, because not all of its records were leased by this consumer."""

    settlement: int
    """Index of the settlement in SETTLE."""
    range: int
    """Index of the range in that settlement."""
    code: str
    text: str
    retriable: bool = False


class Settled(Head, frozen=True):
    """The response to SETTLE; a range without a failure is settled, on stable storage."""

    ref: int
    failures: list[SettleFailure] = []


class QueueCredit(Head, frozen=True):
    """An addition to the records that may be pushed."""

    records: int


# ── reading without a channel ─────────────────────────────────────────────────────────────────────


class Fetch(Head, frozen=True):
    """A request for batches of one partition, by offset. The broker keeps no state of it."""

    ref: int
    topic: str
    topic_id: str
    """Required id of the topic, so that another topic created under its name since is refused; ""
    for any.
    """
    partition: int
    offset: int
    max_bytes: int = 1 << 20
    """Limit of the batches; at least one batch is sent."""
    isolation: str = "read_uncommitted"
    wait_ms: int = 0
    """Longest wait for the first batch."""


class Fetched(Head, frozen=True):
    """The response to FETCH; batches follow the head, whole as on disk, or nothing. Skip records
    before the requested offset.
    """

    ref: int
    failure: Failure | None = None
    next_offset: int = -1
    """The offset of the next read."""
    start_offset: int = -1
    """The first offset of the log."""
    end_offset: int = -1
    stable_offset: int = -1
    """The first offset of the oldest open transaction; the log's end if there is none."""
    aborted: list[tuple[int, int]] = []
    """[producer id, first offset] of aborted transactions with records in these batches, for
    readers of committed records, who drop them.
    """


# ── the end of a channel ──────────────────────────────────────────────────────────────────────────


class Close(Head, frozen=True):
    """The client's end of the channel. Unconfirmed publishes are still confirmed and settlements
    answered before CLOSED; records that are leased to a queue's consumer are ready again at once,
    and their delivery does not count.
    """


class Closed(Head, frozen=True):
    """The broker's end of the channel; its number may be used again."""


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
APPENDED: dict[type[Head], tuple[Any, ...]] = {Goodbye: ("",), OpenProducer: ("",)}
"""Defaults of fields that were appended after a release. A field with its default is not written,
so that older messages keep their bytes.
"""


def written_fields(head: Head) -> Head | tuple[Any, ...]:
    """Return the fields of a payload that are written."""
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
