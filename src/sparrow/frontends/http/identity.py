"""Authentication of requests: a bearer token, basic credentials, a certificate, or anonymous.

A client with a certificate may show a token or password as well, which counts first; without them
it is the principal of its certificate. A browser's EventSource and WebSocket cannot set headers, so
streams also take the token as `?access_token=` (RFC 6750, section 2.3). Other routes do not, as
addresses end up in logs. `Logins` checks passwords and remembers correct ones, so that a request
costs no hashing.
"""

from __future__ import annotations

import binascii
import inspect
from base64 import b64decode
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qsl

from sparrow.base.errors import NotAuthenticated
from sparrow.broker.access.authz import ANONYMOUS, Principal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from sparrow.frontends.http.request import Request

LISTENER: Final = "http"
"""Name of this listener in the audit."""
_PARAMETER: Final = "access_token"
STREAM_SUFFIX: Final = "/stream"


class Authenticator(Protocol):
    """Authenticator of credentials; implemented by `server.logins.Logins`."""

    @property
    def is_required(self) -> bool: ...

    def authenticate(self, credentials: Mapping[str, str], peer: str) -> Principal | Awaitable[Principal]: ...


def credentials_of(authorization: bytes | None) -> dict[str, str]:
    """Return the credentials of an Authorization header in the form that logins take; empty without
    one.

    Raises:
        NotAuthenticated: neither Bearer nor Basic, or malformed.
    """
    if authorization is None:
        return {}
    scheme, _, text = authorization.partition(b" ")
    text = text.strip()
    if scheme.lower() == b"bearer" and text:
        return {"token": text.decode("utf-8", "surrogateescape")}
    if scheme.lower() == b"basic":
        return _basic(text)
    raise NotAuthenticated("the Authorization header is neither 'Bearer TOKEN' nor 'Basic' with credentials")


def _basic(text: bytes) -> dict[str, str]:
    try:
        user, colon, password = b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
    if not colon:
        raise NotAuthenticated(
            "the Basic credentials cannot be read: they are 'user:password' in UTF-8, as base64"
        )
    return {"user": user, "password": password}


def token_in_query(query_string: bytes) -> dict[str, str]:
    """Return the token of a stream's address; empty without one."""
    if _PARAMETER.encode() not in query_string:
        return {}
    pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)
    return next(({"token": value} for name, value in pairs if name == _PARAMETER), {})


async def identify(
    authenticator: Authenticator,
    credentials: Mapping[str, str],
    peer: str,
    *,
    certified: Principal | None = None,
) -> Principal:
    """Return the principal of credentials, with the address of the client.

    Raises:
        NotAuthenticated
    """
    if certified is not None and not credentials:
        return with_host(certified, peer)
    if not credentials and authenticator.is_required:
        raise NotAuthenticated(
            "login is required: send 'Authorization: Bearer TOKEN', or a user and a password"
            " (curl --user NAME:PASSWORD)"
        )
    found = authenticator.authenticate(credentials, peer)
    principal = await found if inspect.isawaitable(found) else found
    if certified is not None and principal == ANONYMOUS:
        # Credentials that prove nothing do not make the holder of a certificate anonymous.
        principal = certified
    return with_host(principal, peer)


def with_host(principal: Principal, host: str) -> Principal:
    """Return the principal with the address of the client."""
    return Principal(principal.name, principal.kind, host, LISTENER, principal.login)


def caller(request: Request) -> Principal:
    """Return the principal of a request, which the gate has left there."""
    return request.principal
