"""Public state of an endpoint: its settings, its condition, and counts since the broker started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparrow.model.webhooks import WebhookDescription, WebhookStatistics

if TYPE_CHECKING:
    from sparrow.broker.webhooks.endpoint import Endpoint

WAITING = "waiting"
"""No delivery yet: it was created just now, or the queue has no subscriber of its name."""
DELIVERING = "delivering"
HELD = "held"
"""It asked for time (Retry-After)."""
FAILING = "failing"
"""The endpoint failed so often that only a probe is sent from time to time."""
PAUSED = "paused"
"""Paused by an administrator, or because it answered that it is gone."""
REFUSED = "refused"
"""Its owner may not read the queue or its topics any more."""
HIDDEN = "hidden"


def describe(
    endpoint: Endpoint, statistics: WebhookStatistics, now_ms: int, secret: str = ""
) -> WebhookDescription:
    """Return the description of an endpoint, without what is never shown again."""
    settings = endpoint.settings.values()
    settings["headers"] = dict.fromkeys(settings["headers"], HIDDEN)
    settings["accept"] = endpoint.settings.accepts
    if endpoint.is_paused:
        statistics = replace(statistics, state=PAUSED, until_ms=-1)
    elif statistics.state == HELD and statistics.until_ms <= now_ms:
        statistics = replace(statistics, state=DELIVERING, until_ms=-1)
    return WebhookDescription(
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
