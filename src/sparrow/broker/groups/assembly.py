"""The groups of a broker: the registry together with the coordinators of all kinds of groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sparrow.broker.configs.group import GROUP_CONFIGS, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from sparrow.broker.groups.classic.coordinator import ClassicGroupCoordinator, SessionLimits
from sparrow.broker.groups.classic.group import ClassicLimits
from sparrow.broker.groups.consumer.coordinator import ConsumerGroupCoordinator, ConsumerLimits
from sparrow.broker.groups.native.coordinator import NativeGroupCoordinator
from sparrow.broker.groups.registry import GroupRegistry
from sparrow.broker.groups.share.coordinator import ShareGroupCoordinator
from sparrow.broker.groups.share.settings import share_settings

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.config import BrokerConfig
    from sparrow.broker.groups.consumer.coordinator import FindTopic
    from sparrow.meta.store import MetaStore


GroupSetting = Callable[[str, str], str | None]
"""(group, name of a configuration) → the value that the group sets, or None."""


class BrokerGroups(GroupRegistry):
    """The group registry of a broker, with a coordinator for each kind of group.

    Call `load` before anything else.

    Args:
        find_topic: returns a topic of the broker by its name; consumer groups need topic ids.
        setting: returns a configuration value that is set for one group.
    """

    def __init__(
        self,
        meta: MetaStore,
        clock: Clock,
        config: BrokerConfig,
        find_topic: FindTopic = lambda _name: None,
        setting: GroupSetting = lambda _group, _name: None,
    ) -> None:
        super().__init__(meta, clock, offsets_retention_ms=config.offsets_retention_ms)
        classic_limits = ClassicLimits(config.group_initial_rebalance_delay_ms, config.group_max_members)
        self.native = NativeGroupCoordinator(self)
        self.classic = ClassicGroupCoordinator(
            self,
            classic_limits,
            SessionLimits(config.group_min_session_timeout_ms, config.group_max_session_timeout_ms),
        )
        self.consumer = ConsumerGroupCoordinator(
            self,
            self.classic,
            find_topic,
            lambda group: consumer_limits(config, partial(setting, group)),
            classic_limits,
        )
        self.share = ShareGroupCoordinator(
            self,
            self.consumer.topics,
            lambda group: share_settings(config, partial(setting, group)),
            config.share_max_groups,
        )
        self.register(self.native)
        self.register(self.classic)
        self.register(self.consumer)
        self.register(self.share, is_lasting=True)


def consumer_limits(config: BrokerConfig, setting: Callable[[str], str | None]) -> ConsumerLimits:
    """Return the limits of a consumer group: its own settings, else those of the broker."""

    def value(name: str) -> int:
        return int(setting(name) or GROUP_CONFIGS[name].default(config))

    policy = config.group_migration
    return ConsumerLimits(
        value(SESSION_TIMEOUT),
        value(HEARTBEAT_INTERVAL),
        config.group_max_members,
        can_upgrade=policy in {"upgrade", "bidirectional"},
        can_downgrade=policy in {"downgrade", "bidirectional"},
    )
