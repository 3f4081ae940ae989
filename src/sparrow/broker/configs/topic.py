"""A topic's configuration: Kafka's names, one declaration each, checked when set.

Values are sent and stored as strings, as in Kafka. A value comes from the topic itself, else from
the broker's `topic_defaults`, else from the declaration below.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparrow.base.errors import InvalidConfig
from sparrow.broker.configs.values import (
    BOOLEAN,
    MAX_LONG,
    ONLY_FALSE,
    THROTTLED_REPLICAS,
    fraction,
    integer,
    items,
    list_of,
    long,
    one_of,
)
from sparrow.model.topics import ConfigEntry
from sparrow.storage.store import LogConfig

if TYPE_CHECKING:
    from sparrow.base.settings import Kind


class Declaration(Struct, frozen=True):
    """One configuration."""

    name: str
    default: str
    unit: str
    kind: Kind[Any]
    help: str


_LONG = long(0)
_LONG_OR_NONE = long(-1)
_POLICIES = list_of(
    "delete", "compact", advice="delete, compact, both with a comma between, or nothing to keep all"
)
_KEPT_LOCALLY = long(-2)
_SYNCS = "Accepted for Kafka's sake; acks=all syncs always."
DEAD_LETTERS_ENABLE = "errors.deadletterqueue.group.enable"
_ONE_REPLICA = "Accepted for Kafka's sake; there is one replica."
_ONE_LEVEL = "Accepted for Kafka's sake; the codec's own level is used."
_NOT_TIERED = "Accepted for Kafka's sake; all data is local."

DECLARATIONS: dict[str, Declaration] = {
    d.name: d
    for d in (
        Declaration("cleanup.policy", "delete", "", _POLICIES, "Treatment of old records."),
        Declaration("compression.gzip.level", "-1", "", integer(-1, 9), _ONE_LEVEL),
        Declaration("compression.lz4.level", "9", "", integer(1, 17), _ONE_LEVEL),
        Declaration(
            "compression.type",
            "producer",
            "",
            one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            "Compression on disk; producer keeps each batch as it arrives.",
        ),
        Declaration("compression.zstd.level", "3", "", integer(-131072, 22), _ONE_LEVEL),
        Declaration(
            "delete.retention.ms", "86400000", "ms", _LONG, "Time that a tombstone stays after compaction."
        ),
        Declaration(
            "durability",
            "sync",
            "",
            one_of("sync", "page-cache"),
            "Level that acks=all waits for: stable storage, or the page cache only.",
        ),
        Declaration(
            DEAD_LETTERS_ENABLE,
            "false",
            "",
            BOOLEAN,
            "Allows share groups to write their dead letters to this topic (KIP-1191).",
        ),
        Declaration(
            "file.delete.delay.ms", "60000", "ms", _LONG, "Accepted for Kafka's sake; files go at once."
        ),
        Declaration("flush.messages", str(MAX_LONG), "records", long(1), _SYNCS),
        Declaration("flush.ms", str(MAX_LONG), "ms", _LONG, _SYNCS),
        Declaration("follower.replication.throttled.replicas", "", "", THROTTLED_REPLICAS, _ONE_REPLICA),
        Declaration("index.interval.bytes", "4096", "bytes", integer(0), "Distance of two index entries."),
        Declaration("leader.replication.throttled.replicas", "", "", THROTTLED_REPLICAS, _ONE_REPLICA),
        Declaration("local.retention.bytes", "-2", "bytes", _KEPT_LOCALLY, _NOT_TIERED),
        Declaration("local.retention.ms", "-2", "ms", _KEPT_LOCALLY, _NOT_TIERED),
        Declaration(
            "max.compaction.lag.ms",
            str(MAX_LONG),
            "ms",
            long(1),
            "A record is compacted at the latest after this.",
        ),
        Declaration("max.message.bytes", "1048588", "bytes", integer(0), "Largest record batch accepted."),
        Declaration(
            "message.timestamp.after.max.ms",
            "3600000",
            "ms",
            _LONG,
            "Limit of how far in the future a record's time may be.",
        ),
        Declaration(
            "message.timestamp.before.max.ms",
            str(MAX_LONG),
            "ms",
            _LONG,
            "Limit of how far in the past a record's time may be.",
        ),
        Declaration(
            "message.timestamp.type",
            "CreateTime",
            "",
            one_of("CreateTime", "LogAppendTime"),
            "Time that a record carries: the publisher's or the broker's.",
        ),
        Declaration(
            "min.cleanable.dirty.ratio",
            "0.5",
            "",
            fraction(),
            "Share of new bytes that makes compaction worth it.",
        ),
        Declaration("min.compaction.lag.ms", "0", "ms", _LONG, "A record is not compacted before this."),
        Declaration("min.insync.replicas", "1", "", integer(1), _ONE_REPLICA),
        Declaration("preallocate", "false", "", BOOLEAN, "Accepted for Kafka's sake; files grow as needed."),
        Declaration(
            "record.validation",
            "full",
            "",
            one_of("full", "header"),
            "Check of a published batch: each record, or the header and the CRC alone.",
        ),
        Declaration(
            "record.validation.max.bytes",
            "67108864",
            "bytes",
            integer(1),
            "Largest size of a compressed batch after it is decompressed for its check.",
        ),
        Declaration("remote.log.copy.disable", "false", "", BOOLEAN, _NOT_TIERED),
        Declaration("remote.log.delete.on.disable", "false", "", BOOLEAN, _NOT_TIERED),
        Declaration("remote.storage.enable", "false", "", ONLY_FALSE, "There is no tiered storage."),
        Declaration(
            "retention.bytes",
            "-1",
            "bytes",
            _LONG_OR_NONE,
            "Size of a partition above which old segments go.",
        ),
        Declaration(
            "retention.ms", "604800000", "ms", _LONG_OR_NONE, "Age above which old segments go; -1 keeps all."
        ),
        Declaration("segment.bytes", "1073741824", "bytes", integer(1024), "Size of a segment file."),
        Declaration(
            "segment.index.bytes",
            "10485760",
            "bytes",
            integer(4),
            "Accepted for Kafka's sake; indexes are as large as needed.",
        ),
        Declaration(
            "segment.jitter.ms", "0", "ms", _LONG, "Accepted for Kafka's sake; segments roll on time."
        ),
        Declaration("segment.ms", "604800000", "ms", long(1), "Age at which a segment file is closed."),
        Declaration("unclean.leader.election.enable", "false", "", BOOLEAN, _ONE_REPLICA),
    )
}


class TopicConfig:
    """The current values of one topic, parsed once. Immutable: a change makes a new one."""

    def __init__(self, overrides: Mapping[str, str], broker_defaults: Mapping[str, str]) -> None:
        self.overrides = dict(overrides)
        self._broker_defaults = broker_defaults
        self.log = self._log_config()
        self.max_message_bytes = self._int("max.message.bytes")
        self.compact = self.log.compact
        self.log_append_time = self.value("message.timestamp.type") == "LogAppendTime"
        self.timestamp_before_max_ms = self._int("message.timestamp.before.max.ms")
        self.timestamp_after_max_ms = self._int("message.timestamp.after.max.ms")
        self.syncs = self.value("durability") == "sync"
        self.compression = self.value("compression.type")
        self.checks_records = self.value("record.validation") == "full"
        self.max_plain_bytes = self._int("record.validation.max.bytes")

    def entries(self) -> list[ConfigEntry]:
        """Return every configuration with its value, default and source, by name."""
        return [
            ConfigEntry(d.name, self.value(d.name), d.default, self._source(d.name), d.unit, d.help)
            for d in DECLARATIONS.values()
        ]

    def _source(self, name: str) -> str:
        if name in self.overrides:
            return "topic"
        return "broker" if name in self._broker_defaults else "default"

    def value(self, name: str) -> str:
        """Return the current value as text."""
        if name in self.overrides:
            return self.overrides[name]
        return self._broker_defaults.get(name, DECLARATIONS[name].default)

    def _int(self, name: str) -> int:
        return int(self.value(name))

    def _log_config(self) -> LogConfig:
        policies = items(self.value("cleanup.policy"))
        return LogConfig(
            segment_bytes=self._int("segment.bytes"),
            segment_ms=self._int("segment.ms"),
            index_interval_bytes=self._int("index.interval.bytes"),
            retention_ms=self._int("retention.ms"),
            retention_bytes=self._int("retention.bytes"),
            compact="compact" in policies,
            delete="delete" in policies,
            delete_retention_ms=self._int("delete.retention.ms"),
            min_compaction_lag_ms=self._int("min.compaction.lag.ms"),
            max_compaction_lag_ms=self._int("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio=float(self.value("min.cleanable.dirty.ratio")),
        )


def check_config(values: Mapping[str, str]) -> dict[str, str]:
    """Check names and values; return them as plain strings.

    Raises:
        InvalidConfig: names the first wrong one, what is allowed, and a likely spelling.
    """
    for name, value in values.items():
        declaration = DECLARATIONS.get(name)
        if declaration is None:
            raise InvalidConfig(f"there is no topic configuration {name!r}{_suggestion(name)}")
        if not isinstance(value, str):
            raise InvalidConfig(f"the value of {name} must be a string, not {type(value).__name__}")
        try:
            declaration.kind.read(value)
        except ValueError as error:
            raise InvalidConfig(f"{name} cannot be {value!r}: it takes {error}") from None
    return dict(values)


def check_name(name: str) -> None:
    """Raise InvalidConfig unless a configuration of that name exists."""
    if name not in DECLARATIONS:
        raise InvalidConfig(f"there is no topic configuration {name!r}{_suggestion(name)}")


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, DECLARATIONS, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
