"""All metrics: one row for each. `docs/metrics.md` shows this table; a test compares them.

Names follow Prometheus: base units (seconds, bytes), counters end in `_total` and begin at 0 when
the broker starts. An empty label collects the values of all names beyond the limit
(`MetricsCollector`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"
INFO: Final = "info"


class Metric(NamedTuple):
    """One metric: a family of values, one for each combination of its labels."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str
    is_largest: bool = False
    """True if the largest of several values with the same labels is shown, not their sum."""


_TOPIC: Final = ("topic",)
_PARTITION: Final = ("topic", "partition")
_QUEUE: Final = ("queue",)
_ENDPOINT: Final = ("queue", "endpoint")
_FLOW: Final = ("pipeline", "flow")

# ── the broker ──
BUILD = Metric("sparrow_build_info", INFO, ("version",), "The version that runs.")
START_TIME = Metric(
    "sparrow_start_time_seconds", GAUGE, (), "When the broker was started, in seconds since 1970."
)
CONNECTIONS = Metric("sparrow_connections", GAUGE, ("door",), "Connected clients, by listener.")
REFUSED_CONNECTIONS = Metric(
    "sparrow_refused_connections_total",
    COUNTER,
    ("door", "reason"),
    "Connections that were refused (limit: max_connections, address: the limit of its address, "
    "files: open files) or ended before their login to make room for others (stranger).",
)
SEND_BUDGET = Metric(
    "sparrow_send_budget_used_bytes",
    GAUGE,
    (),
    "Records that are being read for clients or that they have not taken, at all listeners; "
    "send_budget limits it.",
)
FAILED_LOGINS = Metric(
    "sparrow_failed_logins_total",
    COUNTER,
    ("reason",),
    "Logins that failed, at all listeners; by reason: credentials (wrong), waiting (too many logins waited).",
)
AUDIT_EVENTS = Metric(
    "sparrow_audit_events_total",
    COUNTER,
    ("outcome",),
    "Audit events, by outcome: done, refused, failed, unfinished (the client went away).",
)
LOST_AUDIT_EVENTS = Metric(
    "sparrow_audit_lost_events_total",
    COUNTER,
    ("reason",),
    "Audit events that were left out; by reason: limited (too many; a summary counts them), and of "
    "the audit topic alone queue_full and write_failed.",
)
REQUEST_SECONDS = Metric(
    "sparrow_request_seconds",
    HISTOGRAM,
    ("door", "request"),
    "From a request to its response, the wait for the disk or for new records included; requests are "
    "Kafka's APIs, operations of the native protocol and its FETCH, routes of HTTP.",
)
REQUEST_FAILURES = Metric(
    "sparrow_request_failures_total",
    COUNTER,
    ("door", "request"),
    "Requests that failed; Kafka's responses, which may have errors in part, are not counted.",
)
APPEND_SECONDS = Metric(
    "sparrow_append_seconds",
    HISTOGRAM,
    (),
    "From the arrival of a publish at its partition to the page cache; one publish is one or "
    "several batches.",
)
PUBLISH_SECONDS = Metric(
    "sparrow_publish_seconds",
    HISTOGRAM,
    (),
    "From the arrival of a publish with acks=all at its partition to stable storage.",
)
SYNC_SECONDS = Metric(
    "sparrow_sync_seconds",
    HISTOGRAM,
    (),
    "Syncs of logs to stable storage (fdatasync); one serves all that wait.",
)
META_COMMIT_SECONDS = Metric(
    "sparrow_meta_commit_seconds",
    HISTOGRAM,
    (),
    "Commits of the meta store: offsets, checkpoints of queues, and so on.",
)
JOURNAL_SYNC_SECONDS = Metric(
    "sparrow_journal_sync_seconds",
    HISTOGRAM,
    (),
    "Writes of leases and acknowledgements to the journal; one serves all that wait.",
)
DISK_FREE = Metric("sparrow_disk_free_bytes", GAUGE, (), "Room left on the device of the data directory.")
DISK_SIZE = Metric("sparrow_disk_size_bytes", GAUGE, (), "Size of that device.")
DISK_REFUSES = Metric(
    "sparrow_disk_refuses",
    GAUGE,
    (),
    "1 while records are refused because the disk is full or failed, else 0.",
)
CLUSTER_EPOCH = Metric(
    "sparrow_cluster_epoch", GAUGE, (), "Epoch of the shard that this broker owns; in cluster mode only."
)
CLUSTER_COMMITS = Metric(
    "sparrow_cluster_commits_total", COUNTER, (), "Commits in PostgreSQL; in cluster mode only."
)
CLUSTER_UPLOADS = Metric(
    "sparrow_cluster_uploads_total", COUNTER, (), "Objects that were uploaded; in cluster mode only."
)
CLUSTER_UPLOADED_BYTES = Metric(
    "sparrow_cluster_uploaded_bytes_total", COUNTER, (), "Size of these objects; in cluster mode only."
)
CLUSTER_INLINE_BYTES = Metric(
    "sparrow_cluster_inline_bytes_total",
    COUNTER,
    (),
    "Batches that were put into rows of PostgreSQL; in cluster mode only.",
)
CLUSTER_WAITING_BYTES = Metric(
    "sparrow_cluster_waiting_bytes", GAUGE, (), "Bytes that wait to be committed; in cluster mode only."
)
CLUSTER_OBJECTS_AWAY = Metric(
    "sparrow_cluster_objects_away",
    GAUGE,
    (),
    "1 while the object store takes no uploads, else 0; in cluster mode only.",
)
CLUSTER_TAKEOVER_SECONDS = Metric(
    "sparrow_cluster_takeover_seconds",
    GAUGE,
    (),
    "Time of the last takeover, from when the owner before was gone until this broker served clients; in "
    "cluster mode only.",
)
CLUSTER_STANDBYS = Metric(
    "sparrow_cluster_standbys", GAUGE, (), "Brokers that could take over now; in cluster mode only."
)
CLUSTER_STANDBY_LAG = Metric(
    "sparrow_cluster_standby_lag_seconds",
    GAUGE,
    (),
    "Time since PostgreSQL heard of the most recent standby, which keeps no data of its own; in cluster "
    "mode only.",
)
CLUSTER_GARBAGE = Metric(
    "sparrow_cluster_deleted_objects_total",
    COUNTER,
    (),
    "Objects that no commit named any more, and that were deleted; in cluster mode only.",
)
CLUSTER_ORPHANS = Metric(
    "sparrow_cluster_orphans_total",
    COUNTER,
    (),
    "Uploads whose commit never came, and that were deleted; in cluster mode only.",
)
DAMAGED_PARTITIONS = Metric(
    "sparrow_damaged_partitions",
    GAUGE,
    (),
    "Partitions that serve nothing because records that were on stable storage are missing; "
    "`/readyz` says which.",
)
LOG_DAMAGES = Metric(
    "sparrow_log_damages",
    GAUGE,
    (),
    "Ranges of log files that are known to be missing or damaged, those of damaged partitions included.",
)
CORRUPT_READS = Metric(
    "sparrow_corrupt_reads_total",
    COUNTER,
    (),
    "Reads that met damaged bytes on the disk (CORRUPT_BATCH).",
)
TRANSACTIONS = Metric(
    "sparrow_transactional_ids",
    GAUGE,
    ("state",),
    "Transactional ids, by the state of their transaction (Kafka's words).",
)
SINKS = Metric(
    "sparrow_sinks", GAUGE, ("kind",), "Sinks of data pipelines: streams, and single writes (once)."
)
SINK_STAGES = Metric(
    "sparrow_sink_open_stages", GAUGE, (), "Stages of sinks that are neither committed nor dropped."
)
SINK_COMMITS = Metric("sparrow_sink_commits_total", COUNTER, (), "Batches of sinks that were committed.")
SINK_STAGES_ENDED = Metric(
    "sparrow_sink_stages_ended_total",
    COUNTER,
    ("how",),
    "Stages that were committed, aborted (attempts that lost, batches that failed, runs that were "
    "fenced) or expired.",
)
IDEMPOTENCY_KEYS = Metric(
    "sparrow_idempotency_keys",
    GAUGE,
    (),
    "Idempotency keys that are kept; after a start, as far as they are counted.",
)
CORRUPT_BATCHES = Metric(
    "sparrow_corrupt_batches_total",
    COUNTER,
    ("reader", "rule"),
    "Batches with unreadable records that a reader of the broker met, by kind of reader "
    "and its reaction: fail, skip, reject (queues), keep (compaction).",
)

