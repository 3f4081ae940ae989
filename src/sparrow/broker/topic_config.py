"""A topic's configuration: Kafka's names, one declaration each, checked when set.

Values travel and are stored as strings, as in Kafka. A value comes from the topic itself, else from the broker's
`topic_defaults`, else from the declaration below.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparrow.base.errors import InvalidConfig
from sparrow.storage.store import LogConfig

_MAX_INT = (1 << 31) - 1
_MAX_LONG = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Declaration:
    """One configuration: `parse` turns the string into a value or raises ValueError with what is allowed."""

    name: str
    default: str
    unit: str
    parse: Callable[[str], object]
    help: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration of one topic, as described to people. `source` is "topic", "broker" or "default"."""

    name: str
    value: str
    default: str
    source: str
    unit: str
    help: str


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"a whole number from {low} to {high}") from None
        if not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return parse


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise ValueError("a number from 0 to 1")
    return value


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return text

    return parse


def _policies(text: str) -> frozenset[str]:
    chosen = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not chosen <= {"delete", "compact"}:
        raise ValueError("delete, compact, both with a comma between, or nothing to keep all")
    return chosen


_LONG = _integer(0, _MAX_LONG)
_LONG_OR_NONE = _integer(-1, _MAX_LONG)

DECLARATIONS: dict[str, Declaration] = {
    d.name: d
    for d in (
        Declaration("cleanup.policy", "delete", "", _policies, "What happens to old records."),
        Declaration(
            "compression.type",
            "producer",
            "",
            _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            "Compression on disk; producer keeps what arrives.",
        ),
        Declaration(
            "delete.retention.ms", "86400000", "ms", _LONG, "How long a tombstone stays after compaction."
        ),
        Declaration(
            "durability",
            "sync",
            "",
            _one_of("sync", "page-cache"),
            "What acks=all waits for: stable storage, or the page cache only.",
        ),
        Declaration(
            "file.delete.delay.ms", "60000", "ms", _LONG, "Accepted for Kafka's sake; files go at once."
        ),
        Declaration(
            "flush.ms",
            "9223372036854775807",
            "ms",
            _LONG,
            "Accepted for Kafka's sake; acks=all syncs always.",
        ),
        Declaration(
            "flush.messages",
            "9223372036854775807",
            "records",
            _integer(1, _MAX_LONG),
            "Accepted for Kafka's sake; acks=all syncs always.",
        ),
        Declaration(
            "index.interval.bytes", "4096", "bytes", _integer(0, _MAX_INT), "Distance of two index entries."
        ),
        Declaration(
            "max.compaction.lag.ms",
            str(_MAX_LONG),
            "ms",
            _integer(1, _MAX_LONG),
            "A record is compacted at the latest after this.",
        ),
        Declaration(
            "max.message.bytes", "1048588", "bytes", _integer(0, _MAX_INT), "Largest record batch accepted."
        ),
        Declaration(
            "message.timestamp.after.max.ms",
            "3600000",
            "ms",
            _LONG,
            "How far in the future a record's time may lie.",
        ),
        Declaration(
            "message.timestamp.before.max.ms",
            str(_MAX_LONG),
            "ms",
            _LONG,
            "How far in the past a record's time may lie.",
        ),
        Declaration(
            "message.timestamp.type",
            "CreateTime",
            "",
            _one_of("CreateTime", "LogAppendTime"),
            "Whose time a record carries: the publisher's or the broker's.",
        ),
        Declaration(
            "min.cleanable.dirty.ratio",
            "0.5",
            "",
            _fraction,
            "Share of new bytes that makes compaction worth it.",
        ),
        Declaration("min.compaction.lag.ms", "0", "ms", _LONG, "A record is not compacted before this."),
        Declaration(
            "min.insync.replicas",
            "1",
            "",
            _integer(1, _MAX_INT),
            "Accepted for Kafka's sake; there is one replica.",
        ),
        Declaration("preallocate", "false", "", _boolean, "Accepted for Kafka's sake; files grow as needed."),
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
        Declaration(
            "segment.bytes", "1073741824", "bytes", _integer(1024, _MAX_INT), "Size of a segment file."
        ),
        Declaration(
            "segment.index.bytes",
            "10485760",
            "bytes",
            _integer(4, _MAX_INT),
            "Accepted for Kafka's sake; indexes are as large as needed.",
        ),
        Declaration(
            "segment.jitter.ms", "0", "ms", _LONG, "Accepted for Kafka's sake; segments roll on time."
        ),
        Declaration(
            "segment.ms", "604800000", "ms", _integer(1, _MAX_LONG), "Age at which a segment file is closed."
        ),
        Declaration(
            "unclean.leader.election.enable",
            "false",
            "",
            _boolean,
            "Accepted for Kafka's sake; there is one replica.",
        ),
    )
}


class TopicConfig:
    """The values that hold for one topic, parsed once. Immutable: a change makes a new one."""

    def __init__(self, overrides: Mapping[str, str], broker_defaults: Mapping[str, str]) -> None:
        self.overrides = dict(overrides)
        self._broker_defaults = broker_defaults
        self.log = self._log_config()
        self.max_message_bytes = self._int("max.message.bytes")
        self.compact = self.log.compact
        self.log_append_time = self._text("message.timestamp.type") == "LogAppendTime"
        self.timestamp_before_max_ms = self._int("message.timestamp.before.max.ms")
        self.timestamp_after_max_ms = self._int("message.timestamp.after.max.ms")
        self.syncs = self._text("durability") == "sync"
        self.compression = self._text("compression.type")

    def entries(self) -> list[ConfigEntry]:
        """Every configuration with its value, default and source, by name."""
        return [
            ConfigEntry(d.name, self._text(d.name), d.default, self._source(d.name), d.unit, d.help)
            for d in DECLARATIONS.values()
        ]

    def _source(self, name: str) -> str:
        if name in self.overrides:
            return "topic"
        return "broker" if name in self._broker_defaults else "default"

    def _text(self, name: str) -> str:
        if name in self.overrides:
            return self.overrides[name]
        return self._broker_defaults.get(name, DECLARATIONS[name].default)

    def _int(self, name: str) -> int:
        return int(self._text(name))

    def _log_config(self) -> LogConfig:
        policies = _policies(self._text("cleanup.policy"))
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
            min_cleanable_dirty_ratio=float(self._text("min.cleanable.dirty.ratio")),
        )


def check_config(values: Mapping[str, str]) -> dict[str, str]:
    """Check names and values; returns them as plain strings.

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
            declaration.parse(value)
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
