"""Who may come in, for all doors: users with passwords, and the bearer tokens of the configuration.

The Kafka door asks `check_password` and `scram` where a listener wants SASL. A token works there as the password of its principal by
PLAIN. The native door asks `authenticate` with what HELLO brings, the HTTP door with what the request does: {"user": …, "password": …}, {"token": …}, or nothing. Wrong credentials are refused even
where none are needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import NotAuthenticated
from sparrow.broker.access.authz import ANONYMOUS, Principal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from sparrow.broker.access.scram import Mechanism, ScramServer
    from sparrow.broker.access.users import Users
    from sparrow.server.tokens import Tokens


class Logins:
    """See the module's text. Loop thread only.

    Args:
        users: those with passwords.
        tokens: those with tokens.
        is_required: whether `authenticate` refuses who shows no credentials.
    """

    def __init__(self, users: Users, tokens: Tokens, *, is_required: bool) -> None:
        self._users = users
        self._tokens = tokens
        self._is_required = is_required

    @property
    def is_required(self) -> bool:
        """Whether who shows no credentials is refused."""
        return self._is_required

    def requiring(self, *, is_required: bool) -> Logins:
        """The same for a door of its own mind about who shows no credentials."""
        return Logins(self._users, self._tokens, is_required=is_required)

    async def check_password(self, name: str, password: str) -> Principal:
        """The principal of who shows this password, or a token that is this principal's.

        Raises:
            NotAuthenticated: unknown, or another password.
        """
        principal = self._tokens.principal_of(password)
        if principal is not None and principal == Principal(name):
            return principal
        return await self._users.check_password(name, password)

    def scram(self, mechanism: Mechanism) -> ScramServer:
        """The server's side of a new SCRAM login; tokens play no part in it."""
        return self._users.scram(mechanism)

    def authenticate(self, credentials: Mapping[str, str], peer: str) -> Principal | Awaitable[Principal]:
        """The principal behind credentials.

        Raises:
            NotAuthenticated: none where they are needed, or wrong ones.
        """
        if "user" in credentials:
            return self.check_password(credentials["user"], credentials.get("password", ""))
        if "token" in credentials:
            return self._of_token(credentials["token"], peer)
        if self._is_required:
            raise NotAuthenticated(
                f"this broker wants to know who connects and {peer} did not say; give a token by --token or token=, or a user"
                " and password by --user and user="
            )
        return ANONYMOUS

    def _of_token(self, token: str, peer: str) -> Principal:
        principal = self._tokens.principal_of(token)
        if principal is not None:
            return principal
        if len(self._tokens) or self._is_required:
            raise NotAuthenticated(
                f"the token that {peer} sent is not known here; ask who runs the broker for one"
            )
        return ANONYMOUS
