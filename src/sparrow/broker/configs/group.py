"""What can be configured of a consumer group while it runs (KIP-848; Kafka's names, resource type GROUP).

What a group does not set holds for all groups by the broker's configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidConfig
from sparrow.broker.configs.values import Kind, integer

if TYPE_CHECKING:
    from sparrow.broker.config import BrokerConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A configuration of groups. `field`: of `BrokerConfig`, what holds unless a group sets its own."""

    name: str
    kind: Kind
    field: str
    help: str

    def default(self, config: BrokerConfig) -> str:
        """What holds on this broker for groups that do not set it."""
        return str(getattr(config, self.field))


GROUP_CONFIGS: Final[Mapping[str, GroupConfig]] = {
    row.name: row
    for row in (
        GroupConfig(
            SESSION_TIMEOUT,
            integer(1_000, 3_600_000),
            "consumer_group_session_timeout_ms",
            "After how many milliseconds without a heartbeat a member is put out.",
        ),
        GroupConfig(
            HEARTBEAT_INTERVAL,
            integer(50, 600_000),
            "consumer_group_heartbeat_interval_ms",
            "How many milliseconds members wait between heartbeats.",
        ),
    )
}


def check_group_config(values: Mapping[str, str]) -> None:
    """Whether a group may have these values.

    Raises:
        InvalidConfig: no such name, or a value that it does not take.
    """
    for name, value in values.items():
        try:
            kind_of_group_config(name).parse(value)
        except ValueError as error:
            raise InvalidConfig(f"{name} cannot be {value!r}: it takes {error}") from None


def kind_of_group_config(name: str) -> Kind:
    """The type of a configuration of groups.

    Raises:
        InvalidConfig: there is no such.
    """
    if name not in GROUP_CONFIGS:
        raise InvalidConfig(
            f"there is no configuration {name!r} of groups; there are {', '.join(GROUP_CONFIGS)}"
        )
    return GROUP_CONFIGS[name].kind
