"""Who may connect: bearer tokens, compared in constant time.

A token names a principal. Without any token everybody is let in as ANONYMOUS, which `check_exposure` allows on loopback
only. Tokens are kept as SHA-256 digests, so that the comparison takes the same time for every length and a core dump
does not show them.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidConfig, NotAuthenticated
from sparrow.broker.authz import ANONYMOUS, Principal

if TYPE_CHECKING:
    from collections.abc import Mapping


class TokenAuthenticator:
    """Lets in who shows a known token: credentials {"token": …}.

    Args:
        tokens: principal's name → token. None: everybody is ANONYMOUS.
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._digests = [(_digest(token), Principal(name)) for name, token in tokens.items()]

    def authenticate(self, credentials: Mapping[str, str], peer: str) -> Principal:
        """The principal behind the credentials.

        Raises:
            NotAuthenticated: no token, or an unknown one.
        """
        if not self._digests:
            return ANONYMOUS
        token = credentials.get("token")
        if token is None:
            raise NotAuthenticated(
                f"this broker asks for a token and {peer} sent none; give one by --token or token="
            )
        offered = _digest(token)
        found: Principal | None = None
        for digest, principal in self._digests:
            if hmac.compare_digest(digest, offered):
                found = principal
        if found is None:
            raise NotAuthenticated(
                f"the token that {peer} sent is not known here; ask who runs the broker for one"
            )
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def read_tokens_file(path: str) -> dict[str, str]:
    """Principal → token, from lines of 'principal token'; empty lines and lines that begin with # are skipped.

    Raises:
        InvalidConfig: with file and line; never shows a token. Also when nobody is named, since that would let everybody in.
    """
    tokens: dict[str, str] = {}
    for number, line in enumerate(_lines(path), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InvalidConfig(
                f"{path}:{number}: a principal and a token are expected, with a space between"
            )
        if words[0] in tokens:
            raise InvalidConfig(f"{path}:{number}: principal {words[0]!r} stands twice")
        tokens[words[0]] = words[1]
    if not tokens:
        raise InvalidConfig(
            f"tokens_file {path} names nobody; write a principal and a token per line, or leave tokens_file out to let"
            " everybody in"
        )
    return tokens


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError as error:
        raise InvalidConfig(f"tokens_file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidConfig(f"tokens_file {path} is not UTF-8 text") from None
