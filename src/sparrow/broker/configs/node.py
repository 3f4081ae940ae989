"""The configuration of a broker as Kafka's tools see it: Kafka's names with Sparrow's actual
values.

Four sorts of names:

* defaults of topics (`log.retention.ms` is the `retention.ms` of a topic that does not set it).
  They can be changed at run time, for this broker (resource "1") or as cluster default (resource
  ""), and are stored;
* values of this broker (`num.partitions`, `listeners`). They come from its own configuration and
  are read-only here;
* rules for share groups' dead letters (`errors.deadletterqueue.…`, KIP-1191). They can be changed,
  too;
* names that Kafka's tools change at run time and that have no meaning here (`num.io.threads`). They
  are stored and have no effect.

Precedence as in Kafka (KIP-226): this broker's dynamic value, the dynamic cluster default, the
static configuration, the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparrow.broker.config import (
    DELIVERY_COUNT_BOUNDS,
    HEARTBEAT_BOUNDS,
    MAX_RECORD_LOCKS_BOUNDS,
    RECORD_LOCK_BOUNDS,
    SESSION_BOUNDS,
    BrokerConfig,
)
from sparrow.broker.configs.group import GROUP_CONFIGS
from sparrow.broker.configs.topic import DECLARATIONS as TOPIC_CONFIGS
from sparrow.broker.configs.values import (
    BOOLEAN,
    LIST,
    MAX_INT,
    MAX_LONG,
    STRING,
    fraction,
    integer,
    long,
)

if TYPE_CHECKING:
    from sparrow.base.settings import Kind

DEAD_LETTER_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
DEAD_LETTER_AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One configuration of a broker.

    Args:
        default: None if Kafka has no default, too.
        is_dynamic: True if it can be changed at run time.
        topic: the configuration of topics that it is the default of, or "".
        source: the field of `BrokerConfig` that it shows, or "".
        divisor: converts a field in ms to this configuration's unit.
    """

    name: str
    default: str | None
    kind: Kind[Any]
    help: str
    is_dynamic: bool = False
    topic: str = ""
    source: str = field(default="", kw_only=True)
    divisor: int = field(default=1, kw_only=True)


_SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    # The first name applies at run time; those of larger units show the default, as in Kafka.
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "durability": (("durability", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "record.validation": (("record.validation", 1),),
    "record.validation.max.bytes": (("record.validation.max.bytes", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}


def _topic_defaults() -> list[NodeConfig]:
    rows = []
    for topic_name, names in _SYNONYMS.items():
        declared = TOPIC_CONFIGS[topic_name]
        for name, scale in names:
            is_last, is_first = name == names[-1][0], name == names[0][0]
            rows.append(
                NodeConfig(
                    name,
                    (declared.default if scale == 1 else str(int(declared.default) // scale))
                    if is_last
                    else None,
                    declared.kind if scale == 1 else integer(-1),
                    declared.help,
                    is_first,
                    topic_name if is_first else "",
                )
            )
    return rows


def _shown(name: str, source: str, kind: Kind[Any], help_: str, divisor: int = 1) -> NodeConfig:
    """Return a row that shows a field of `BrokerConfig`."""
    value = getattr(BrokerConfig(), source)
    return NodeConfig(name, _text(value, divisor), kind, help_, source=source, divisor=divisor)


def _text(value: object, divisor: int) -> str:
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, frozenset):
        return ";".join(sorted(value))
    return str(value // divisor) if isinstance(value, int) else str(value)


_KEPT = "Kept for Kafka's tools; it has no effect here."
_ONE = "There is one broker."
_INTEGER: Final = integer(-1)

_VALUES: Final = (
    NodeConfig("node.id", "1", integer(0), "The number of this broker."),
    NodeConfig("broker.id", "1", integer(-1), "The number of this broker."),
    NodeConfig("broker.rack", None, STRING, _ONE),
    NodeConfig("process.roles", "broker,controller", LIST, _ONE),
    NodeConfig("log.dirs", None, STRING, "The data directory."),
    NodeConfig("listeners", None, LIST, "Addresses at which this broker listens."),
    NodeConfig("advertised.listeners", None, LIST, "Addresses that clients get to connect to."),
    NodeConfig("socket.request.max.bytes", "104857600", integer(1), "Largest request."),
    NodeConfig("connections.max.idle.ms", "600000", long(0), "A connection silent for so long is closed."),
    NodeConfig("max.connections", "10000", integer(0), "Connections at a time; more are refused."),
    NodeConfig("fetch.max.bytes", "57671680", integer(1024), "Most bytes that one fetch returns."),
    NodeConfig("max.incremental.fetch.session.cache.slots", "1000", integer(0), "Fetch sessions kept."),
    NodeConfig("max.request.partition.size.limit", "2000", integer(1), "Most partitions described at once."),
    NodeConfig("default.replication.factor", "1", integer(1), _ONE),
    NodeConfig("offsets.topic.replication.factor", "1", integer(1), _ONE),
    NodeConfig("transaction.state.log.replication.factor", "1", integer(1), _ONE),
    NodeConfig("transaction.state.log.min.isr", "1", integer(1), _ONE),
    NodeConfig("auto.leader.rebalance.enable", "false", BOOLEAN, _ONE),
    NodeConfig("delete.topic.enable", "true", BOOLEAN, "Topics can be deleted."),
    NodeConfig("controlled.shutdown.enable", "true", BOOLEAN, "A stop is graceful."),
    NodeConfig("log.cleaner.enable", "true", BOOLEAN, "Topics can be compacted."),
    NodeConfig("offset.metadata.max.bytes", "4096", integer(0), "Largest metadata of a committed offset."),
    NodeConfig("group.share.max.share.sessions", "2000", integer(1), "Share sessions kept."),
    NodeConfig("remote.log.storage.system.enable", "false", BOOLEAN, "There is no tiered storage."),
    NodeConfig(
        "group.share.assignors", "simple", LIST, "Assignment of partitions to members of share groups."
    ),
)


def _bounds(name: str, limits: tuple[int, int], help_: str) -> tuple[NodeConfig, NodeConfig]:
    """Return the rows that show the range of a group's values."""
    low, high = limits
    return (
        NodeConfig(
            f"group.share.min.{name}", str(low), integer(1), f"The least that a group may set: {help_}"
        ),
        NodeConfig(
            f"group.share.max.{name}", str(high), integer(1), f"The most that a group may set: {help_}"
        ),
    )


_SHARE_BOUNDS: Final = (
    *_bounds("session.timeout.ms", SESSION_BOUNDS, "share.session.timeout.ms."),
    *_bounds("heartbeat.interval.ms", HEARTBEAT_BOUNDS, "share.heartbeat.interval.ms."),
    *_bounds("record.lock.duration.ms", RECORD_LOCK_BOUNDS, "share.record.lock.duration.ms."),
    *_bounds("delivery.count.limit", DELIVERY_COUNT_BOUNDS, "share.delivery.count.limit."),
    *_bounds("partition.max.record.locks", MAX_RECORD_LOCKS_BOUNDS, "share.partition.max.record.locks."),
)

_DEAD_LETTERS: Final = (
    NodeConfig(
        DEAD_LETTER_PREFIX,
        "dlq.",
        STRING,
        "Required prefix of the names of share groups' dead-letter topics; empty: none (KIP-1191).",
        is_dynamic=True,
    ),
    NodeConfig(
        DEAD_LETTER_AUTO_CREATE,
        "false",
        BOOLEAN,
        "Creates a dead-letter topic of a share group when it is missing (KIP-1191).",
        is_dynamic=True,
    ),
)

_FROM_CONFIG: Final = (
    _shown(
        "num.partitions",
        "default_partitions",
        integer(1),
        "Partitions of a topic that is created without a number of them.",
    ),
    _shown("auto.create.topics.enable", "auto_create_topics", BOOLEAN, "Use of a missing topic creates it."),
    _shown(
        "log.retention.check.interval.ms",
        "retention_check_interval_ms",
        long(1),
        "Interval of the search for old segments.",
    ),
    _shown(
        "producer.id.expiration.ms", "producer_expiration_ms", integer(1), "Silent producers are forgotten."
    ),
    _shown(
        "offsets.retention.minutes",
        "offsets_retention_ms",
        integer(1),
        "Offsets of a group without members are forgotten after this.",
        _MINUTE_MS,
    ),
    _shown(
        "allow.everyone.if.no.acl.found",
        "allow_unnamed_resources",
        STRING,
        "Allows everybody to use what no ACL names: true, false, or auto (while no login is set up).",
    ),
    _shown(
        "group.consumer.heartbeat.interval.ms",
        "group_heartbeat_interval_ms",
        integer(1),
        "Interval of the heartbeats of members of consumer groups.",
    ),
    _shown(
        "group.consumer.migration.policy",
        "group_migration",
        STRING,
        "Lets groups change between the protocols while they have members.",
    ),
    _shown(
        "group.consumer.session.timeout.ms",
        "group_session_timeout_ms",
        integer(1),
        "Time after which a silent member of a consumer group is removed.",
    ),
    _shown(
        "group.initial.rebalance.delay.ms",
        "group_initial_rebalance_delay_ms",
        integer(0),
        "Time that a new group waits for more members.",
    ),
    _shown("group.max.session.timeout.ms", "group_max_session_timeout_ms", integer(0), "Longest session."),
    _shown("group.max.size", "group_max_members", integer(1), "Members of a group."),
    _shown("group.min.session.timeout.ms", "group_min_session_timeout_ms", integer(0), "Shortest session."),
    _shown(
        "group.share.delivery.count.limit",
        "share_delivery_count_limit",
        integer(2),
        "Deliveries of a record before a share group gives it up.",
    ),
    _shown(
        "group.share.heartbeat.interval.ms",
        "group_heartbeat_interval_ms",
        integer(1),
        "Interval of the heartbeats of members of share groups.",
    ),
    _shown("group.share.max.groups", "share_max_groups", integer(1), "Share groups, empty ones too."),
    _shown("group.share.max.size", "share_max_members", integer(1), "Members of a share group."),
    _shown(
        "group.share.partition.max.record.locks",
        "share_max_record_locks",
        integer(100),
        "Limit of the records of a partition that members of a share group have acquired at a time.",
    ),
    _shown(
        "group.share.record.lock.duration.ms",
        "share_record_lock_duration_ms",
        integer(1000),
        "Time for which a record that a member of a share group acquired is kept from the others.",
    ),
    _shown(
        "group.share.session.timeout.ms",
        "group_session_timeout_ms",
        integer(1),
        "Time after which a silent member of a share group is removed.",
    ),
    _shown(
        "super.users", "super_users", STRING, "Principals that may do everything, independent of the ACLs."
    ),
    _shown("transaction.max.timeout.ms", "transaction_max_timeout_ms", integer(1), "Longest transaction."),
    _shown(
        "transactional.id.expiration.ms",
        "transactional_id_expiration_ms",
        integer(1),
        "Time after which an unused transactional id is forgotten.",
    ),
    _shown("num.recovery.threads.per.data.dir", "recovery_threads", integer(1), "Threads that recover logs."),
)

_WITHOUT_EFFECT: Final = tuple(
    NodeConfig(name, default, kind, _KEPT, is_dynamic=True)
    for name, default, kind in (
        ("background.threads", "10", integer(1)),
        ("follower.replication.throttled.rate", str(MAX_LONG), long(0)),
        ("leader.replication.throttled.rate", str(MAX_LONG), long(0)),
        ("log.cleaner.backoff.ms", "15000", long(0)),
        ("log.cleaner.dedupe.buffer.size", "134217728", long(0)),
        ("log.cleaner.io.buffer.load.factor", "0.9", fraction()),
        ("log.cleaner.io.buffer.size", "524288", integer(0)),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", fraction(0.0, 1.8e308)),
        ("log.cleaner.threads", "1", integer(0)),
        ("max.connection.creation.rate", str(MAX_INT), integer(0)),
        ("max.connections.per.ip", str(MAX_INT), integer(0)),
        ("max.connections.per.ip.overrides", "", STRING),
        ("num.io.threads", "8", integer(1)),
        ("num.network.threads", "3", integer(1)),
        ("num.replica.fetchers", "1", integer(1)),
        ("replica.alter.log.dirs.io.max.bytes.per.second", str(MAX_LONG), long(0)),
        ("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", STRING),
        ("sasl.kerberos.min.time.before.relogin", "60000", long(0)),
        ("sasl.kerberos.principal.to.local.rules", "DEFAULT", LIST),
        ("sasl.kerberos.ticket.renew.jitter", "0.05", fraction()),
        ("sasl.kerberos.ticket.renew.window.factor", "0.8", fraction()),
    )
)

NODE_CONFIGS: Final[dict[str, NodeConfig]] = {
    row.name: row
    for row in sorted(
        (*_topic_defaults(), *_VALUES, *_FROM_CONFIG, *_SHARE_BOUNDS, *_DEAD_LETTERS, *_WITHOUT_EFFECT),
        key=lambda r: r.name,
    )
}
"""Every configuration of a broker, by name."""


def synonyms_of_topic(name: str) -> tuple[str, ...]:
    """Return the broker's configurations that a topic's configuration has its default from; the
    strongest first.
    """
    return tuple(synonym for synonym, _ in _SYNONYMS.get(name, ()))


def synonym_of_group(name: str) -> str | None:
    """Return the broker's configuration that a group's configuration has its default from, if there
    is one.
    """
    return f"group.{name}" if GROUP_CONFIGS[name].field else None


def as_topic_defaults(values: Mapping[str, str]) -> dict[str, str]:
    """Return values of a broker as values of topics; those without a meaning for topics are left
    out.
    """
    named = ((NODE_CONFIGS[name].topic, value) for name, value in values.items() if name in NODE_CONFIGS)
    return {topic: value for topic, value in named if topic}


def static_values(config: BrokerConfig, node_values: Mapping[str, str]) -> dict[str, str]:
    """Return the values that the broker's own configuration sets, except defaults."""
    values = {
        names[0][0]: config.topic_defaults[t] for t, names in _SYNONYMS.items() if t in config.topic_defaults
    }
    for row in _FROM_CONFIG:
        values[row.name] = _text(getattr(config, row.source), row.divisor)
    values.update(node_values)
    return {name: value for name, value in values.items() if value != NODE_CONFIGS[name].default}
