"""Settings of the listeners for seed systems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DEFAULT_MAX_MESSAGE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SeedSettings:
    """Settings of the listeners for seed systems. Times in milliseconds."""

    host: str = "127.0.0.1"
    ports: Mapping[str, int] = field(default_factory=dict)
    """The port of each listener, 0 for a free one: diy_message_broker, messagebroker, mbus,
    mbus_consumer, msbq, syncbrok. Listeners without a port stay closed.
    """
    max_connections: int = 10_000
    """Limit of each port."""
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    idle_timeout_ms: int = 60_000
    """Time that a client may pause within a message."""
    ack_timeout_ms: int = 2_000
    """messagebroker: how long a subscriber may take to acknowledge."""
    ack_delay_ms: int = 1_000
    """messagebroker: delay before a message that was not acknowledged is delivered again."""
    redeliveries: int = 4
    """messagebroker: how often a message is delivered again before it becomes a dead letter."""
    stall_timeout_ms: int = 10_000
    """msbq: how long a consumer may read nothing of what was sent to it."""
    endpoint_timeout_ms: int = 600_000
    """Syncbrok: how long an endpoint may take to respond. The original has no limit; this is the
    maximum for webhooks.
    """
    private_endpoints: bool = True
    """Syncbrok: True if clients may name endpoints with loopback and private addresses."""
