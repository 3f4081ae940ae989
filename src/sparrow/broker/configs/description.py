"""Configurations as they are shown: value, type, source of the value, and the value that would
apply without it. No I/O.

The source of a value follows Kafka (KIP-226): a topic's own value, else the value set on this
broker at run time, else the value set on all brokers at run time, else the broker's own
configuration, else the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from sparrow.broker.configs.group import GROUP_CONFIGS
from sparrow.broker.configs.node import NODE_CONFIGS, synonym_of_group, synonyms_of_topic
from sparrow.broker.configs.topic import DECLARATIONS as TOPIC_CONFIGS
from sparrow.broker.configs.values import LIST, ConfigType, integer

if TYPE_CHECKING:
    from sparrow.base.settings import Kind
    from sparrow.broker.configs.topic import TopicConfig


class ConfigSource(Enum):
    """Sources of a value; Kafka's names."""

    DYNAMIC_TOPIC_CONFIG = "topic"
    DYNAMIC_BROKER_CONFIG = "this broker, while it runs"
    DYNAMIC_DEFAULT_BROKER_CONFIG = "all brokers, while they run"
    STATIC_BROKER_CONFIG = "the broker's configuration"
    DEFAULT_CONFIG = "default"
    DYNAMIC_BROKER_LOGGER_CONFIG = "logger"
    CLIENT_METRICS_CONFIG = "client metrics"
    GROUP_CONFIG = "group"


class ConfigSynonym(Struct, frozen=True):
    """A possible source of the value. The first of a list is the actual one."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(Struct, frozen=True):
    """One configuration of one resource. `value` is None if there is none, and if it is secret."""

    name: str
    value: str | None
    source: ConfigSource
    type: str
    """One of `ConfigType`."""
    help: str
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()


class NodeLayers(Struct, frozen=True):
    """The values set on a broker, by source; the first that has a name wins."""

    node: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, str]

    def synonyms(self, name: str) -> Iterator[ConfigSynonym]:
        """Return all values that are set for one of the broker's names, then its default if it has
        one.
        """
        for values, source in (
            (self.node, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
        ):
            if name in values:
                yield ConfigSynonym(name, values[name], source)
        default = NODE_CONFIGS[name].default
        if default is not None:
            yield ConfigSynonym(name, default, ConfigSource.DEFAULT_CONFIG)


def describe_topic(config: TopicConfig, layers: NodeLayers) -> list[DescribedConfig]:
    """Return every configuration of a topic."""
    found = []
    for row in TOPIC_CONFIGS.values():
        own = config.overrides.get(row.name)
        synonyms = [] if own is None else [ConfigSynonym(row.name, own, ConfigSource.DYNAMIC_TOPIC_CONFIG)]
        for synonym in synonyms_of_topic(row.name):
            synonyms += layers.synonyms(synonym)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        found.append(
            DescribedConfig(
                row.name,
                config.value(row.name),
                source,
                row.kind.name,
                row.help,
                synonyms=tuple(synonyms),
            )
        )
    return found


def describe_node(layers: NodeLayers) -> list[DescribedConfig]:
    """Return every configuration of a broker."""
    found = []
    for row in NODE_CONFIGS.values():
        synonyms = tuple(layers.synonyms(row.name))
        value, source = (
            (synonyms[0].value, synonyms[0].source) if synonyms else (None, ConfigSource.DEFAULT_CONFIG)
        )
        found.append(
            DescribedConfig(
                row.name,
                value,
                source,
                row.kind.name,
                row.help,
                not row.is_dynamic,
                synonyms=synonyms,
            )
        )
    return found


def describe_cluster_defaults(values: Mapping[str, str]) -> list[DescribedConfig]:
    """Return the values set on all brokers at run time, and nothing else, as in Kafka."""
    return [
        DescribedConfig(
            name,
            value,
            ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
            NODE_CONFIGS[name].kind.name,
            NODE_CONFIGS[name].help,
            synonyms=(ConfigSynonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),),
        )
        for name, value in values.items()
    ]


def describe_loggers(levels: Mapping[str, str]) -> list[DescribedConfig]:
    """Return loggers and their levels."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return [
        DescribedConfig(
            name, level, source, ConfigType.STRING, "", synonyms=(ConfigSynonym(name, level, source),)
        )
        for name, level in levels.items()
    ]


def describe_group(values: Mapping[str, str], layers: NodeLayers) -> list[DescribedConfig]:
    """Return every configuration of a group."""
    found = []
    for row in GROUP_CONFIGS.values():
        synonym = synonym_of_group(row.name)
        synonyms = (
            [ConfigSynonym(row.name, row.constant, ConfigSource.DEFAULT_CONFIG)]
            if synonym is None
            else list(layers.synonyms(synonym))
        )
        if row.name in values:
            synonyms.insert(0, ConfigSynonym(row.name, values[row.name], ConfigSource.GROUP_CONFIG))
        first = synonyms[0]
        # Kafka shows a broker's value for all groups as a default.
        source = first.source if row.name in values else ConfigSource.DEFAULT_CONFIG
        found.append(
            DescribedConfig(row.name, first.value, source, row.kind.name, row.help, synonyms=tuple(synonyms))
        )
    return found


class ClientMetric(Struct, frozen=True):
    """A configuration of a subscription to clients' metrics (KIP-714)."""

    name: str
    default: str
    kind: Kind[Any]
    help: str


CLIENT_METRICS: Final = {
    row.name: row
    for row in (
        ClientMetric("interval.ms", "300000", integer(100, 3_600_000), "Interval at which clients push."),
        ClientMetric("match", "", LIST, "Clients that the rule applies to."),
        ClientMetric("metrics", "", LIST, "Prefixes of the metrics that are wanted."),
    )
}


def describe_client_metrics(values: Mapping[str, str]) -> list[DescribedConfig]:
    """Return the configurations of a subscription to clients' metrics."""
    found = []
    for row in CLIENT_METRICS.values():
        synonyms = [ConfigSynonym(row.name, row.default, ConfigSource.DEFAULT_CONFIG)]
        if row.name in values:
            synonyms.insert(0, ConfigSynonym(row.name, values[row.name], ConfigSource.CLIENT_METRICS_CONFIG))
        first = synonyms[0]
        found.append(
            DescribedConfig(
                row.name,
                first.value,
                first.source,
                row.kind.name,
                row.help,
                synonyms=tuple(synonyms),
            )
        )
    return found
