"""Configurations of groups (Kafka's names, resource type GROUP): consumer groups (KIP-848), share
groups (KIP-932) and their dead letters (KIP-1191).

A group without a value of its own has that of the broker's configuration if there is one, else the
default. Names for the other kind of group have no effect; Kafka has one set of names for all, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from sparrow.base.errors import InvalidConfig, InvalidTopicName
from sparrow.base.settings import Kind
from sparrow.broker.config import (
    DELIVERY_COUNT_BOUNDS,
    HEARTBEAT_BOUNDS,
    MAX_RECORD_LOCKS_BOUNDS,
    RECORD_LOCK_BOUNDS,
    SESSION_BOUNDS,
    BrokerConfig,
)
from sparrow.broker.configs.values import BOOLEAN, ConfigType, integer, one_of
from sparrow.broker.names import check_topic_name

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SHARE_RECORD_LOCK_DURATION: Final = "share.record.lock.duration.ms"
SHARE_DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
SHARE_MAX_RECORD_LOCKS: Final = "share.partition.max.record.locks"
SHARE_AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION_LEVEL: Final = "share.isolation.level"
SHARE_RENEW_ACKNOWLEDGE: Final = "share.renew.acknowledge.enable"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY: Final = "errors.deadletterqueue.copy.record.enable"

BY_DURATION: Final = "by_duration:"
_DAY_MS: Final = 86_400_000
_DURATION: Final = re.compile(
    r"(?P<all>[-+]?)P(?:(?P<days>[-+]?\d{1,12})D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d{1,12})H)?(?:(?P<minutes>[-+]?\d{1,12})M)?(?:(?P<seconds>[-+]?\d{1,12}(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


def duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration as ISO 8601 and Java write it (PnDTnHnMn.nS); None if
    the text is malformed, or negative.
    """
    found = _DURATION.fullmatch(text)
    if found is None or (found["time"] or "").upper() == "T":
        return None
    parts = [found["days"], found["hours"], found["minutes"], found["seconds"]]
    if all(part is None for part in parts):
        return None
    days, hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in parts)
    total_ms = round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
    total_ms = -total_ms if found["all"] == "-" else total_ms
    return total_ms if total_ms >= 0 else None


def _offset_reset(given: object) -> str:
    text = str(given)
    is_duration = text.startswith(BY_DURATION) and duration_ms(text.removeprefix(BY_DURATION)) is not None
    if not (text in {"latest", "earliest"} or is_duration):
        raise ValueError("latest, earliest, or by_duration:PnDTnHnMn.nS, such as by_duration:P1DT12H")
    return text


def _dead_letter_topic(given: object) -> str:
    text = str(given)
    if text.startswith("__"):
        raise ValueError("the name of a topic that does not begin with '__'")
    if text:
        try:
            check_topic_name(text)
        except InvalidTopicName:
            raise ValueError("the name of a topic, or nothing") from None
    return text


class GroupConfig(Struct, frozen=True):
    """A configuration of groups.

    Args:
        field: the field of `BrokerConfig` with the default of all groups; "": `constant` is the
            default.
    """

    name: str
    kind: Kind[Any]
    field: str
    help: str
    constant: str = ""

    def default(self, config: BrokerConfig) -> str:
        """Return the value on this broker of groups that do not set it."""
        return str(getattr(config, self.field)) if self.field else self.constant


