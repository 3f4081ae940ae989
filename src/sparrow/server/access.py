"""Who may come in at which door: what the configuration says of tokens, users, logins and TLS, put together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparrow.base.units import counted
from sparrow.server.config import http_needs_login, kafka_listeners, native_needs_login
from sparrow.server.exposure import check_exposure
from sparrow.server.logins import Logins
from sparrow.server.tls import server_context
from sparrow.server.tokens import Tokens, read_tokens_file, read_users_file

if TYPE_CHECKING:
    import ssl

    from sparrow.broker.broker import Broker
    from sparrow.server.config import ServerConfig
    from sparrow.server.listeners import ListenerDeclaration

log = logging.getLogger("sparrow.server")


class Access:
    """The rules of one server.

    Raises (from the constructor):
        InvalidConfig: a public address without authentication, or a file of tokens, users or certificates that cannot be used.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        tokens = {**config.tokens, **(read_tokens_file(config.tokens_file) if config.tokens_file else {})}
        self._tokens = Tokens(tokens)
        self._users = {**config.users, **(read_users_file(config.users_file) if config.users_file else {})}
        self._has_credentials = bool(tokens or self._users)
        check_exposure(config, authenticated=self._has_credentials)
        self._tls = server_context(config)

    @property
    def native_tls(self) -> ssl.SSLContext | None:
        """How the native door speaks TLS; None: it does not."""
        return self._tls if self._config.native_tls else None

    @property
    def http_tls(self) -> ssl.SSLContext | None:
        """How the HTTP door speaks TLS; None: it does not."""
        return self._tls if self._config.http_tls else None

    @property
    def http_login(self) -> bool:
        """Whether clients of the HTTP door must log in."""
        return http_needs_login(self._config, authenticated=self._has_credentials)

    def kafka_tls(self, listener: ListenerDeclaration) -> ssl.SSLContext | None:
        """How a listener of the Kafka door speaks TLS; None: it does not."""
        return self._tls if listener.tls else None

    def kafka_sasl(self, listener: ListenerDeclaration) -> bool:
        """Whether a listener of the Kafka door wants SASL."""
        return listener.needs_login(authenticated=self._has_credentials)

    async def open(self, broker: Broker) -> Logins:
        """Make the users of the configuration that are missing; who may come in from now on.

        Raises:
            UnacceptableCredential: a name or password that cannot be used.
        """
        for name in await broker.users.ensure(self._users):
            log.info("user made", extra={"user": name})
        if self._needs_login and not (len(self._tokens) or len(broker.users) or self._config.tls_client_ca):
            log.warning(
                "clients must log in, but there are no users: stop this broker, then `sparrow user create NAME --data-dir %s`",
                self._config.data_dir,
            )
        if len(broker.users) and not self._needs_login and not self._config.tls_client_ca:
            log.warning(
                "there are users, but nobody has to log in: set native.login, http.login and kafka.sasl to required if that is not meant"
            )
        is_required = native_needs_login(self._config, authenticated=self._has_credentials)
        return Logins(broker.users, self._tokens, is_required=is_required)

    def describe(self, broker: Broker) -> str:
        """Who may come in, for people."""
        ways = []
        if self._needs_login:
            ways.append(
                f"by login ({counted(len(broker.users), 'user')}, {counted(len(self._tokens), 'token')})"
            )
        if self._tls is not None and self._config.tls_client_ca:
            ways.append("by certificate")
        return " or ".join(ways) or "everybody who reaches this address"

    @property
    def _needs_login(self) -> bool:
        return (
            native_needs_login(self._config, authenticated=self._has_credentials)
            or self.http_login
            or any(self.kafka_sasl(each) for each in kafka_listeners(self._config))
        )
