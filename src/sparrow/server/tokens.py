"""Bearer tokens of the configuration, compared in constant time.

A token names a principal. Tokens are kept as SHA-256 digests, so that the comparison takes the same time for every length and a core dump
does not show them.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidConfig
from sparrow.broker.access.authz import Principal
from sparrow.broker.access.credentials import MAX_NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping


class Tokens:
    """The known tokens.

    Args:
        tokens: principal's name → token.
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._digests = [(_digest(token), Principal(name)) for name, token in tokens.items()]

    def __len__(self) -> int:
        return len(self._digests)

    def principal_of(self, token: str) -> Principal | None:
        """Whose token it is."""
        offered = _digest(token)
        found: Principal | None = None
        for digest, principal in self._digests:
            if hmac.compare_digest(digest, offered):
                found = principal
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def read_tokens_file(path: str) -> dict[str, str]:
    """Principal → token, from lines of 'principal token'; empty lines and lines that begin with # are skipped.

    Raises:
        InvalidConfig: with file and line; never shows a token. Also when nobody is named, since that would let everybody in.
    """
    return _read_secrets(path, "tokens_file", "principal", "token")


def read_users_file(path: str) -> dict[str, str]:
    """User → password, from lines of 'user password', as `read_tokens_file`."""
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
        if words[0] in found:
            raise InvalidConfig(f"{path}:{number}: {who} {words[0]!r} stands twice")
        found[words[0]] = words[1]
    if not found:
        raise InvalidConfig(
            f"{option} {path} names nobody; write a {who} and a {secret} per line, or leave {option} out to let"
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
    except ValueError:  # a null, as an environment cannot have it but a program may
        raise InvalidConfig(f"{option} {path!r} is no path") from None