GROUP_CONFIGS: Final[Mapping[str, GroupConfig]] = {
    row.name: row
    for row in (
        GroupConfig(
            SESSION_TIMEOUT,
            integer(*SESSION_BOUNDS),
            "group_session_timeout_ms",
            "Milliseconds without a heartbeat after which a member is removed.",
        ),
        GroupConfig(
            HEARTBEAT_INTERVAL,
            integer(*HEARTBEAT_BOUNDS),
            "group_heartbeat_interval_ms",
            "Milliseconds between the heartbeats of a member.",
        ),
        GroupConfig(
            SHARE_SESSION_TIMEOUT,
            integer(*SESSION_BOUNDS),
            "group_session_timeout_ms",
            "Milliseconds without a heartbeat after which a member of a share group is removed.",
        ),
        GroupConfig(
            SHARE_HEARTBEAT_INTERVAL,
            integer(*HEARTBEAT_BOUNDS),
            "group_heartbeat_interval_ms",
            "Milliseconds between the heartbeats of a member of a share group.",
        ),
        GroupConfig(
            SHARE_RECORD_LOCK_DURATION,
            integer(*RECORD_LOCK_BOUNDS),
            "share_record_lock_duration_ms",
            "Milliseconds for which a record that a member acquired is kept from the others.",
        ),
        GroupConfig(
            SHARE_DELIVERY_COUNT_LIMIT,
            integer(*DELIVERY_COUNT_BOUNDS),
            "share_delivery_count_limit",
            "Deliveries of a record before it is given up.",
        ),
        GroupConfig(
            SHARE_MAX_RECORD_LOCKS,
            integer(*MAX_RECORD_LOCKS_BOUNDS),
            "share_max_record_locks",
            "Limit of the records of a partition that are acquired at a time.",
        ),
        GroupConfig(
            SHARE_AUTO_OFFSET_RESET,
            Kind(ConfigType.STRING, _offset_reset),
            "",
            "Start position of a share group in a partition: latest, earliest, or "
            "by_duration:PnDTnHnMn.nS (so long ago).",
            "latest",
        ),
        GroupConfig(
            SHARE_ISOLATION_LEVEL,
            one_of("read_committed", "read_uncommitted"),
            "",
            "Selects if records of open and aborted transactions are delivered.",
            "read_uncommitted",
        ),
        GroupConfig(
            SHARE_RENEW_ACKNOWLEDGE,
            BOOLEAN,
            "",
            "Allows members to keep acquired records for longer (KIP-1222).",
            "true",
        ),
        GroupConfig(
            DEAD_LETTER_TOPIC,
            Kind(ConfigType.STRING, _dead_letter_topic),
            "",
            "Topic for records that were rejected, or delivered as often as possible; empty: there is none.",
        ),
        GroupConfig(
            DEAD_LETTER_COPY,
            BOOLEAN,
            "",
            "Gives dead letters the key and the value of their record; else only headers that describe it.",
            "false",
        ),
    )
}


def check_group_config(values: Mapping[str, str]) -> None:
    """Check that a group may have these values.

    Raises:
        InvalidConfig: no such name, or an invalid value.
    """
    for name, value in values.items():
        try:
            kind_of_group_config(name).read(value)
        except ValueError as error:
            raise InvalidConfig(f"{name} cannot be {value!r}: it takes {error}") from None


def check_group_as_a_whole(values: Mapping[str, str], config: BrokerConfig) -> None:
    """Check that values of a group, each valid by itself, are valid together.

    Raises:
        InvalidConfig: sessions would end before the next heartbeat.
    """
    pairs = ((SESSION_TIMEOUT, HEARTBEAT_INTERVAL), (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL))
    for session, heartbeat in pairs:
        if session not in values and heartbeat not in values:
            continue
        session_ms, heartbeat_ms = (
            int(values.get(name, GROUP_CONFIGS[name].default(config))) for name in (session, heartbeat)
        )
        if session_ms <= heartbeat_ms:
            raise InvalidConfig(
                f"{session} ({session_ms}) must be greater than {heartbeat} ({heartbeat_ms}); set both"
            )


def kind_of_group_config(name: str) -> Kind[Any]:
    """Return the type of a configuration of groups.

    Raises:
        InvalidConfig: there is no such configuration.
    """
    if name not in GROUP_CONFIGS:
        raise InvalidConfig(
            f"there is no configuration {name!r} of groups; there are {', '.join(GROUP_CONFIGS)}"
        )
    return GROUP_CONFIGS[name].kind
