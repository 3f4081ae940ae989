"""Headers of every HTTP response: its type is not guessed, it is not shown inside another page, and
it is not cached.
"""

from __future__ import annotations

from typing import Final

DEFAULT_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
