"""Settings of one share group: its own configuration over the broker's, as one frozen object
(Kafka's names in brackets).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from sparrow.broker.configs import group as names
from sparrow.broker.configs.group import GROUP_CONFIGS
from sparrow.broker.reading.positions import BEGINNING, END, TIMESTAMP, StartPosition

if TYPE_CHECKING:
    from sparrow.broker.config import BrokerConfig


class ShareSettings(Struct, frozen=True):
    """Settings of one share group. Times in milliseconds."""

    session_timeout_ms: int = 45_000
    """(share.session.timeout.ms)"""
    heartbeat_interval_ms: int = 5_000
    """(share.heartbeat.interval.ms)"""
    max_members: int = 200
    """(group.share.max.size)"""
    record_lock_duration_ms: int = 30_000
    """(share.record.lock.duration.ms)"""
    delivery_count_limit: int = 5
    """(share.delivery.count.limit)"""
    max_record_locks: int = 2_000
    """Limit of one partition (share.partition.max.record.locks)."""
    auto_offset_reset: str = "latest"
    """ "latest", "earliest" or "by_duration:PnDTnHnMn.nS" (share.auto.offset.reset)"""
    reads_committed_only: bool = False
    """(share.isolation.level)"""
    may_renew: bool = True
    """(share.renew.acknowledge.enable)"""
    dead_letter_topic: str = ""
    """"": there is none (errors.deadletterqueue.topic.name)"""
    copies_dead_letters: bool = False
    """True if a dead letter has the key and value of its record
    (errors.deadletterqueue.copy.record.enable).
    """

    def start(self, now_ms: int) -> StartPosition:
        """Return the start position of a partition that the group reads from now (wall clock)
        on.
        """
        if self.auto_offset_reset == "earliest":
            return StartPosition(BEGINNING)
        ago_ms = names.duration_ms(self.auto_offset_reset.removeprefix(names.BY_DURATION))
        return StartPosition(END) if ago_ms is None else StartPosition(TIMESTAMP, max(0, now_ms - ago_ms))


def share_settings(config: BrokerConfig, setting: Callable[[str], str | None]) -> ShareSettings:
    """Return the settings of a group: its own, else those of the broker."""

    def value(name: str) -> str:
        own = setting(name)
        return GROUP_CONFIGS[name].default(config) if own is None else own

    return ShareSettings(
        int(value(names.SHARE_SESSION_TIMEOUT)),
        int(value(names.SHARE_HEARTBEAT_INTERVAL)),
        config.share_max_members,
        int(value(names.SHARE_RECORD_LOCK_DURATION)),
        int(value(names.SHARE_DELIVERY_COUNT_LIMIT)),
        int(value(names.SHARE_MAX_RECORD_LOCKS)),
        value(names.SHARE_AUTO_OFFSET_RESET),
        value(names.SHARE_ISOLATION_LEVEL) == "read_committed",
        value(names.SHARE_RENEW_ACKNOWLEDGE).lower() == "true",
        value(names.DEAD_LETTER_TOPIC),
        value(names.DEAD_LETTER_COPY).lower() == "true",
    )


def why_no_dead_letters(
    topic: str, *, prefix: str, is_enabled: bool | None, makes_missing: bool
) -> str | None:
    """Return why a share group may not write dead letters to a topic (KIP-1191), or None if it may.

    Args:
        prefix: required beginning of the topic's name (errors.deadletterqueue.topic.name.prefix).
        is_enabled: the topic's own setting (errors.deadletterqueue.group.enable); None: there is no
            such topic.
        makes_missing: True if the topic would be created
            (errors.deadletterqueue.auto.create.topics.enable).
    """
    if not topic.startswith(prefix):
        return (
            f"the name of the dead-letter topic {topic!r} does not begin with {prefix!r}"
            " (errors.deadletterqueue.topic.name.prefix)"
        )
    if is_enabled is None:
        return (
            None
            if makes_missing
            else (
                f"there is no topic {topic!r}, and errors.deadletterqueue.auto.create.topics.enable is false"
            )
        )
    if not is_enabled:
        return (
            f"the topic {topic!r} does not allow dead letters: errors.deadletterqueue.group.enable is false"
        )
    return None