# ── topics ──
TOPICS = Metric("sparrow_topics", GAUGE, (), "Topics.")
PARTITIONS = Metric("sparrow_topic_partitions", GAUGE, _TOPIC, "Partitions of a topic.")
MESSAGES_IN = Metric("sparrow_topic_messages_in_total", COUNTER, _TOPIC, "Messages that were published.")
BYTES_IN = Metric(
    "sparrow_topic_bytes_in_total", COUNTER, _TOPIC, "Bytes of the batches that were published."
)
MESSAGES_OUT = Metric(
    "sparrow_topic_messages_out_total",
    COUNTER,
    _TOPIC,
    "Messages that were read by offset, by subscriptions and fetches; deliveries of queues are "
    "counted by queue.",
)
BYTES_OUT = Metric(
    "sparrow_topic_bytes_out_total", COUNTER, _TOPIC, "Bytes of the batches that were read by offset."
)
TOPIC_MESSAGES = Metric(
    "sparrow_topic_messages",
    GAUGE,
    _TOPIC,
    "Offsets from the start to the end of a topic; compaction leaves holes.",
)
TOPIC_BYTES = Metric("sparrow_topic_size_bytes", GAUGE, _TOPIC, "Bytes of a topic on the disk.")
PARTITION_START = Metric(
    "sparrow_partition_start_offset",
    GAUGE,
    _PARTITION,
    "The first offset that can be read. With detail=partitions.",
)
PARTITION_END = Metric(
    "sparrow_partition_end_offset",
    GAUGE,
    _PARTITION,
    "The offset of the next message. With detail=partitions.",
)
PARTITION_BYTES = Metric(
    "sparrow_partition_size_bytes", GAUGE, _PARTITION, "Bytes of a partition. With detail=partitions."
)

