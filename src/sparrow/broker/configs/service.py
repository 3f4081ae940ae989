"""The configurations of all resources that have one: topics, this broker, all brokers, loggers,
groups, clients' metrics.

Two operations, describe and alter, serve all kinds of resources (KIP-133, KIP-339). Values set on
brokers and on clients' metrics are kept here, in the meta store, before they take effect; topics
keep their own. Changes happen one after the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from sparrow.base.errors import InvalidArgument, InvalidConfig
from sparrow.broker import entries
from sparrow.broker.access.authz import Operation, ResourceType
from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.event import names
from sparrow.broker.changes import Changes
from sparrow.broker.configs import loggers
from sparrow.broker.configs.changes import ConfigChange, changed, check_changes, replacing
from sparrow.broker.configs.description import (
    CLIENT_METRICS,
    DescribedConfig,
    NodeLayers,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_loggers,
    describe_node,
    describe_topic,
)
from sparrow.broker.configs.group import (
    GROUP_CONFIGS,
    check_group_as_a_whole,
    check_group_config,
    kind_of_group_config,
)
from sparrow.broker.configs.node import NODE_CONFIGS, as_topic_defaults, static_values
from sparrow.broker.configs.topic import DECLARATIONS as TOPIC_CONFIGS
from sparrow.broker.configs.topic import TopicConfig, check_config, check_name
from sparrow.meta.store import Delete, Put
from sparrow.model.access import CLUSTER_NAME

if TYPE_CHECKING:
    from sparrow.base.settings import Kind
    from sparrow.broker.access.access import Access
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.audit.audit import Act
    from sparrow.broker.config import BrokerConfig
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.meta.store import Entry, MetaStore

_KIND = "config"
_VERSION = 1


class ConfigResourceType(Enum):
    """Types of resources with a configuration; Kafka's names. Values are the first part of the keys
    in the meta store.
    """

    TOPIC = "topic"
    BROKER = "broker"
    BROKER_LOGGER = "broker-logger"
    CLIENT_METRICS = "client-metrics"
    GROUP = "group"


class ConfigResource(msgspec.Struct, frozen=True):
    """A resource with a configuration. The broker "" means all brokers."""

    type: ConfigResourceType
    name: str

    @property
    def guard(self) -> tuple[ResourceType, str]:
        """The resource that authorization checks."""
        if self.type is ConfigResourceType.TOPIC:
            return ResourceType.TOPIC, self.name
        if self.type is ConfigResourceType.GROUP:
            return ResourceType.GROUP, self.name
        return ResourceType.CLUSTER, CLUSTER_NAME


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(tuple[int, dict[str, str]])


_ACTIONS: Final = {each: f"{each.value.replace('-', '_')}.configure" for each in ConfigResourceType}
"""The audit's name for a change of each type."""
_ALL_NODES: Final = ConfigResource(ConfigResourceType.BROKER, "")


