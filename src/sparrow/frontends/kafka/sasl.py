"""SASL on one connection (KIP-43, KIP-152, KIP-368): the mechanisms, and which message is allowed
when.

    SaslHandshake  ──▶  SaslAuthenticate  ──▶  everything else
    names a mechanism    carries tokens until
                         the login succeeds

After SaslHandshake version 0 the tokens are sent without a header, each after its length. A
connection may log in again, as the same user by the same mechanism, before its session ends; after
the end, nothing else is allowed. Every error closes the connection, with a delay after a wrong
password, so that guessing is slow. No I/O but the check of a password; the time is passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sparrow.base.errors import NotAuthenticated
from sparrow.broker.access.authz import Principal
from sparrow.broker.access.login import Login, LoginKind
from sparrow.broker.access.scram import MAX_MESSAGE_BYTES, Mechanism, wrong_credentials

if TYPE_CHECKING:
    from sparrow.broker.access.login_limits import LimitedScram

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *(each.value for each in Mechanism))
MIN_INTERVAL_S: Final = 1.0
"""The least time between two logins of one connection."""


class SaslAuthenticator(Protocol):
    """The part of the user directory that the frontend needs."""

    async def check_password(self, name: str, password: str, host: str) -> Principal:
        """Return the principal with this password. Raises NotAuthenticated, Overloaded."""
        ...

    def scram(self, mechanism: Mechanism, host: str) -> LimitedScram:
        """Return the server's side of a new login."""
        ...


class SaslExchange:
    """One login. `principal` is set when it has succeeded."""

    def __init__(self, mechanism: str, logins: SaslAuthenticator, host: str) -> None:
        self.mechanism = mechanism
        self.principal: Principal | None = None
        self.claims = ""
        """The name that the client gave; verified only if there is a principal."""
        self._logins = logins
        self._host = host
        self._scram = None if mechanism == PLAIN else logins.scram(Mechanism(mechanism), host)

    async def receive(self, token: bytes) -> bytes:
        """Return the reply to a token of the client.

        Raises:
            NotAuthenticated: the login has failed.
        """
        if self._scram is None:
            self.claims, password = _name_and_password(token)
            self.principal = await self._logins.check_password(self.claims, password, self._host)
            return b""
        reply = await self._scram.receive(token)
        self.claims = self._scram.claimed or ""
        if self._scram.user is not None:
            login = Login(LoginKind.PASSWORD, self._scram.user, self._scram.credential)
            self.principal = Principal(self._scram.user, login=login)
        return reply


def _name_and_password(token: bytes) -> tuple[str, str]:
    """Parse PLAIN's message (RFC 4616): authorization id, name, password, separated by NUL."""
    if len(token) > MAX_MESSAGE_BYTES:  # refused before it waits for the password check
        raise wrong_credentials(PLAIN)
    try:
        authorization_id, name, password = token.decode().split("\0")
    except ValueError:
        raise wrong_credentials(PLAIN) from None
    if not name or not password:
        raise wrong_credentials(PLAIN)
    if authorization_id not in {"", name}:
        raise NotAuthenticated(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
    return name, password


class SaslSession:
    """The logins of one connection.

    Args:
        logins: verifies the logins.
        max_session_s: validity of a login; None: as long as the connection.
        host: the client's address.
    """

    def __init__(self, logins: SaslAuthenticator, max_session_s: float | None, host: str) -> None:
        self.exchange: SaslExchange | None = None
        """The login in progress."""
        self._logins = logins
        self._host = host
        self._max_session_s = max_session_s
        self._principal: Principal | None = None
        self._mechanism = ""
        self._renewed_at = float("-inf")

    def may_begin(self, now: float) -> bool:
        """Return True if SaslHandshake is allowed now: at first, and again if sessions end."""
        if self.exchange is not None:
            return False
        if self._principal is None:
            return True
        return self._max_session_s is not None and now - self._renewed_at >= MIN_INTERVAL_S

    def begin(self, mechanism: str, now: float) -> None:
        """Begin a login with one of `MECHANISMS`, as SaslHandshake asks."""
        if self._principal is not None:
            self._renewed_at = now
        self.exchange = SaslExchange(mechanism, self._logins, self._host)

    async def receive(self, token: bytes) -> bytes:
        """Return the reply to a token; after it `exchange.principal` is set if the login is
        complete. Requires an exchange.

        Raises:
            NotAuthenticated: the login has failed.
        """
        assert self.exchange is not None
        if self._mechanism not in {"", self.exchange.mechanism}:
            raise NotAuthenticated(
                f"SASL mechanism '{self.exchange.mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{self._mechanism}'"
            )
        reply = await self.exchange.receive(token)
        principal = self.exchange.principal
        if self._principal is not None and principal not in {None, self._principal}:
            raise NotAuthenticated(
                f"Cannot change principals during re-authentication from {self._principal} to {principal}"
            )
        return reply

    def complete(self, now: float) -> tuple[Principal, float | None]:
        """End a successful login. Return the principal and the end of its session (None: never)."""
        assert self.exchange is not None
        assert self.exchange.principal is not None
        self._principal, self._mechanism = self.exchange.principal, self.exchange.mechanism
        self.exchange = None
        return self._principal, None if self._max_session_s is None else now + self._max_session_s
