"""Which web pages may use the door: rules about Origin and Host, without state.

A browser sends credentials that it has along with what a page asks for, and a page of any site may ask 127.0.0.1. So what a page of another origin
asks for is refused, unless the origin is configured; reading by GET is left to the browser, which shows a page no answer of another origin without CORS. Where nobody has to log in and only this
machine can connect, the host that the client named must be an address or a local name: a name of somebody else's that points here (DNS
rebinding) would make a page of that site ours.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
ANY: Final = "*"


def is_allowed_origin(origin: bytes, host: bytes, allowed: tuple[str, ...]) -> bool:
    """Whether a page of `origin` may use a door that it named `host`; `allowed` are the configured origins."""
    text = origin.decode("latin-1").lower()
    if ANY in allowed or text in allowed:
        return True
    _, separator, place = text.partition("://")
    return bool(separator and place) and place == host.decode("latin-1").lower()


@lru_cache(maxsize=256)
def is_local_name(host: bytes) -> bool:
    """Whether a Host header names an address, or this machine by a name that nobody else can own."""
    text = host.decode("latin-1").lower().strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    if not text or text == "localhost" or text.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
