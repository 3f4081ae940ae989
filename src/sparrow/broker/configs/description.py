"""Configurations as they are shown: value, type, where the value comes from, and what would hold without it. No I/O.

Where a value comes from follows Kafka (KIP-226): a topic's own value, else what was set on this broker while it runs, else what was set
on all brokers while they run, else the broker's own configuration, else the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from sparrow.broker.configs.group import GROUP_CONFIGS
from sparrow.broker.configs.node import NODE_CONFIGS, synonym_of_group, synonyms_of_topic
from sparrow.broker.configs.topic import DECLARATIONS as TOPIC_CONFIGS
from sparrow.broker.configs.values import LIST, ConfigType, Kind, integer

if TYPE_CHECKING:
    from sparrow.broker.configs.topic import TopicConfig


class ConfigSource(Enum):
    """Where a value comes from; Kafka's names."""

    DYNAMIC_TOPIC_CONFIG = "topic"
    DYNAMIC_BROKER_CONFIG = "this broker, while it runs"
    DYNAMIC_DEFAULT_BROKER_CONFIG = "all brokers, while they run"
    STATIC_BROKER_CONFIG = "the broker's configuration"
    DEFAULT_CONFIG = "default"
    DYNAMIC_BROKER_LOGGER_CONFIG = "logger"
    CLIENT_METRICS_CONFIG = "client metrics"
    GROUP_CONFIG = "group"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A place where the value could come from. The first of a list is where it does come from."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One configuration of one resource. `value` is None where there is none, and where it is secret."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    help: str
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeLayers:
    """What is set on a broker, by place; the first that has a name wins."""

    node: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, str]

    def places(self, name: str) -> Iterator[ConfigSynonym]:
        """Everything that is set for one of the broker's names, then its default if it has one."""
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
    """Every configuration of a topic."""
    found = []
    for row in TOPIC_CONFIGS.values():
        own = config.overrides.get(row.name)
        places = [] if own is None else [ConfigSynonym(row.name, own, ConfigSource.DYNAMIC_TOPIC_CONFIG)]
        for synonym in synonyms_of_topic(row.name):
            places += layers.places(synonym)
        source = places[0].source if places else ConfigSource.DEFAULT_CONFIG
        found.append(
            DescribedConfig(
                row.name, config.value(row.name), source, row.kind.type, row.help, synonyms=tuple(places)
            )
        )
    return found


def describe_node(layers: NodeLayers) -> list[DescribedConfig]:
    """Every configuration of a broker."""
    found = []
    for row in NODE_CONFIGS.values():
        places = tuple(layers.places(row.name))
        value, source = (places[0].value, places[0].source) if places else (None, ConfigSource.DEFAULT_CONFIG)
        found.append(
            DescribedConfig(
                row.name, value, source, row.kind.type, row.help, not row.is_dynamic, synonyms=places
            )
        )
    return found


def describe_cluster_defaults(values: Mapping[str, str]) -> list[DescribedConfig]:
    """What was set for all brokers while they run; nothing else, as in Kafka."""
    return [
        DescribedConfig(
            name,
            value,
            ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
            NODE_CONFIGS[name].kind.type,
            NODE_CONFIGS[name].help,
            synonyms=(ConfigSynonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),),
        )
        for name, value in values.items()
    ]


def describe_loggers(levels: Mapping[str, str]) -> list[DescribedConfig]:
    """Loggers and their levels."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return [
        DescribedConfig(
            name, level, source, ConfigType.STRING, "", synonyms=(ConfigSynonym(name, level, source),)
        )
        for name, level in levels.items()
    ]


def describe_group(values: Mapping[str, str], layers: NodeLayers) -> list[DescribedConfig]:
    """Every configuration of a group."""
    found = []
    for row in GROUP_CONFIGS.values():
        synonym = synonym_of_group(row.name)
        places = (
            [ConfigSynonym(row.name, row.constant, ConfigSource.DEFAULT_CONFIG)]
            if synonym is None
            else list(layers.places(synonym))
        )
        if row.name in values:
            places.insert(0, ConfigSynonym(row.name, values[row.name], ConfigSource.GROUP_CONFIG))
        first = places[0]
        # Kafka shows what a broker sets for all groups as a default.
        source = first.source if row.name in values else ConfigSource.DEFAULT_CONFIG
        found.append(
            DescribedConfig(row.name, first.value, source, row.kind.type, row.help, synonyms=tuple(places))
        )
    return found


@dataclass(frozen=True, slots=True)
class ClientMetric:
    """A configuration of a subscription to clients' metrics (KIP-714)."""

    name: str
    default: str
    kind: Kind
    help: str


CLIENT_METRICS: Final = {
    row.name: row
    for row in (
        ClientMetric("interval.ms", "300000", integer(100, 3_600_000), "How often clients are to push."),
        ClientMetric("match", "", LIST, "Which clients are meant."),
        ClientMetric("metrics", "", LIST, "Prefixes of the metrics that are wanted."),
    )
}


def describe_client_metrics(values: Mapping[str, str]) -> list[DescribedConfig]:
    """A subscription to clients' metrics."""
    found = []
    for row in CLIENT_METRICS.values():
        places = [ConfigSynonym(row.name, row.default, ConfigSource.DEFAULT_CONFIG)]
        if row.name in values:
            places.insert(0, ConfigSynonym(row.name, values[row.name], ConfigSource.CLIENT_METRICS_CONFIG))
        first = places[0]
        found.append(
            DescribedConfig(
                row.name, first.value, first.source, row.kind.type, row.help, synonyms=tuple(places)
            )
        )
    return found
