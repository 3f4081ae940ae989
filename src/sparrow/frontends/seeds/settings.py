"""What the doors for seed systems are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SeedSettings:
    """Times in milliseconds."""

    host: str = "127.0.0.1"
    ports: Mapping[str, int] = field(default_factory=dict)
    """Door → port, 0 for a free one: diy_message_broker, messagebroker, mbus, mbus_consumer, msbq, syncbrok. Those that are missing stay closed."""
    max_connections: int = 10_000
    """At each port."""
    max_message_bytes: int = 1 << 20
    idle_timeout_ms: int = 60_000
    """How long a client may take to go on within a message that it began."""
    ack_timeout_ms: int = 2_000
    """messagebroker: how long a subscriber may take to acknowledge."""
    ack_delay_ms: int = 1_000
    """messagebroker: how long a message waits that was not acknowledged."""
    redeliveries: int = 5
    """messagebroker: how often it is delivered again before it goes to the dead letters."""
    stall_timeout_ms: int = 10_000
    """msbq: how long a consumer may take nothing of what was sent to it."""
    private_endpoints: bool = True
    """Syncbrok: whether its clients may name endpoints with loopback and private addresses."""
