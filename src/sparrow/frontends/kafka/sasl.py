"""SASL on one connection (KIP-43, KIP-152, KIP-368): the mechanisms, and when which message is legal.

    SaslHandshake names a mechanism ──▶ SaslAuthenticate carries tokens, until the login is proved ──▶ everything else

After SaslHandshake version 0 the tokens come bare, each with its length only. A connection may log in again, to the same user by the same
mechanism, before its session ends; once it has ended, that is all that it may do. Everything wrong ends the connection, a little
later where a guess was wrong, so that guessing is slow. No I/O but the check of a password; time is passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sparrow.base.errors import NotAuthenticated
from sparrow.broker.access.authz import Principal
from sparrow.broker.access.scram import MAX_MESSAGE_BYTES, Mechanism, wrong_credentials

if TYPE_CHECKING:
    from sparrow.broker.access.scram import ScramServer

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *(each.value for each in Mechanism))
MIN_INTERVAL_S: Final = 1.0
"""A connection may begin to log in again so often."""


class Logins(Protocol):
    """Who may come in: what this door asks of the users."""

    async def check_password(self, name: str, password: str) -> Principal:
        """The principal of who shows this password. Raises NotAuthenticated."""
        ...

    def scram(self, mechanism: Mechanism) -> ScramServer:
        """The server's side of a new login."""
        ...


class Exchange:
    """One login. `principal` is set when it has succeeded."""

    def __init__(self, mechanism: str, logins: Logins) -> None:
        self.mechanism = mechanism
        self.principal: Principal | None = None
        self._logins = logins
        self._scram = None if mechanism == PLAIN else logins.scram(Mechanism(mechanism))

    async def receive(self, token: bytes) -> bytes:
        """The answer to a token of the client.

        Raises:
            NotAuthenticated: the login has failed.
        """
        if self._scram is None:
            self.principal = await self._logins.check_password(*_name_and_password(token))
            return b""
        answer = self._scram.receive(token)
        if self._scram.user is not None:
            self.principal = Principal(self._scram.user)
        return answer


def _name_and_password(token: bytes) -> tuple[str, str]:
    """PLAIN's message (RFC 4616): authorization id, name, password, with NUL between."""
    if len(token) > MAX_MESSAGE_BYTES:  # it is not worth waiting for its turn
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
        logins: who may come in.
        max_session_s: how long a login is good for; None: as long as the connection.
    """

    def __init__(self, logins: Logins, max_session_s: float | None) -> None:
        self.exchange: Exchange | None = None
        """The login that is under way."""
        self._logins = logins
        self._max_session_s = max_session_s
        self._principal: Principal | None = None
        self._mechanism = ""
        self._begun_again_at = float("-inf")

    def may_begin(self, now: float) -> bool:
        """Whether SaslHandshake is legal now: at first, and again where sessions end."""
        if self.exchange is not None:
            return False
        if self._principal is None:
            return True
        return self._max_session_s is not None and now - self._begun_again_at >= MIN_INTERVAL_S

    def begin(self, mechanism: str, now: float) -> None:
        """SaslHandshake named this one of `MECHANISMS`."""
        if self._principal is not None:
            self._begun_again_at = now
        self.exchange = Exchange(mechanism, self._logins)

    async def receive(self, token: bytes) -> bytes:
        """The answer to a token; `exchange.principal` says whether the login is complete. Only while there is an exchange.

        Raises:
            NotAuthenticated: the login has failed.
        """
        assert self.exchange is not None
        if self._mechanism not in {"", self.exchange.mechanism}:
            raise NotAuthenticated(
                f"SASL mechanism '{self.exchange.mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{self._mechanism}'"
            )
        answer = await self.exchange.receive(token)
        principal = self.exchange.principal
        if self._principal is not None and principal not in {None, self._principal}:
            raise NotAuthenticated(
                f"Cannot change principals during re-authentication from {self._principal} to {principal}"
            )
        return answer

    def complete(self, now: float) -> tuple[Principal, float | None]:
        """The login is proved: who it is, and when the session ends (None: never)."""
        assert self.exchange is not None
        assert self.exchange.principal is not None
        self._principal, self._mechanism = self.exchange.principal, self.exchange.mechanism
        self.exchange = None
        return self._principal, None if self._max_session_s is None else now + self._max_session_s
