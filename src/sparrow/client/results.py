"""What administrative calls return: frozen values with the field names of `docs/protocol.md`."""

from __future__ import annotations

from typing import Any

import msgspec

from sparrow.records.record import Record


class Result(msgspec.Struct, frozen=True):
    """Base; fields that a newer broker adds are ignored."""


class PartitionDescription(Result, frozen=True):
    """A partition's records have the offsets `start_offset` to `end_offset` - 1."""

    partition: int
    start_offset: int
    end_offset: int
    bytes: int


class ConfigEntry(Result, frozen=True):
    """One setting of a topic: what it is, what it would be by itself, and who said so (`source`)."""

    name: str
    value: str
    default: str = ""
    source: str = ""
    unit: str = ""
    help: str = ""


class TopicDescription(Result, frozen=True):
    """A topic. Lists of topics leave out what costs much: `config`, and maybe `partitions`."""

    name: str
    id: str
    partition_count: int
    partitions: list[PartitionDescription] = []
    config: list[ConfigEntry] = []


class PartitionOffset(Result, frozen=True, array_like=True):
    """An offset of a partition; `timestamp` (ms) is -1 where none was asked for."""

    partition: int
    offset: int
    timestamp: int = -1


class UserListing(Result, frozen=True):
    """A user: (SASL mechanism, iterations) for each credential."""

    name: str
    credentials: list[tuple[str, int]]


class GroupListing(Result, frozen=True):
    """A group in a list. `type`: how its members share: "sparrow", or Kafka's "classic" and "consumer"."""

    group: str
    state: str
    members: int
    type: str = "sparrow"


class MemberDescription(Result, frozen=True):
    """A member of a group and the partitions (topic, partition) that it has."""

    member_id: str
    client_name: str = ""
    topics: list[str] = []
    partitions: list[tuple[str, int]] = []


class GroupPosition(Result, frozen=True):
    """How far a group has come in a partition; `lag` is how many records are behind the committed offset."""

    topic: str
    partition: int
    offset: int
    end_offset: int = -1
    lag: int = -1
    metadata: str = ""


class GroupDescription(Result, frozen=True):
    """A group with its members and committed offsets."""

    group: str
    state: str
    epoch: int = -1
    members: list[MemberDescription] = []
    offsets: list[GroupPosition] = []
    type: str = "sparrow"


