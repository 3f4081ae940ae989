"""Configuration of a broker: one frozen object whose options are declared here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparrow.base.settings import (
    BOOLEAN,
    TEXT,
    TEXT_SCHEMA,
    TEXTS_SCHEMA,
    Kind,
    choice,
    deferred,
    duration,
    integer,
    option,
    size,
)

_DAY_MS: Final = 86_400_000
SESSION_BOUNDS: Final = (1_000, 3_600_000)
HEARTBEAT_BOUNDS: Final = (50, 600_000)
RECORD_LOCK_BOUNDS: Final = (1_000, 3_600_000)
DELIVERY_COUNT_BOUNDS: Final = (2, 25)
MAX_RECORD_LOCKS_BOUNDS: Final = (100, 10_000)


def _read_principals(given: object) -> frozenset[str]:
    """Names or "Type:name", from a list or from one text with semicolons between (a name may hold
    commas: CN=a,O=b).

    A type is one word: a colon behind anything else is part of a name, such as CN=a,OU=urn:b.
    """
    listed = given if isinstance(given, list | frozenset) else TEXT.read(given).split(";")
    texts = [TEXT.read(each).strip() for each in listed]
    principals = frozenset(
        f"User:{text}" if ":" not in text or re.match(r"\w*[^\w:]", text) else text for text in texts if text
    )
    if any(not kind or not name for kind, _, name in (each.partition(":") for each in principals)):
        raise ValueError("principals, such as alice or User:alice")
    return principals


def _read_audit_topic(given: object) -> str:
    from sparrow.base.errors import InvalidTopicName
    from sparrow.broker.names import check_topic_name
    from sparrow.broker.topics.internal_topics import INTERNAL_TOPICS

    name = TEXT.read(given)
    if name in INTERNAL_TOPICS:
        raise ValueError(f"a topic of its own; {name} is one of Kafka's")
    if name:
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            raise ValueError(error.text) from None
    return name


_UNNAMED: Final = {"auto": None, "allow": True, "deny": False}
_WORD: Final = choice(*_UNNAMED)
_ACL_DEFAULT: Final = Kind(
    _WORD.name,
    lambda given: _UNNAMED[_WORD.read(given)],
    schema=_WORD.schema,
    show={meaning: word for word, meaning in _UNNAMED.items()}.__getitem__,
    choices=_WORD.choices,
)
_PRINCIPALS: Final = Kind("principal", _read_principals, repeats=True, schema=TEXTS_SCHEMA)
_TOPIC_CONFIG: Final = deferred(
    "sparrow.broker.configs.topic_kind", "TOPIC_CONFIG", "name=value", repeats=True
)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Configuration of a broker. Times are in milliseconds, sizes in bytes. `broker.configs.node`
    has Kafka's names of the same.
    """

    node_id: int = option(
        "kafka.node_id",
        integer(0, (1 << 31) - 1),
        1,
        "Number of this broker in what Kafka clients learn of the cluster.",
        name="kafka_node_id",
    )
    super_users: frozenset[str] = option(
        "super_users",
        _PRINCIPALS,
        frozenset(),
        "Principals who may do everything, whatever the access rules say.",
    )
    allow_unnamed_resources: bool | None = option(
        "acl.default",
        _ACL_DEFAULT,
        None,
        "Allow everybody to use topics, groups, queues and sinks that no access rule names; "
        "auto: only while nobody can log in. Administration takes a rule or a super user once "
        "somebody can log in.",
        name="acl_default",
    )
    audit_topic: str = option(
        "audit.topic",
        Kind("topic", _read_audit_topic, schema=TEXT_SCHEMA),
        "",
        "An internal topic that audit events are written to as JSON, which only the broker writes; "
        "the logger sparrow.audit has them in any case.",
    )
    auto_create_topics: bool = option(
        "auto_create_topics", BOOLEAN, True, "Publishing or subscribing to a missing topic creates it."
    )
    default_partitions: int = option(
        "default_partitions",
        integer(1, 10_000),
        4,
        "Partitions of a topic that is created without a number of them.",
    )
    max_partitions_per_topic: int = 10_000
    max_partitions: int = option(
        "max_partitions",
        integer(1, 10_000_000),
        200_000,
        "Partitions of all topics together (about 1 KB of memory each); more are refused.",
    )
    topic_defaults: Mapping[str, str] = option(
        "default_topic_config",
        _TOPIC_CONFIG,
        {},
        "Configuration of topics that do not set their own, such as retention.ms=1d.",
    )
    checkpoint_bytes: int = 64 << 20
    """The appended bytes after which a log writes a checkpoint: about the most that recovery after
    a crash scans.
    """
    retention_check_interval_ms: int = 30_000
    tick_interval_ms: int = 500
    """The interval at which groups check their clocks."""
    idempotency_window_ms: int = option(
        "http.idempotency_window",
        duration(1_000, 30 * _DAY_MS),
        _DAY_MS,
        "Time for which the response to a publish with an Idempotency-Key is kept.",
        name="http_idempotency_window_ms",
    )
    idempotency_max_keys: int = 1_000_000
    """The limit of keys of all principals together; each takes about 200 bytes of the meta
    store.
    """
    group_initial_rebalance_delay_ms: int = option(
        "groups.initial_rebalance_delay",
        duration(0, 60_000),
        100,
        "Time that a new classic consumer group waits for more members.",
    )
    group_min_session_timeout_ms: int = option(
        "groups.min_session_timeout",
        duration(1, _DAY_MS),
        1_000,
        "Shortest session timeout that a member of a classic group may choose.",
    )
    group_max_session_timeout_ms: int = option(
        "groups.max_session_timeout",
        duration(1, _DAY_MS),
        1_800_000,
        "Longest session timeout that a member of a classic group may choose.",
    )
    group_max_members: int = option(
        "groups.max_members", integer(1, 1_000_000), 10_000, "Members of one classic group at most."
    )
    group_heartbeat_interval_ms: int = option(
        "groups.heartbeat_interval",
        duration(*HEARTBEAT_BOUNDS),
        5_000,
        "Time that members of a group of the consumer protocol (KIP-848) or of a share group wait "
        "between heartbeats.",
    )
    group_session_timeout_ms: int = option(
        "groups.session_timeout",
        duration(*SESSION_BOUNDS),
        45_000,
        "After how long without a heartbeat a member of such a group is put out.",
    )
    share_record_lock_duration_ms: int = option(
        "groups.share_record_lock_duration",
        duration(*RECORD_LOCK_BOUNDS),
        30_000,
        "Time for which a record that a member of a share group (KIP-932) acquired is kept from the others.",
    )
    share_delivery_count_limit: int = option(
        "groups.share_delivery_count_limit",
        integer(*DELIVERY_COUNT_BOUNDS),
        5,
        "Deliveries of a record before a share group gives it up.",
    )
    share_max_record_locks: int = option(
        "groups.share_max_record_locks",
        integer(*MAX_RECORD_LOCKS_BOUNDS),
        2_000,
        "Records of a partition that members of a share group may have acquired at a time.",
    )
    share_max_members: int = option(
        "groups.share_max_members", integer(1, 1_000), 200, "Members of one share group at most."
    )
    share_max_groups: int = option(
        "groups.share_max_groups",
        integer(1, 1_000_000),
        2_000,
        "Share groups, empty ones too (about 20 KB of memory each); more are refused.",
    )
    """They exist until they are deleted, so this stops a flood of names."""
    group_migration: str = option(
        "groups.migration",
        choice("disabled", "upgrade", "downgrade", "bidirectional"),
        "bidirectional",
        "Let groups with members change between the classic and the consumer protocol when members do.",
    )
    offsets_retention_ms: int = option(
        "groups.offsets_retention",
        duration(60_000, 365 * _DAY_MS),
        7 * _DAY_MS,
        "Time for which committed offsets are kept once their group has no members.",
    )
    transaction_max_timeout_ms: int = option(
        "transactions.max_timeout",
        duration(1_000, _DAY_MS),
        900_000,
        "The longest that a transactional producer may let a transaction stay open.",
    )
    transactional_id_expiration_ms: int = option(
        "transactions.id_expiration",
        duration(1_000, 365 * _DAY_MS),
        7 * _DAY_MS,
        "Time after which an unused transactional id is forgotten.",
    )
    producer_expiration_ms: int = option(
        "producers.expiration",
        duration(1_000, 365 * _DAY_MS),
        _DAY_MS,
        "A partition forgets the sequence numbers of an idempotent producer that was silent for so long.",
    )
    recovery_threads: int = 4
    scrub_bytes_per_s: int = option(
        "log.scrub_rate",
        size(0, 1 << 40),
        1 << 20,
        "Bytes per second that the broker reads of closed segments to find bit rot; 0: none.",
        name="log_scrub_rate",
    )
    has_logins: bool = False
    """True if principals other than the users of the meta store can log in, by a token or a
    certificate.
    """
