"""Results of administrative calls: frozen values with the field names of `docs/protocol.md`."""

from __future__ import annotations

from typing import Any

import msgspec

from sparrow.records.record import Record


class Result(msgspec.Struct, frozen=True):
    """Base of the results; fields that a newer broker adds are ignored."""


class PartitionDescription(Result, frozen=True):
    """A partition; its records have the offsets `start_offset` to `end_offset` - 1."""

    partition: int
    start_offset: int
    end_offset: int
    bytes: int


class ConfigEntry(Result, frozen=True):
    """One setting of a topic: its value, its default, and where the value was set (`source`)."""

    name: str
    value: str
    default: str = ""
    source: str = ""
    unit: str = ""
    help: str = ""


class TopicDescription(Result, frozen=True):
    """A topic. Lists of topics leave out expensive fields: `config`, and sometimes `partitions`."""

    name: str
    id: str
    partition_count: int
    partitions: list[PartitionDescription] = []
    config: list[ConfigEntry] = []


class PartitionOffset(Result, frozen=True, array_like=True):
    """An offset of a partition; `timestamp` (ms) is -1 unless a time was asked for."""

    partition: int
    offset: int
    timestamp: int = -1


class RemovedBatch(Result, frozen=True):
    """A batch whose records were removed."""

    base_offset: int
    last_offset: int
    record_count: int
    """Number of records by its header."""
    size_bytes: int
    reason: str
    """The reason why its records could not be read; "" if they could."""


class UserListing(Result, frozen=True):
    """A user: (SASL mechanism, iterations) for each credential."""

    name: str
    credentials: list[tuple[str, int]]


class GroupListing(Result, frozen=True):
    """A group in a list. `type` is its protocol: "sparrow", or Kafka's "classic" and "consumer"."""

    group: str
    state: str
    members: int
    type: str = "sparrow"


class MemberDescription(Result, frozen=True):
    """A member of a group and its partitions (topic, partition)."""

    member_id: str
    client_name: str = ""
    topics: list[str] = []
    partitions: list[tuple[str, int]] = []


class GroupPosition(Result, frozen=True):
    """A group's position in a partition; `lag` is the number of records after the committed
    offset.
    """

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
    """A rule that allows or denies a principal an operation on resources, in Kafka's words.

    `resource_type` is Topic, Group, Cluster, TransactionalId, DelegationToken or User. `name` is a
    name, "*" for all, or with `pattern_type` "Prefixed" the beginning of names. `principal` is
    "User:alice", or "User:*" for everybody; `host` an address or "*".
    """

    resource_type: str
    name: str
    principal: str
    operation: str
    permission: str = "Allow"
    pattern_type: str = "Literal"
    host: str = "*"


class Quota(Result, frozen=True):
    """Limits of a user, a client ID, both, or an address.

    `entity`: type ("user", "client-id", "ip") → name, None for the default of the type. `values`:
    setting → number.
    """

    entity: dict[str, str | None]
    values: dict[str, float]


class QueueConsumerListing(Result, frozen=True):
    """A consumer of a queue, and the number of records it has leased. `subscriber` is set in an
    "all of" queue.
    """

    consumer_id: str
    client_name: str = ""
    subscriber: str = ""
    leased: int = 0


class SubscriberStatistics(Result, frozen=True):
    """Unfinished records of one subscriber of an "all of" queue, by state."""

    ready: int = 0
    leased: int = 0
    delayed: int = 0
    blocked: int = 0


class QueueStatistics(Result, frozen=True):
    """Statistics of a queue, in records: current numbers, then counts since the broker started.

    A current number of an "all of" queue is the largest of its subscribers'.
    """

    ready: int = 0
    """Includes records that the queue has not read yet, some of which may prove delayed or
    blocked.
    """
    leased: int = 0
    delayed: int = 0
    """Waiting for a time: `deliver-at`, or the delay after a failed delivery."""
    blocked: int = 0
    """Waiting for unfinished parents, or for an earlier record with the same key."""
    moving: int = 0
    """Being written to the dead-letter topic."""
    unfinished: int = 0
    """The sum of all these."""
    dead: int = 0
    """Unfinished records on the dead-letter topic."""
    oldest_ms: int = -1
    """Age of the oldest unfinished record; -1: there is none, or its age is not known without
    reading from the disk.
    """
    oldest_by_priority: dict[int, int] = {}
    """Age in ms of the oldest ready record of each priority."""
    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    rejected: int = 0
    dead_lettered: int = 0
    expired: int = 0
    dropped: int = 0
    """Given up in a queue without a dead-letter topic."""
    lost: int = 0
    """Deleted by retention before they were finished."""
    published_rate: float = 0.0
    """Per second, averaged over about ten seconds."""
    delivered_rate: float = 0.0
    acknowledged_rate: float = 0.0
    consumers: list[QueueConsumerListing] = []
    subscribers: dict[str, SubscriberStatistics] = {}
    """Statistics per subscriber of an "all of" queue."""


