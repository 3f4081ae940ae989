"""Access to a server: tokens, users, logins and TLS of the configuration, put together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from sparrow.base.errors import InvalidConfig
from sparrow.base.units import counted
from sparrow.broker.access.login import LoginKind
from sparrow.server.config import http_needs_login, kafka_listeners, native_needs_login
from sparrow.server.exposure import check_clear_passwords, check_exposure
from sparrow.server.logins import Logins
from sparrow.server.tls import ClientCertificates, server_context
from sparrow.server.tokens import Tokens, read_tokens_file, read_users_file

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from sparrow.broker.access.login import Login
    from sparrow.broker.access.sessions import Sessions
    from sparrow.broker.broker import Broker
    from sparrow.server.config import ServerConfig
    from sparrow.server.listeners import ListenerDeclaration
    from sparrow.server.tls_context import ReplaceableContext

log = logging.getLogger("sparrow.server")


class PreparedAccess(Struct, frozen=True):
    """Tokens and certificates that were read and can be used."""

    tokens: Mapping[str, str]
    context: ssl.SSLContext | None
    certificates: ClientCertificates


def _tokens_of(config: ServerConfig) -> dict[str, str]:
    return {**config.tokens, **(read_tokens_file(config.tokens_file) if config.tokens_file else {})}


def _replaceable(context: ssl.SSLContext) -> ReplaceableContext:
    from sparrow.server.tls_context import ReplaceableContext

    return ReplaceableContext(context)


class ServerAccess:
    """The access rules of one server.

    Raises (from the constructor):
        InvalidConfig: a public address without authentication or with passwords in clear, or a file
            of tokens, users or certificates that cannot be used.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        tokens = _tokens_of(config)
        self._tokens = Tokens(tokens)
        self._users = {**config.users, **(read_users_file(config.users_file) if config.users_file else {})}
        self._has_credentials = bool(tokens or self._users)
        check_exposure(config, authenticated=self._has_credentials)
        check_clear_passwords(config, authenticated=self._has_credentials)
        context = server_context(config)
        self._tls = None if context is None else _replaceable(context)
        self._certificates = ClientCertificates(context, config.tls_client_crl)
        self._sessions: Sessions | None = None
        self._certificate_refused: Callable[[str, str], None] | None = None

    def prepare(self, config: ServerConfig) -> PreparedAccess:
        """Read the tokens and TLS files of another configuration, without applying them. Blocks;
        may be called in any thread.

        Raises:
            InvalidConfig: something cannot be used, or would change which clients must log in,
                which takes a restart.
        """
        tokens = _tokens_of(config)
        context = server_context(config)
        if (context is None) != (self._tls is None):
            raise InvalidConfig("tls.certificate and tls.key: TLS is switched on or off by a restart")
        if bool(config.tls_client_ca) != bool(self._config.tls_client_ca):
            raise InvalidConfig("tls.client_ca: whether clients show certificates is changed by a restart")
        if tokens and not self._has_credentials:
            raise InvalidConfig(
                "tokens: there were no tokens or users at the start, so nobody has to log in; that "
                "is changed by a restart"
            )
        return PreparedAccess(tokens, context, ClientCertificates(context, config.tls_client_crl))

    def replace(self, prepared: PreparedAccess) -> None:
        """Apply what was prepared, and end the sessions that it does not allow."""
        self._tokens.replace(prepared.tokens)
        if self._tls is not None and prepared.context is not None:
            self._tls.current = prepared.context
        self._certificates = prepared.certificates
        if self._sessions is not None:
            self._sessions.look(LoginKind.TOKEN)
            self._sessions.look(LoginKind.CERTIFICATE)

    @property
    def has_logins(self) -> bool:
        """Return True if the configuration has users or tokens, or the broker asks clients for
        certificates.
        """
        return self._has_credentials or bool(self._tls is not None and self._config.tls_client_ca)

    @property
    def native_tls(self) -> ssl.SSLContext | None:
        """Return the TLS contexts of the native listener, or None if it has no TLS."""
        return self._tls_of("native") if self._config.native_tls else None

    @property
    def http_tls(self) -> ssl.SSLContext | None:
        """Return the TLS contexts of the HTTP listener, or None if it has no TLS."""
        return self._tls_of("http") if self._config.http_tls else None

    @property
    def http_login(self) -> bool:
        """Return True if clients of the HTTP listener must log in."""
        return http_needs_login(self._config, authenticated=self._has_credentials)

    def kafka_tls(self, listener: ListenerDeclaration) -> ssl.SSLContext | None:
        """Return the TLS contexts of a Kafka listener, or None if it has no TLS."""
        return self._tls_of(listener.name) if listener.tls else None

    def _tls_of(self, listener: str) -> ssl.SSLContext | None:
        if self._tls is None or self._certificate_refused is None:
            return self._tls
        from sparrow.server.tls_context import ListenerContext

        return ListenerContext(self._tls, listener, self._certificate_refused)

    def kafka_sasl(self, listener: ListenerDeclaration) -> bool:
        """Return True if a Kafka listener requires SASL."""
        return listener.needs_login(authenticated=self._has_credentials)

    async def open(self, broker: Broker) -> Logins:
        """Create the users of the configuration that are missing, and return the logins.

        Raises:
            UnacceptableCredential: a name or password cannot be used.
            InvalidConfig: the broker has users whose passwords would cross a public network in
                clear.
        """
        self.check_users(broker)
        logins = self.logins_of(broker)
        for name in await broker.users.ensure(self._users):
            log.info("user made", extra={"user": name})
        if self._needs_login and not (len(self._tokens) or len(broker.users) or self._config.tls_client_ca):
            log.warning(
                "clients must log in, but there are no users: stop this broker, then `sparrow user "
                "create NAME --data-dir %s`",
                self._config.data_dir,
            )
        if len(broker.users) and not self._needs_login and not self._config.tls_client_ca:
            log.warning(
                "there are users, but nobody has to log in: set native.login, http.login and "
                "kafka.sasl to required if that is not meant"
            )
        _tell_when_nobody_administers(broker)
        return logins

    def check_users(self, broker: Broker) -> None:
        """Check the listeners with the users that a command created: they are in no configuration.

        Raises:
            InvalidConfig: their passwords would cross a public network in clear.
        """
        check_clear_passwords(self._config, authenticated=self._has_credentials or len(broker.users) > 0)

    def logins_of(self, broker: Broker) -> Logins:
        """Return the logins by the broker's users and the tokens of the configuration, and let the
        broker end sessions that these do not allow any more.
        """
        self._sessions = broker.sessions
        audit = broker.audit
        self._certificate_refused = lambda listener, why: audit.handshake_refused(listener, "", why)
        broker.sessions.judge(LoginKind.TOKEN, self._tokens.why_over)
        broker.sessions.judge(LoginKind.CERTIFICATE, self._why_certificate_is_over)
        broker.users.token_principals = lambda: self._tokens.principals
        is_required = native_needs_login(self._config, authenticated=self._has_credentials)
        return Logins(broker.users, self._tokens, is_required=is_required, limits=broker.login_limits)

    def _why_certificate_is_over(self, login: Login) -> str:
        return self._certificates.why_over(login)

    def describe(self, broker: Broker) -> str:
        """Return the access rules as lines for people."""
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


def _tell_when_nobody_administers(broker: Broker) -> None:
    """Log now, and whenever it becomes true, that access is configured and no principal may
    administer the broker.
    """
    was_lacking = False

    def look() -> None:
        nonlocal was_lacking
        is_lacking = broker.rules.lacks_administrator
        if is_lacking and not was_lacking:
            log.warning(
                "nobody may administer this broker: there are users, tokens or client certificates"
                " (or acl.default is deny), and neither super_users nor a rule that lets anybody "
                "alter the cluster. Name an"
                " administrator in the configuration (super_users: [NAME]) and start again"
            )
        was_lacking = is_lacking

    look()
    broker.rules.watch(look)
