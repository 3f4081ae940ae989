"""Logins of all frontends: users with passwords, and the bearer tokens of the configuration.

The Kafka frontend calls `check_password` and `scram` where a listener requires SASL. A token works
there as the password of its principal by PLAIN. The native frontend calls `authenticate` with the
credentials of HELLO, the HTTP frontend with those of the request: {"user": …, "password": …},
{"token": …}, or none. Wrong credentials are refused even where none are required.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.clock import SystemClock
from sparrow.base.errors import NotAuthenticated
from sparrow.broker.access.authz import ANONYMOUS, Principal
from sparrow.broker.access.login_limits import LimitedScram, LoginLimits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from sparrow.broker.access.login_limits import LoginAttempt
    from sparrow.broker.access.scram import Mechanism
    from sparrow.broker.access.users import UserService
    from sparrow.server.tokens import Tokens


class Logins:
    """The users and tokens of one server; see the module. Loop thread only.

    Args:
        users: users with passwords.
        tokens: principals by their tokens.
        is_required: `authenticate` refuses clients without credentials.
        limits: limits of wrong logins; default: none.
    """

    def __init__(
        self, users: UserService, tokens: Tokens, *, is_required: bool, limits: LoginLimits | None = None
    ) -> None:
        self._limits = limits or LoginLimits(SystemClock())
        self._users = users
        self._tokens = tokens
        self._is_required = is_required

    @property
    def is_required(self) -> bool:
        """Return True if clients without credentials are refused."""
        return self._is_required

    def requiring(self, *, is_required: bool) -> Logins:
        """Return the same logins with another rule for clients without credentials."""
        return Logins(self._users, self._tokens, is_required=is_required, limits=self._limits)

    async def check_password(self, name: str, password: str, host: str) -> Principal:
        """Return the principal of a user with this password, or with a token of that principal, for
        a client at the address `host`.

        Raises:
            NotAuthenticated: the user is unknown, or the password is wrong.
            Overloaded: too many logins wait.
        """
        return await self._limits.check(name, host, lambda rank: self._checked(name, password, rank))

    async def _checked(self, name: str, password: str, rank: int) -> Principal:
        principal = self._tokens.principal_of(password)
        if principal is not None and principal == Principal(name):
            return principal
        return await self._users.check_password(name, password, rank=rank)

    def scram(self, mechanism: Mechanism, host: str) -> LimitedScram:
        """Return the server's side of a new SCRAM login; tokens have no part in it."""
        return LimitedScram(self._users.scram(mechanism), self._limits, host)

    def authenticate(self, credentials: Mapping[str, str], peer: str) -> Principal | Awaitable[Principal]:
        """Return the principal of the credentials of a client at the address `peer` (without a
        port).

        Raises:
            Overloaded: too many logins wait.
            NotAuthenticated: no credentials where they are required, or wrong ones.
        """
        if "user" in credentials:
            return self.check_password(credentials["user"], credentials.get("password", ""), peer)
        if "token" in credentials:
            return self._of_token(credentials["token"], peer)
        if self._is_required:
            raise NotAuthenticated(
                f"this broker wants to know who connects and {peer} did not say; give a token by "
                "--token or token=, or a user"
                " and password by --user and user="
            )
        return ANONYMOUS

    def _of_token(self, token: str, peer: str) -> Principal | Awaitable[Principal]:
        if not (len(self._tokens) or self._is_required):
            return ANONYMOUS
        attempt = self._limits.begin_now(None, peer)
        if attempt is None:
            return self._of_late_token(token, peer)
        return self._principal_of(token, peer, attempt)

    async def _of_late_token(self, token: str, peer: str) -> Principal:
        return self._principal_of(token, peer, await self._limits.begin(None, peer))

    def _principal_of(self, token: str, peer: str, attempt: LoginAttempt) -> Principal:
        principal = self._tokens.principal_of(token)
        if principal is None:
            attempt.fail()
            raise NotAuthenticated(
                f"the token that {peer} sent is not known here; ask who runs the broker for one"
            )
        attempt.succeed()
        return principal
