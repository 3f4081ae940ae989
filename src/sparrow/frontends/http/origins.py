"""Rules about the web pages that may use the frontend, by Origin and Host; stateless.

A browser adds its credentials to the requests of a page, and a page of any site may send requests
to 127.0.0.1. So requests from a page of another origin are refused unless the origin is configured.
GET changes nothing and is left to the browser, which shows a page no response of another origin
without CORS. Where no login is required and only this machine can connect, the Host header must be
an address or a local name: otherwise a foreign name that points here (DNS rebinding) would make a
page of that site one of ours.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
ANY: Final = "*"


def is_allowed_origin(origin: bytes, host: bytes, allowed: tuple[str, ...]) -> bool:
    """Return True if a page of `origin` may use the frontend under the name `host`. `allowed` has
    the configured origins.
    """
    text = origin.decode("latin-1").lower()
    if ANY in allowed or text in allowed:
        return True
    _, separator, authority = text.partition("://")
    return bool(separator and authority) and authority == host.decode("latin-1").lower()


def is_of_another_site(fetch_site: bytes, allowed: tuple[str, ...]) -> bool:
    """Return True if a browser reports a request from a page of another origin, unless any origin
    is allowed.

    Args:
        fetch_site: the header Sec-Fetch-Site (W3C Fetch Metadata), b"" without it. It counts if
            Origin is missing.
    """
    return fetch_site.lower() in (b"cross-site", b"same-site") and ANY not in allowed


@lru_cache(maxsize=256)
def is_local_name(host: bytes) -> bool:
    """Return True if a Host header is an address, or a name of this machine that no one else can
    own.
    """
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
