"""Public state of an endpoint: its settings, its condition, and counts since the broker started."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparrow.broker.webhooks.endpoint import Endpoint

WAITING = "waiting"
"""No delivery yet: it was created just now, or the queue has no subscriber of its name."""
DELIVERING = "delivering"
HELD = "held"
"""It asked for time (Retry-After)."""
FAILING = "failing"
"""It failed so often that only a probe is sent now and then."""
PAUSED = "paused"
"""Paused by an administrator, or because it answered that it is gone."""
REFUSED = "refused"
"""Its owner may not read the queue or its topics any more."""
HIDDEN = "hidden"


@dataclass(slots=True)
class EndpointStatistics:
    """Counts since the broker started, kept by the webhook frontend; times are wall ms, -1:
    never.
    """

    state: str = WAITING
    until_ms: int = -1
    """HELD, FAILING: the time of the next attempt."""
    attempts: int = 0
    delivered: int = 0
    """Accepted deliveries."""
    failed: int = 0
    """Attempts that were not accepted."""
    returned: int = 0
    """Records that were released without an attempt that counts."""
    throttled: int = 0
    """Attempts that were answered with a Retry-After."""
    pauses: int = 0
    """Number of pauses after repeated failures."""
    in_flight: int = 0
    consecutive_failures: int = 0
    last_error: str = ""
    last_error_ms: int = -1
    last_success_ms: int = -1
    seconds: float = 0.0
    """Duration of all attempts together."""


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """One endpoint as it is shown."""

    queue: str
    name: str
    settings: dict[str, Any]
    """All but the secrets; of the headers the names only."""
    secrets: list[int]
    """For each secret the time (wall ms) until which it signs, the newest first; 0: without end."""
    owner: str
    is_trusted: bool
    is_paused: bool
    paused_because: str
    created_ms: int
    statistics: EndpointStatistics = field(default_factory=EndpointStatistics)
    secret: str = ""
    """The secret that was created just now; it is not shown again."""


def describe(
    endpoint: Endpoint, statistics: EndpointStatistics, now_ms: int, secret: str = ""
) -> EndpointInfo:
    """Return the description of an endpoint, without what is never shown again."""
    settings = endpoint.settings.values()
    settings["headers"] = dict.fromkeys(settings["headers"], HIDDEN)
    settings["accept"] = endpoint.settings.accepts
    if endpoint.is_paused:
        statistics = replace(statistics, state=PAUSED, until_ms=-1)
    elif statistics.state == HELD and statistics.until_ms <= now_ms:
        statistics = replace(statistics, state=DELIVERING, until_ms=-1)
    return EndpointInfo(
        endpoint.queue,
        endpoint.name,
        settings,
        [each.until_ms for each in endpoint.live_secrets(now_ms)],
        str(endpoint.owner),
        endpoint.is_trusted,
        endpoint.is_paused,
        endpoint.paused_because,
        endpoint.created_ms,
        statistics,
        secret,
    )