class ConfigService:
    """All configurations. Loop thread only. Changes are durable when `alter` or `replace`
    returns.
    """

    def __init__(
        self,
        config: BrokerConfig,
        meta: MetaStore,
        topics: TopicRegistry,
        access: Access,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit or Audit()
        self._config = config
        self._meta = meta
        self._topics = topics
        self._access = access
        self._changes = Changes(meta)
        self._values: dict[ConfigResource, dict[str, str]] = {}
        self.group_changed: Callable[[str], Awaitable[None]] = _no_follower
        """Called when the values of a group have changed; set by the composition of the broker."""

    async def load(self) -> None:
        """Read the stored values; call it before the topics are loaded.

        Raises:
            DirectoryUnreadable, NewerFormat: an entry is no configuration, or one of a later
                Sparrow.
        """
        for entry in await self._meta.scan(_KIND):
            resource, values = _decode(entry)
            self._values[resource] = values
        await self._follow()

    async def settle(self) -> None:
        """Wait for changes whose callers have gone away."""
        await self._changes.settle()

    # ── describing ────────────────────────────────────────────────────────────────────────────────

    def describe(
        self, resource: ConfigResource, node_values: Mapping[str, str], *, principal: Principal
    ) -> list[DescribedConfig]:
        """Return every configuration of a resource.

        Args:
            node_values: values of this broker that a frontend knows (its listeners), by the
                names in `node_config`.

        Raises:
            UnknownTopic, InvalidTopicName, InvalidArgument, NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE_CONFIGS, *resource.guard)
        self._check_resource(resource)
        match resource.type:
            case ConfigResourceType.TOPIC:
                return describe_topic(self._topics.get(resource.name).config, self._layers(node_values))
            case ConfigResourceType.BROKER if not resource.name:
                return describe_cluster_defaults(self._of(_ALL_NODES))
            case ConfigResourceType.BROKER:
                return describe_node(self._layers(node_values))
            case ConfigResourceType.BROKER_LOGGER:
                return describe_loggers(loggers.levels())
            case ConfigResourceType.GROUP:
                return describe_group(self._of(resource), self._layers(node_values))
            case ConfigResourceType.CLIENT_METRICS:
                return describe_client_metrics(self._of(resource))

    def of_group(self, group: str) -> Mapping[str, str]:
        """Return the values that are set on a group itself."""
        return self._of(ConfigResource(ConfigResourceType.GROUP, group))

    def of_node(self, name: str) -> str:
        """Return the current value of a configuration of this broker that can be changed at run
        time; "" if there is none.
        """
        return next((synonym.value or "" for synonym in self._layers({}).synonyms(name)), "")

    def preview(
        self, topic: str, config: Mapping[str, str], *, principal: Principal
    ) -> list[DescribedConfig]:
        """Return every configuration that a topic with these values would have, whether it exists
        or not.

        Raises:
            InvalidConfig, NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic)
        return describe_topic(TopicConfig(check_config(config), self._topics.defaults), self._layers({}))

    def resources(
        self, types: Collection[ConfigResourceType], *, principal: Principal
    ) -> list[ConfigResource]:
        """Return the resources with a configuration: this broker and its loggers, all topics, and
        the subscriptions and groups that have values of their own.

        Raises:
            NotAuthorized
        """
        self._access.require_cluster(principal, Operation.DESCRIBE_CONFIGS)
        found = [
            ConfigResource(ConfigResourceType.TOPIC, name) for name in sorted(t.name for t in self._topics)
        ]
        found += [self._node, ConfigResource(ConfigResourceType.BROKER_LOGGER, self._node.name)]
        named = (ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP)
        found += sorted((r for r in self._values if r.type in named), key=_name)
        return [resource for resource in found if resource.type in types]

    # ── changing ──────────────────────────────────────────────────────────────────────────────────

    async def alter(
        self,
        resource: ConfigResource,
        changes: Sequence[ConfigChange],
        *,
        validate_only: bool = False,
        principal: Principal,
    ) -> None:
        """Change some configurations of a resource, or only check that the changes are valid.

        Raises:
            InvalidConfig: no such name, or an invalid value.
            InvalidArgument: a name twice, a null value, or a configuration that cannot be changed
                while the broker runs. UnknownTopic, InvalidTopicName, NotAuthorized
        """
        with self._act(resource, [each.name for each in changes], principal, validate_only=validate_only):
            self._access.require(principal, Operation.ALTER_CONFIGS, *resource.guard)
            self._check_alterable(resource)
            check_changes(changes)
            if resource.type is ConfigResourceType.BROKER_LOGGER:
                loggers.check_level_changes(changes)
                if not validate_only:
                    loggers.change_levels(changes)
                return
            await self._changes.carry_out(
                partial(self._alter, resource, changes, validate_only=validate_only)
            )

    async def replace(
        self,
        resource: ConfigResource,
        values: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        principal: Principal,
    ) -> None:
        """Set exactly these configurations of a resource; the others return to their defaults.

        Raises:
            as `alter`; InvalidArgument for loggers.
        """
        with self._act(resource, [*values], principal, validate_only=validate_only):
            self._access.require(principal, Operation.ALTER_CONFIGS, *resource.guard)
            if resource.type is ConfigResourceType.BROKER_LOGGER:
                raise InvalidArgument(
                    "levels of loggers are changed one by one (IncrementalAlterConfigs), not replaced"
                )
            self._check_alterable(resource)
            check_changes(replacing({}, values))
            await self._changes.carry_out(
                partial(self._replace, resource, values, validate_only=validate_only)
            )

    def _act(
        self, resource: ConfigResource, changed: Sequence[str], principal: Principal, *, validate_only: bool
    ) -> Act:
        action = _ACTIONS[resource.type]
        kind, guarded = resource.guard
        act = self._audit.act(principal, action, kind, resource.name or guarded, set=names(changed))
        if validate_only:
            act.discard()
        return act

    async def _replace(
        self, resource: ConfigResource, values: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        changes = replacing(self._set_on(resource), values)
        await self._alter(resource, changes, validate_only=validate_only)

    async def _alter(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> None:
        before = self._set_on(resource)
        after = changed(before, changes, _RULES[resource.type].kind_of, partial(self._default_of, resource))
        touched = {change.name: after[change.name] for change in changes if change.name in after}
        _RULES[resource.type].check(touched)
        if resource.type is ConfigResourceType.GROUP:
            check_group_as_a_whole(after, self._config)
        if validate_only:
            return
        if resource.type is ConfigResourceType.TOPIC:
            unset = [change.name for change in changes if change.name not in after]
            await self._topics.configure(resource.name, touched, unset)
        else:
            await self._keep(resource, after)

    async def _keep(self, resource: ConfigResource, values: dict[str, str]) -> None:
        key = f"{resource.type.value}/{resource.name}"
        if values:
            await self._meta.write([Put(_KIND, key, _ENCODER.encode((_VERSION, values)))])
            self._values[resource] = values
        else:
            await self._meta.write([Delete(_KIND, key)])
            self._values.pop(resource, None)
        if resource.type is ConfigResourceType.BROKER:
            await self._follow()
        if resource.type is ConfigResourceType.GROUP:
            await self.group_changed(resource.name)

    async def _follow(self) -> None:
        """Apply the values set on brokers to the topics."""
        dynamic = as_topic_defaults({**self._of(_ALL_NODES), **self._of(self._node)})
        await self._topics.set_defaults({**self._config.topic_defaults, **dynamic})

    # ── stored values ─────────────────────────────────────────────────────────────────────────────

    @property
    def _node(self) -> ConfigResource:
        return ConfigResource(ConfigResourceType.BROKER, str(self._config.node_id))

    def _of(self, resource: ConfigResource) -> Mapping[str, str]:
        return self._values.get(resource, {})

    def _set_on(self, resource: ConfigResource) -> Mapping[str, str]:
        if resource.type is ConfigResourceType.TOPIC:
            return self._topics.get(resource.name).config.overrides
        return self._of(resource)

    def _layers(self, node_values: Mapping[str, str]) -> NodeLayers:
        return NodeLayers(
            self._of(self._node), self._of(_ALL_NODES), static_values(self._config, node_values)
        )

    def _default_of(self, resource: ConfigResource, name: str) -> str | None:
        """Return the default of a list that is not set on the resource itself."""
        match resource.type:
            case ConfigResourceType.TOPIC:
                return self._topics.get(resource.name).config.value(name)
            case ConfigResourceType.BROKER:
                return next((synonym.value for synonym in self._layers({}).synonyms(name)), None)
            case ConfigResourceType.GROUP:
                return GROUP_CONFIGS[name].default(self._config)
            case _:
                return CLIENT_METRICS[name].default

    def _check_alterable(self, resource: ConfigResource) -> None:
        if resource.type is ConfigResourceType.TOPIC and not resource.name:
            raise InvalidArgument("a topic needs a name; defaults of topics are set on the broker")
        self._check_resource(resource)

    def _check_resource(self, resource: ConfigResource) -> None:
        """Check that the resource exists; a topic is checked later."""
        match resource.type:
            case ConfigResourceType.BROKER if resource.name not in {"", self._node.name}:
                raise InvalidArgument(
                    f"there is no broker {resource.name!r}: this is broker {self._node.name}"
                )
            case ConfigResourceType.BROKER_LOGGER if resource.name != self._node.name:
                raise InvalidArgument(
                    f"loggers are those of broker {self._node.name}, not of {resource.name!r}"
                )
            case ConfigResourceType.CLIENT_METRICS if not resource.name:
                raise InvalidArgument("a subscription to clients' metrics needs a name")
            case ConfigResourceType.GROUP if not resource.name:
                raise InvalidArgument("a group needs a name; defaults of groups are set on the broker")
            case _:
                return


# ── valid values by resource ──────────────────────────────────────────────────────────────────────


class _Rules(NamedTuple):
    kind_of: Callable[[str], Kind[Any]]
    check: Callable[[Mapping[str, str]], object]


def _kind_for_topic(name: str) -> Kind[Any]:
    check_name(name)
    return TOPIC_CONFIGS[name].kind


def _kind_for_node(name: str) -> Kind[Any]:
    row = NODE_CONFIGS.get(name)
    if row is None:
        raise InvalidArgument(f"there is no configuration {name!r} of a broker")
    if not row.is_dynamic:
        raise InvalidArgument(
            f"{name} cannot be changed while the broker runs; set it in the broker's own configuration"
        )
    return row.kind


def _check_for_node(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        try:
            NODE_CONFIGS[name].kind.read(value)
        except ValueError as error:
            raise InvalidArgument(f"{name} cannot be {value!r}: it takes {error}") from None


def _kind_for_clients(name: str) -> Kind[Any]:
    if name not in CLIENT_METRICS:
        raise InvalidConfig(f"there is no configuration {name!r} of clients' metrics")
    return CLIENT_METRICS[name].kind


def _check_for_clients(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        try:
            CLIENT_METRICS[name].kind.read(value)
        except ValueError as error:
            raise InvalidConfig(f"{name} cannot be {value!r}: it takes {error}") from None


_RULES: Final = {
    ConfigResourceType.TOPIC: _Rules(_kind_for_topic, check_config),
    ConfigResourceType.BROKER: _Rules(_kind_for_node, _check_for_node),
    ConfigResourceType.CLIENT_METRICS: _Rules(_kind_for_clients, _check_for_clients),
    ConfigResourceType.GROUP: _Rules(kind_of_group_config, check_group_config),
}


async def _no_follower(_group: str) -> None:
    """Do nothing: groups read their values when they need them."""


def _name(resource: ConfigResource) -> str:
    return resource.name


def _decode(entry: Entry) -> tuple[ConfigResource, dict[str, str]]:
    type_, _, name = entry.key.partition("/")
    with entries.readable(entry):
        version, values = _DECODER.decode(entry.value)
        resource = ConfigResource(ConfigResourceType(type_), name)
    entries.check_version(entry, version, _VERSION)
    return resource, values
