"""Settings of the listeners for seed systems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparrow.base.settings import BOOLEAN, duration, integer, option, size
from sparrow.frontends.listener_limits import ListenerLimits

DEFAULT_MAX_MESSAGE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSettings(ListenerLimits):
    """Settings of the listeners for seed systems. Times in milliseconds. `max_connections` is the
    limit of each port, `idle_timeout_ms` the time that a client may pause within a message.
    """

    host: str = "127.0.0.1"
    ports: Mapping[str, int] = field(default_factory=dict)
    """The port of each listener, 0 for a free one: diy_message_broker, messagebroker, mbus,
    mbus_consumer, msbq, syncbrok. Listeners without a port stay closed.
    """
    max_message_bytes: int = option(
        "seeds.max_message",
        size(1 << 10, 32 << 20),
        DEFAULT_MAX_MESSAGE_BYTES,
        "Largest message that clients of seed systems may send. Topics that are made for them take "
        "such messages.",
    )
    ack_timeout_ms: int = option(
        "seeds.messagebroker.ack_timeout",
        duration(10, 3_600_000),
        2_000,
        "Maximum time for a subscriber of messagebroker to acknowledge a message.",
    )
    ack_delay_ms: int = option(
        "seeds.messagebroker.ack_delay",
        duration(0, 3_600_000),
        1_000,
        "Delay before a message that a subscriber of messagebroker did not acknowledge is delivered again.",
    )
    redeliveries: int = option(
        "seeds.messagebroker.redeliveries",
        integer(0, 250),
        4,
        "Number of further deliveries before it becomes a dead letter.",
    )
    stall_timeout_ms: int = option(
        "seeds.msbq.stall_timeout",
        duration(100, 3_600_000),
        10_000,
        "Time without reading after which the connection of a consumer of msbq ends.",
    )
    endpoint_timeout_ms: int = option(
        "seeds.syncbrok.timeout",
        duration(100, 600_000),
        600_000,
        "Maximum time for an endpoint of Syncbrok to answer a delivery.",
        name="seeds_syncbrok_timeout_ms",
    )
    """The original has no limit; this is the maximum for webhooks."""
    private_endpoints: bool = option(
        "seeds.syncbrok.private_endpoints",
        BOOLEAN,
        True,
        "Allow endpoints that clients of Syncbrok name to have loopback and private addresses.",
    )