class CommittedOffset(Result, frozen=True, array_like=True):
    """A committed offset: the next one that the group reads."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


class AccessRule(Result, frozen=True):
    """Who may (or may not) do what to which resources, in Kafka's words.

    `resource_type` is Topic, Group, Cluster, TransactionalId, DelegationToken or User; `name` a name, "*" for all, or with
    `pattern_type` "Prefixed" what names begin with. `principal` is "User:alice", or "User:*" for everybody; `host` an address or "*".
    """

    resource_type: str
    name: str
    principal: str
    operation: str
    permission: str = "Allow"
    pattern_type: str = "Literal"
    host: str = "*"


class Quota(Result, frozen=True):
    """Limits of a user, a client id, both, or an address.

    `entity`: type ("user", "client-id", "ip") → name, None for the default of the type. `values`: setting → number.
    """

    entity: dict[str, str | None]
    values: dict[str, float]


class QueueConsumerListing(Result, frozen=True):
    """Who consumes from a queue, and how many records it holds leased. `subscriber`: of an "all of" queue."""

    consumer_id: str
    client_name: str = ""
    subscriber: str = ""
    leased: int = 0


class SubscriberStatistics(Result, frozen=True):
    """What one subscriber of an "all of" queue has still to do, in records."""

    ready: int = 0
    leased: int = 0
    delayed: int = 0
    blocked: int = 0


class QueueStatistics(Result, frozen=True):
    """Where a queue stands, in records: what there is now, then what was counted since the broker started.

    Of an "all of" queue a number of now is the largest of its subscribers'.
    """

    ready: int = 0
    """With those that the queue has not looked at yet, which may turn out to be delayed or blocked."""
    leased: int = 0
    delayed: int = 0
    """A time has to pass: `deliver-at`, or the delay after a failed delivery."""
    blocked: int = 0
    """By parents that are not finished, or by an earlier record of their key."""
    moving: int = 0
    """On their way to the dead letters."""
    unfinished: int = 0
    """All of these together."""
    dead: int = 0
    """Unfinished records on the dead-letter topic."""
    oldest_ms: int = -1
    """Age of the oldest unfinished record; -1: there is none, or its age is not known without reading from the disk."""
    oldest_by_priority: dict[int, int] = {}
    """Age of the oldest ready record of each priority."""
    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    rejected: int = 0
    dead_lettered: int = 0
    expired: int = 0
    dropped: int = 0
    """Could not be handled, and there is no dead-letter topic."""
    lost: int = 0
    """Deleted by retention before they were finished."""
    published_rate: float = 0.0
    """Per second, over about the last ten."""
    delivered_rate: float = 0.0
    acknowledged_rate: float = 0.0
    consumers: list[QueueConsumerListing] = []
    subscribers: dict[str, SubscriberStatistics] = {}
    """Of an "all of" queue."""


class QueueDescription(Result, frozen=True):
    """A queue: a subscription to `topics` that remembers each record. `kind` is "queue", "share" (a share group of Kafka) or "dead".

    `policy` has every setting by name; see `docs/queues.md`.
    """

    name: str
    id: str
    kind: str
    topics: list[str]
    policy: dict[str, Any]
    is_paused: bool = False
    statistics: QueueStatistics = QueueStatistics()


class PeekedRecord(Record, frozen=True, gc=False):
    """A record as its queue sees it."""

    state: str = ""
    """ "ready", "leased", "delayed", "blocked" or "moving"."""
    delivery_count: int = 0
    priority: int = 4
    consumer: str = ""
    """Who has it leased, or had it last."""
    deliver_at_ms: int = 0
    """Not delivered before, ms since the epoch; 0: its publisher named no time."""
    error: str = ""
    """What went wrong the last time."""


class RedriveProgress(Result, frozen=True):
    """How far a redrive has come: records sent back, left alone because they do not match, and failed to move. `error`: why it ended early."""

    moved: int = 0
    skipped: int = 0
    failed: int = 0
    is_running: bool = False
    error: str = ""


class WebhookStatistics(Result, frozen=True):
    """How a webhook does. Counts are since the broker started; times are ms since the epoch, -1: never."""

    state: str = "waiting"
    """ "delivering", "held" (it asked for time), "failing" (a probe now and then), "paused", "refused" (its owner may not read any more), "waiting"."""
    until_ms: int = -1
    """When the next delivery is tried, where it waits for a time."""
    attempts: int = 0
    delivered: int = 0
    """Accepted."""
    failed: int = 0
    """Attempts that were not accepted."""
    returned: int = 0
    """Records that were given back without an attempt that counts."""
    throttled: int = 0
    """Attempts that were answered with a Retry-After."""
    pauses: int = 0
    """How often it failed so often that it was paused."""
    in_flight: int = 0
    consecutive_failures: int = 0
    last_error: str = ""
    last_error_ms: int = -1
    last_success_ms: int = -1
    seconds: float = 0.0
    """That all attempts took together."""


class WebhookDescription(Result, frozen=True):
    """A webhook: a subscriber of a queue that is a URL. `settings` has every setting by name but the secrets; see `docs/webhooks.md`."""

    queue: str
    name: str
    settings: dict[str, Any]
    secrets: list[int] = []
    """Until when (ms since the epoch) each of its secrets signs, the newest first; 0: for good."""
    owner: str = ""
    is_trusted: bool = False
    is_paused: bool = False
    paused_because: str = ""
    created_ms: int = -1
    statistics: WebhookStatistics = WebhookStatistics()
    secret: str = ""
    """The one that was made just now; it is not shown again."""


class StageDescription(Result, frozen=True):
    """What one task of a data pipeline has written of a batch that is not committed."""

    stage: str
    run: str
    batch: int
    task: int
    attempt: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    opened_ms: int
    left_ms: int
    """How long it is kept without a sign of life."""
    partitions: list[tuple[str, int]] = []


class SinkDescription(Result, frozen=True):
    """A sink of data pipelines: whose it is, and how far. `last_batch` -1: none was committed yet."""

    sink: str
    query: str
    kind: str
    """"stream", or "once" for a single write."""
    run: str
    epoch: int
    last_batch: int
    updated_ms: int
    open_stages: int = 0
    past_runs: list[str] = []
    stages: list[StageDescription] = []


class BrokerDescription(Result, frozen=True):
    """A broker. `statistics` has everything that it tells, these fields included."""

    version: str
    cluster_id: str
    uptime_ms: int
    topics: int = 0
    partitions: int = 0
    connections: int = 0
    statistics: dict[str, Any] = {}