class QueueDescription(Result, frozen=True):
    """A queue: a subscription to `topics` that keeps a state for each record. `kind` is "queue",
    "share" (a Kafka share group) or "dead".

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
    """A record with its state in a queue."""

    state: str = ""
    """ "ready", "leased", "delayed", "blocked" or "moving"."""
    delivery_count: int = 0
    priority: int = 4
    consumer: str = ""
    """The consumer that has it leased, or had it last."""
    deliver_at_ms: int = 0
    """Earliest delivery, ms since the epoch; 0: the publisher set none."""
    error: str = ""
    """Error of the last delivery."""


class DeadLetter(Record, frozen=True, gc=False):
    """A record that a queue gave up, as stored in the dead-letter topic, and the reason.
    `timestamp` is the time at which it was given up.

    Times are ms since the epoch; -1 where a time or a number is not known.
    """

    state: str = ""
    """State in the queue of the dead-letter topic: "ready", "leased", "delayed", "blocked" or
    "moving" (being sent back).
    """
    reason: str = ""
    """ "DELIVERY_LIMIT", "REJECTED", "PARENT_FAILED", "PARENT_MISSING", "PARENT_CYCLE"."""
    error: str = ""
    """The last error's text, or the reason of the rejection."""
    delivery_count: int = -1
    subscriber: str = ""
    origin_topic: str = ""
    origin_partition: int = -1
    origin_offset: int = -1
    origin_timestamp: int = -1
    """Timestamp of the original record."""
    first_delivery_ms: int = -1
    last_delivery_ms: int = -1


class RedriveProgress(Result, frozen=True):
    """Progress of a redrive: records sent back, skipped because they do not match, and failed to
    move. `error`: why it ended early.
    """

    moved: int = 0
    skipped: int = 0
    failed: int = 0
    is_running: bool = False
    error: str = ""


class WebhookStatistics(Result, frozen=True):
    """Statistics of a webhook. Counts are since the broker started; times are ms since the epoch,
    -1: never.
    """

    state: str = "waiting"
    """ "delivering", "held" (it asked for time), "failing" (a probe now and then), "paused",
     "refused" (its owner may not read any more), "waiting".
    """
    until_ms: int = -1
    """Time of the next attempt, if it waits for one."""
    attempts: int = 0
    delivered: int = 0
    """Accepted deliveries."""
    failed: int = 0
    """Attempts that were not accepted."""
    returned: int = 0
    """Records that were released without an attempt that counts."""
    throttled: int = 0
    """Attempts whose response had a Retry-After."""
    pauses: int = 0
    """Number of pauses after repeated failures."""
    in_flight: int = 0
    consecutive_failures: int = 0
    last_error: str = ""
    last_error_ms: int = -1
    last_success_ms: int = -1
    seconds: float = 0.0
    """Total duration of all attempts."""


class WebhookDescription(Result, frozen=True):
    """A webhook: a subscriber of a queue that is a URL. `settings` has every setting by name but
    the secrets; see `docs/webhooks.md`.
    """

    queue: str
    name: str
    settings: dict[str, Any]
    secrets: list[int] = []
    """For each secret the time until which it signs (ms since the epoch), the newest first; 0: no
    limit.
    """
    owner: str = ""
    is_trusted: bool = False
    is_paused: bool = False
    paused_because: str = ""
    created_ms: int = -1
    statistics: WebhookStatistics = WebhookStatistics()
    secret: str = ""
    """The secret that was just generated; it is not shown again."""


class StageDescription(Result, frozen=True):
    """Uncommitted records that one task of a data pipeline has written of a batch."""

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
    """Time until the stage is dropped unless its task reports again."""
    partitions: list[tuple[str, int]] = []


class SinkDescription(Result, frozen=True):
    """A sink of data pipelines: its owner and its progress. `last_batch` -1: no batch was committed
    yet.
    """

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


class ReloadedConfig(Result, frozen=True):
    """The result of `Admin.reload_config`: keys of options that took effect, and of those that need
    a restart.
    """

    loaded: list[str] = []
    needs_restart: list[str] = []


class BrokerDescription(Result, frozen=True):
    """A broker. `statistics` has all fields of its report, including these."""

    version: str
    cluster_id: str
    uptime_ms: int
    topics: int = 0
    partitions: int = 0
    connections: int = 0
    statistics: dict[str, Any] = {}
