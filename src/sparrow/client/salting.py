"""A password as it is sent to be kept: salted and hashed as RFC 5802 says, so that nobody but the user knows it."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import UnacceptableCredential, UnsupportedMechanism

if TYPE_CHECKING:
    from collections.abc import Iterable

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS: Final = 8192
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
SALT_BYTES: Final = 16
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def hashed(password: str, mechanisms: Iterable[str], iterations: int) -> list[list[Any]]:
    """[mechanism, iterations, salt, salted password] for each mechanism. Takes milliseconds: call it in a thread.

    Raises:
        UnacceptableCredential: the password is empty, or the iterations are too few or too many.
        UnsupportedMechanism: a mechanism that is none of `MECHANISMS`.
    """
    if not password:
        raise UnacceptableCredential("the password is empty; an empty password is no password")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise UnacceptableCredential(
            f"iterations is {iterations}; it must be {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    return [_hashed(password, mechanism, iterations) for mechanism in mechanisms]


def _hashed(password: str, mechanism: str, iterations: int) -> list[Any]:
    if mechanism not in _HASHES:
        raise UnsupportedMechanism(f"there is no mechanism {mechanism!r}; there are {', '.join(MECHANISMS)}")
    salt = secrets.token_bytes(SALT_BYTES)
    return [
        mechanism,
        iterations,
        salt,
        hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations),
    ]