# ── groups ──
GROUPS = Metric("sparrow_groups", GAUGE, ("type", "state"), "Consumer groups, by type and state.")
GROUP_MEMBERS = Metric("sparrow_group_members", GAUGE, ("group",), "Members of a group.")
GROUP_LAG = Metric(
    "sparrow_group_lag",
    GAUGE,
    ("group", "topic"),
    "Messages of a topic behind the offsets that a group committed. The queue of a share group shows "
    "its lag.",
)
PARTITION_LAG = Metric(
    "sparrow_group_partition_lag",
    GAUGE,
    ("group", "topic", "partition"),
    "The same by partition. With detail=partitions.",
)
PARTITION_COMMITTED = Metric(
    "sparrow_group_partition_offset",
    GAUGE,
    ("group", "topic", "partition"),
    "The offset that a group committed. With detail=partitions.",
)

# ── queues ──
QUEUE_MESSAGES = Metric(
    "sparrow_queue_messages",
    GAUGE,
    ("queue", "state"),
    "Messages that are ready, leased, delayed, blocked (by parents or an earlier one of their key) "
    "or moving (to the dead letters); of a queue with subscribers the largest of theirs.",
)
SUBSCRIBER_MESSAGES = Metric(
    "sparrow_queue_subscriber_messages",
    GAUGE,
    ("queue", "subscriber", "state"),
    "The same of each subscriber of a queue that has some.",
)
QUEUE_UNFINISHED = Metric(
    "sparrow_queue_unfinished_messages", GAUGE, _QUEUE, "Messages that are not finished."
)
QUEUE_DEAD = Metric(
    "sparrow_queue_dead_messages", GAUGE, _QUEUE, "Unfinished messages on the dead-letter topic of a queue."
)
QUEUE_OLDEST = Metric(
    "sparrow_queue_oldest_age_seconds",
    GAUGE,
    _QUEUE,
    "Age of the oldest unfinished message; 0 if there is none, or its time is not in memory.",
    is_largest=True,
)
QUEUE_CONSUMERS = Metric("sparrow_queue_consumers", GAUGE, _QUEUE, "Consumers that are connected.")
QUEUE_PAUSED = Metric(
    "sparrow_queue_paused", GAUGE, _QUEUE, "1 while a queue hands out nothing, else 0.", is_largest=True
)
QUEUE_DELIVERIES = Metric(
    "sparrow_queue_deliveries_total",
    COUNTER,
    _QUEUE,
    "Messages that were handed out, again or for the first time.",
)
QUEUE_REDELIVERIES = Metric(
    "sparrow_queue_redeliveries_total", COUNTER, _QUEUE, "Messages that were handed out again."
)
QUEUE_ACKNOWLEDGED = Metric(
    "sparrow_queue_acknowledged_total", COUNTER, _QUEUE, "Messages that were acknowledged."
)
QUEUE_REJECTED = Metric("sparrow_queue_rejected_total", COUNTER, _QUEUE, "Messages that a consumer rejected.")
QUEUE_DEAD_LETTERED = Metric(
    "sparrow_queue_dead_lettered_total",
    COUNTER,
    _QUEUE,
    "Messages that were given up: rejected, or delivered too often.",
)
QUEUE_EXPIRED = Metric("sparrow_queue_expired_total", COUNTER, _QUEUE, "Messages whose time was over.")
QUEUE_DROPPED = Metric(
    "sparrow_queue_dropped_total",
    COUNTER,
    _QUEUE,
    "Messages that were given up where there is no dead-letter topic.",
)
QUEUE_LOST = Metric(
    "sparrow_queue_lost_total", COUNTER, _QUEUE, "Messages that retention deleted before they were finished."
)

