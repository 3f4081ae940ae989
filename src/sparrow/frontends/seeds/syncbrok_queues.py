"""What a queue of Syncbrok and an endpoint of it are here, whoever makes them: a client by its door, or a configuration file.

A queue is parented, each of its endpoints gets every message, and a message is tried for as long as it takes. The original tries again at once, without
an end; here a pause grows from almost nothing to half a minute.
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
    "backoff_ms": 50,
    "backoff_max_ms": 30_000,
}
_OTHER: Final = re.compile(r"[^A-Za-z0-9.]+")
_MAX_KEPT: Final = 60
_DIGITS: Final = 10


def subscriber_of(url: str) -> str:
    """The name of the subscriber that a URL is: readable, the same each time, and another one for each URL.

    "http://localhost:20000/in" is `localhost-20000-in.` and the beginning of its SHA-256.
    """
    kept = _OTHER.sub("-", url.partition("://")[2]).strip("-.")[:_MAX_KEPT] or "endpoint"
    return f"{kept}.{hashlib.sha256(url.encode()).hexdigest()[:_DIGITS]}"
