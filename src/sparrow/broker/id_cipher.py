"""Producer ids as permutations of a counter: one permutation of 63 bits for each owner.

`seal` converts the counter's number to the id that an owner gets, `open` converts an id back. An id
opens to a number that was given out only under its own owner: under any other it opens to some
number out of 2^63, so the chance that a foreign or guessed id passes is (ids given out) / 2^63. For
the same reason ids of two owners do not meet in practice: among a million ids the chance of one
such pair is 1 in 10^7. Ids of one owner never repeat, because a permutation has no two equal
values. Nothing is stored for an id.

The permutation is an alternating Feistel network over 31 and 32 bits (as NIST SP 800-38G's FF1, ten
rounds) whose round function is keyed BLAKE2b (RFC 7693). Rejected: counter and tag side by side,
where 2^40 numbers leave 23 bits for the tag, which is few enough to be guessed.

Pure; thread-safe.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

SECRET_BYTES: Final = 32
_ROUNDS: Final = 10
_LOW_BITS: Final = 32
_LOW_MASK: Final = (1 << 32) - 1
_HIGH_MASK: Final = (1 << 31) - 1
_PERSON: Final = b"producer-id"


class IdCipher:
    """The permutation of one owner.

    Args:
        secret: `SECRET_BYTES` random bytes, of one broker.
        owner: a name that no two owners share, such as "User:alice".
    """

    __slots__ = ("_rounds",)

    def __init__(self, secret: bytes, owner: str) -> None:
        key = blake2b(owner.encode(), key=secret, digest_size=32, person=_PERSON).digest()
        self._rounds = [blake2b(bytes([each]), key=key, digest_size=4) for each in range(_ROUNDS)]

    def seal(self, number: int) -> int:
        """Return the id of a number; both are at least 0 and below 2^63."""
        high, low = number >> _LOW_BITS, number & _LOW_MASK
        for each in range(0, _ROUNDS, 2):
            high ^= self._round(each, low) & _HIGH_MASK
            low ^= self._round(each + 1, high)
        return high << _LOW_BITS | low

    def open(self, producer_id: int) -> int:
        """Return the number of an id; the inverse of `seal`."""
        high, low = producer_id >> _LOW_BITS, producer_id & _LOW_MASK
        for each in range(_ROUNDS - 2, -1, -2):
            low ^= self._round(each + 1, high)
            high ^= self._round(each, low) & _HIGH_MASK
        return high << _LOW_BITS | low

    def _round(self, number: int, half: int) -> int:
        state = self._rounds[number].copy()
        state.update(half.to_bytes(4, "big"))
        return int.from_bytes(state.digest(), "big")
