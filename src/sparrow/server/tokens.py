"""Bearer tokens of the configuration, compared in constant time.

A token names a principal. Tokens are kept as SHA-256 digests, so that the comparison takes the same
time for every length and a core dump does not show them.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidConfig
from sparrow.broker.access.authz import RESERVED_NAMES, Principal
from sparrow.broker.access.credentials import MAX_NAME_BYTES
from sparrow.broker.access.login import Login, LoginKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Tokens:
    """The known tokens.

    Args:
        tokens: principal's name → token.
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._digests: list[tuple[bytes, Principal]] = []
        self.replace(tokens)

    def replace(self, tokens: Mapping[str, str]) -> None:
        """Replace all known tokens by these."""
        self._digests = [(digest, _principal(name, digest)) for name, digest in _digests(tokens)]

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def principals(self) -> set[str]:
        """The names of all principals that have a token."""
        return {str(principal) for _, principal in self._digests}

    def principal_of(self, token: str) -> Principal | None:
        """Return the principal of a token, or None."""
        offered = _digest(token)
        found: Principal | None = None
        for digest, principal in self._digests:
            if hmac.compare_digest(digest, offered):
                found = principal
        return found

    def why_over(self, login: Login) -> str:
        """Return why a login by a token is no longer valid; "" while it is."""
        if any(digest == login.proof and owner.name == login.name for digest, owner in self._digests):
            return ""
        return f"the token of {login.name!r} was removed or changed"


def _digests(tokens: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    return ((name, _digest(token)) for name, token in tokens.items())


def _principal(name: str, digest: bytes) -> Principal:
    return Principal(name, login=Login(LoginKind.TOKEN, name, digest))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def read_tokens_file(path: str) -> dict[str, str]:
    """Read principal → token from lines of 'principal token'; empty lines and lines that begin with
    # are skipped.

    Raises:
        InvalidConfig: with file and line; never shows a token. Also for a file without a principal,
            since that would let everybody in.
    """
    return _read_secrets(path, "tokens_file", "principal", "token")


def read_users_file(path: str) -> dict[str, str]:
    """Read user → password from lines of 'user password', as `read_tokens_file`."""
    found = _read_secrets(path, "users_file", "user", "password")
    for name in found:
        if len(name.encode()) > MAX_NAME_BYTES:
            raise InvalidConfig(
                f"users_file {path}: the name {name[:40]!r}… of a user has more than {MAX_NAME_BYTES} bytes"
            )
    return found


def _read_secrets(path: str, option: str, who: str, secret: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(_lines(path, option), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InvalidConfig(f"{path}:{number}: a {who} and a {secret} are expected, with a space between")
        if words[0] in RESERVED_NAMES:
            raise InvalidConfig(f"{path}:{number}: nobody can be named {words[0]!r}; choose another name")
        if words[0] in found:
            raise InvalidConfig(f"{path}:{number}: {who} {words[0]!r} occurs twice")
        found[words[0]] = words[1]
    if not found:
        raise InvalidConfig(
            f"{option} {path} names nobody; write a {who} and a {secret} per line, or leave "
            f"{option} out to let"
            " everybody in"
        )
    return found


def _lines(path: str, option: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError as error:
        raise InvalidConfig(f"{option} {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidConfig(f"{option} {path} is not UTF-8 text") from None
    except ValueError:  # a null, which a program may pass although no environment has it
        raise InvalidConfig(f"{option} {path!r} is no path") from None