# ── webhooks ──
WEBHOOK_DELIVERED = Metric(
    "sparrow_webhook_delivered_total", COUNTER, _ENDPOINT, "Deliveries that an endpoint accepted."
)
WEBHOOK_FAILED = Metric(
    "sparrow_webhook_failed_total", COUNTER, _ENDPOINT, "Deliveries that it did not accept."
)
WEBHOOK_SECONDS = Metric(
    "sparrow_webhook_seconds_total", COUNTER, _ENDPOINT, "Time that all deliveries took together."
)
WEBHOOK_IN_FLIGHT = Metric("sparrow_webhook_in_flight", GAUGE, _ENDPOINT, "Deliveries in progress.")
WEBHOOK_STATE = Metric(
    "sparrow_webhook_state", GAUGE, ("queue", "endpoint", "state"), "1 for the state in which an endpoint is."
)

# ── schedules ──
SCHEDULES = Metric("sparrow_schedules", GAUGE, ("state",), "Schedules that are active, paused or broken.")
SCHEDULE_LATENESS = Metric(
    "sparrow_schedule_lateness_seconds",
    HISTOGRAM,
    (),
    "From the time at which a job of a schedule was due until it is stored.",
)

# ── pipelines ──
PIPELINE_ROWS = Metric(
    "sparrow_pipeline_rows_total",
    COUNTER,
    _FLOW,
    "Rows that a flow took since its run began, as it last reported.",
)
PIPELINE_RATE = Metric("sparrow_pipeline_rows_per_second", GAUGE, _FLOW, "Rows per second in its last batch.")
PIPELINE_BATCH = Metric("sparrow_pipeline_batch_seconds", GAUGE, _FLOW, "Duration of its last batch.")
PIPELINE_LAG = Metric("sparrow_pipeline_lag", GAUGE, _FLOW, "Records that it has still to read.")
PIPELINE_STATE = Metric(
    "sparrow_pipeline_state", GAUGE, (*_FLOW, "state"), "1 for the state in which a flow is."
)

ALL: Final[tuple[Metric, ...]] = tuple(each for each in list(vars().values()) if isinstance(each, Metric))
