"""Identifiers: UUIDv7 (RFC 9562, section 5.7), sortable by their creation times."""

from __future__ import annotations

import os
import uuid


def uuid7(now_ms: int, randomness: bytes | None = None) -> uuid.UUID:
    """Return a UUID version 7.

    Args:
        now_ms: wall time in milliseconds since the epoch; the first 48 bits.
        randomness: 10 bytes to use instead of the system's; for tests.
    """
    tail = int.from_bytes(randomness if randomness is not None else os.urandom(10), "big")
    rand_a = (tail >> 64) & 0xFFF
    rand_b = tail & ((1 << 62) - 1)
    return uuid.UUID(int=(now_ms & ((1 << 48) - 1)) << 80 | 7 << 76 | rand_a << 64 | 2 << 62 | rand_b)
