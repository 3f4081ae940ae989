"""The partition of a key, chosen as Kafka's clients do: MurmurHash2, 32 bits, seed 0x9747b28c, sign
bit off, modulo.

(Kafka's `Utils.murmur2` and `toPositive`.) A topic that is written by several kinds of clients
keeps a key in one partition only if all agree on this. It runs once per keyed message: whole words
are unpacked at once, products are cut to 32 bits as late as the result allows, and the hashes of
the latest short keys are cached.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_CACHED_KEYS: Final = 8192
_MAX_CACHED_KEY_BYTES: Final = 64
"""Longer keys are not cached, so that the cache stays below a megabyte."""
_MAX_TABLED_WORDS: Final = 64
_WORDS: Final = [struct.Struct(f"<{words}I") for words in range(_MAX_TABLED_WORDS)]


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return which of `partitions` (at least 1) a message with this key goes to."""
    folded = _cached(key) if len(key) <= _MAX_CACHED_KEY_BYTES else murmur2(key)
    return (folded & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """Return the hash, 0 to 2**32 - 1 (Java shows the same bits as a signed number)."""
    size = len(key)
    words = size >> 2
    unpack = _WORDS[words] if words < _MAX_TABLED_WORDS else struct.Struct(f"<{words}I")
    folded = _SEED ^ size
    for word in unpack.unpack_from(key):
        mixed = word * 0x5BD1E995 & 0xFFFFFFFF
        folded = (folded * 0x5BD1E995 ^ (mixed ^ mixed >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    rest = size & 3
    if rest:
        folded = (folded ^ int.from_bytes(key[-rest:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    folded = (folded ^ folded >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return folded ^ folded >> 15


_cached: Final = lru_cache(maxsize=_CACHED_KEYS)(murmur2)
