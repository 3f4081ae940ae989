"""Webhooks and their statistics."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from sparrow.model.result import Result


class WebhookStatistics(msgspec.Struct):
    """Statistics of a webhook. Counts are since the broker started; times are ms since the epoch,
    -1: never. Not frozen, as the broker counts in it.
    """

    state: str = "waiting"
    """ "delivering", "held" (it asked for time), "failing" (a probe now and then), "paused",
     "refused" (its owner may not read any more), "waiting".
    """
    until_ms: int = -1
    """Time of the next attempt, if it waits for one."""
    attempts: int = 0
    delivered: int = 0
    """Accepted deliveries."""
    failed: int = 0
    """Attempts that were not accepted."""
    returned: int = 0
    """Records that were released without an attempt that counts."""
    throttled: int = 0
    """Attempts whose response had a Retry-After."""
    pauses: int = 0
    """Number of pauses after repeated failures."""
    in_flight: int = 0
    consecutive_failures: int = 0
    last_error: str = ""
    last_error_ms: int = -1
    last_success_ms: int = -1
    seconds: float = 0.0
    """Total duration of all attempts."""


class WebhookDescription(Result, frozen=True):
    """A webhook: a subscriber of a queue that is a URL. `settings` has every setting by name but
    the secrets; see `docs/webhooks.md`.
    """

    queue: str
    name: str
    settings: dict[str, Any]
    secrets: list[int] = []
    """For each secret the time until which it signs (ms since the epoch), the newest first; 0: no
    limit.
    """
    owner: str = ""
    is_trusted: bool = False
    is_paused: bool = False
    paused_because: str = ""
    created_ms: int = -1
    statistics: WebhookStatistics = field(default_factory=WebhookStatistics)
    secret: Annotated[str, Meta(description="A secret that was just created. It is not shown again.")] = ""
