"""The policy of a Syncbrok queue and the settings of its endpoints, used by the listener and by
configuration files.

A queue is parented, each of its endpoints gets every message, and a message is tried without limit.
The original tries again at once and for ever; here the pause grows from 50 ms to half a minute. The
original also sends all messages concurrently, so that a slow one delays no other.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

POLICY: Final[Mapping[str, object]] = {
    "order": "parented",
    "delivery_limit": 0,
    "parent_wait_ms": 366 * 86_400_000,
}
ENDPOINT: Final[Mapping[str, object]] = {
    "format": "syncbrok",
    "concurrency": 256,
    "backoff_ms": 50,
    "backoff_max_ms": 30_000,
}
_OTHER: Final = re.compile(r"[^A-Za-z0-9.]+")
_MAX_KEPT: Final = 60
_DIGITS: Final = 10


def subscriber_of(url: str) -> str:
    """Return the subscriber name of a URL: readable, stable, and different for each URL.

    "http://localhost:20000/in" is `localhost-20000-in.` and the first digits of its SHA-256.
    """
    kept = _OTHER.sub("-", url.partition("://")[2]).strip("-.")[:_MAX_KEPT] or "endpoint"
    return f"{kept}.{hashlib.sha256(url.encode()).hexdigest()[:_DIGITS]}"
