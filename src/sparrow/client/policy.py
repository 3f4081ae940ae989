"""A queue's policy as programs write it: the words and units of the configuration file.

await client.admin.ensure_queue("emails", policy={"lease": "30s", "delivery_limit": 3})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from sparrow.base.queue_policy import read_settings
from sparrow.client.options import QueueOptions, epoch_ms

Duration = str | int | timedelta
"""Text with a unit ("500ms", "30s", "1h30m"), a timedelta, or a whole number of milliseconds."""


class Policy(TypedDict, total=False):
    """Settings of a queue; those left out have their defaults in a new queue, and do not change in
    an existing one. `docs/queues.md` explains each.
    """

    lease: Duration
    delivery_limit: int
    backoff: Literal["fixed", "linear", "exponential"]
    backoff_delay: Duration
    backoff_max: Duration
    jitter: float
    prefetch: int
    max_leased: int
    rate: float
    """Deliveries per second; 0: no limit."""
    order: Literal["none", "key", "parented"]
    expiry: Duration
    dead_letter_topic: str | None
    """A name, "" for `QUEUE.dead`, or None for none."""
    start: str | datetime | Mapping[str, int]
    """"beginning", "end", or a time."""
    parent_wait: Duration
    parent_failed: Literal["follow", "release"]
    subscribers: Sequence[str]
    on_corrupt: Literal["fail", "skip"]
    lease_durability: Literal["synced", "buffered"]
    isolation: Literal["read_committed", "read_uncommitted"]
    # The same by the names in descriptions of queues.
    lease_ms: Duration
    backoff_ms: Duration
    backoff_max_ms: Duration
    backoff_jitter: float
    expiry_ms: Duration
    parent_wait_ms: Duration


def settings_of(policy: Policy | None) -> dict[str, Any]:
    """Return the settings by name, as they are sent.

    Raises:
        InvalidConfig: names every setting that does not exist or has a wrong value, with a
            suggestion.
        InvalidArgument: a time without time zone.
    """
    if policy is None:
        return {}
    given: object = policy
    if isinstance(given, dict) and isinstance(given.get("start"), datetime):
        # The parser accepts any datetime; here one without time zone is a mistake.
        given = {**given, "start": f"timestamp:{epoch_ms('start', given['start'])}"}
    return read_settings(given)


def queue_options(
    prefetch: int, subscriber: str | None, policy: Policy | None, *, create: bool
) -> QueueOptions:
    """Return options of a queue from a program's arguments. Raises InvalidArgument,
    InvalidConfig.
    """
    return QueueOptions(
        prefetch=prefetch,
        subscriber=subscriber or "",
        create=create,
        policy=None if policy is None else settings_of(policy),
    )
