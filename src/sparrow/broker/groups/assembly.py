"""Puts the kinds of groups under their roof."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sparrow.broker.configs.group import GROUP_CONFIGS, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from sparrow.broker.groups.classic.coordinator import ClassicGroups, SessionLimits
from sparrow.broker.groups.classic.group import ClassicLimits
from sparrow.broker.groups.consumer.coordinator import ConsumerGroups, ConsumerLimits
from sparrow.broker.groups.groups import Groups
from sparrow.broker.groups.native.coordinator import GroupCoordinator
from sparrow.broker.groups.share.coordinator import ShareGroups
from sparrow.broker.groups.share.settings import share_settings

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.config import BrokerConfig
    from sparrow.broker.groups.consumer.coordinator import FindTopic
    from sparrow.meta.store import MetaStore


GroupSetting = Callable[[str, str], str | None]
"""What a group sets of a configuration (`group_config`), or None."""


def assemble(
    meta: MetaStore,
    clock: Clock,
    config: BrokerConfig,
    find_topic: FindTopic = lambda _name: None,
    setting: GroupSetting = lambda _group, _name: None,
) -> Groups:
    """All kinds of groups that a broker has, not loaded yet.

    Args:
        find_topic: the topics of the broker, live; consumer groups need their ids.
        setting: what is configured of single groups, live.
    """
    groups = Groups(meta, clock, offsets_retention_ms=config.offsets_retention_ms)
    groups.native = GroupCoordinator(groups)
    groups.register(groups.native)
    classic_limits = ClassicLimits(config.group_initial_rebalance_delay_ms, config.group_max_members)
    groups.classic = ClassicGroups(
        groups,
        classic_limits,
        SessionLimits(config.group_min_session_timeout_ms, config.group_max_session_timeout_ms),
    )
    groups.register(groups.classic)
    groups.consumer = ConsumerGroups(
        groups, find_topic, lambda group: consumer_limits(config, partial(setting, group)), classic_limits
    )
    groups.register(groups.consumer)
    groups.share = ShareGroups(
        groups,
        groups.consumer.topics,
        lambda group: share_settings(config, partial(setting, group)),
        config.share_group_max_groups,
    )
    groups.register(groups.share, is_lasting=True)
    return groups


def consumer_limits(config: BrokerConfig, setting: Callable[[str], str | None]) -> ConsumerLimits:
    """The limits of a consumer group that sets something itself, or nothing."""

    def value(name: str) -> int:
        return int(setting(name) or GROUP_CONFIGS[name].default(config))

    policy = config.group_migration_policy
    return ConsumerLimits(
        value(SESSION_TIMEOUT),
        value(HEARTBEAT_INTERVAL),
        config.group_max_members,
        can_upgrade=policy in {"upgrade", "bidirectional"},
        can_downgrade=policy in {"downgrade", "bidirectional"},
    )
