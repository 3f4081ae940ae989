"""Who asks: a bearer token, basic credentials, a certificate, or nobody.

A token or a password may also be what a certificate's holder shows; who shows a certificate and nothing else is whom the certificate names. A
browser's EventSource and WebSocket cannot set headers, so streams take the token as `?access_token=` too (RFC 6750, section 2.3); nothing else does,
as addresses end up in logs. Whether passwords are right `Logins` knows, which remembers those that were, so that a request costs no hashing.
"""

from __future__ import annotations

import binascii
import inspect
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import parse_qsl

from sparrow.base.errors import NotAuthenticated
from sparrow.broker.access.authz import ANONYMOUS, Principal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from starlette.requests import HTTPConnection

PRINCIPAL: Final = "principal"
"""The key in the state of a request under which the gate leaves who asks."""
CERTIFICATE: Final = "certificate"
"""The key under which a connection leaves the principal of its certificate."""
_PARAMETER: Final = "access_token"
STREAM_SUFFIX: Final = "/stream"


class Authenticator(Protocol):
    """Says who is behind credentials; `server.logins.Logins`."""

    @property
    def is_required(self) -> bool: ...

    def authenticate(self, credentials: Mapping[str, str], peer: str) -> Principal | Awaitable[Principal]: ...


def credentials_of(authorization: bytes | None) -> dict[str, str]:
    """What an Authorization header says, as logins take it; nothing without one.

    Raises:
        NotAuthenticated: neither Bearer nor Basic, or not as these are written.
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
    """The token that a stream's address has; nothing without."""
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
    """The principal behind credentials, with the address that it comes from.

    Raises:
        NotAuthenticated
    """
    if certified is not None and not credentials:
        return at(certified, peer)
    if not credentials and authenticator.is_required:
        raise NotAuthenticated(
            "this broker wants to know who asks: send 'Authorization: Bearer TOKEN', or a user and a password"
            " (curl --user NAME:PASSWORD)"
        )
    found = authenticator.authenticate(credentials, peer)
    principal = await found if inspect.isawaitable(found) else found
    if certified is not None and principal == ANONYMOUS:
        principal = certified  # a certificate's holder does not become nobody by credentials that say nothing
    return at(principal, peer)


def at(principal: Principal, host: str) -> Principal:
    """The principal with the address that it comes from."""
    return Principal(principal.name, principal.kind, host)


def caller(request: HTTPConnection) -> Principal:
    """Who asks, as the gate found out."""
    principal: Principal = request.scope["state"][PRINCIPAL]
    return principal


def caller_of_socket(socket: HTTPConnection) -> Principal | None:
    """Who opened a WebSocket; None: login is required, and the handshake had no credentials."""
    state: dict[str, Any] = socket.scope["state"]
    principal: Principal | None = state[PRINCIPAL]
    return principal
