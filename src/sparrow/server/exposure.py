"""Checks of listeners that put the broker or its users at risk: the start is refused unless the
configuration says in words that this is intended.

Two things are checked for each listener on an address that other machines can reach: clients come
in without a login, and passwords or tokens cross the network in clear. A bearer token counts as a
password, because anyone who reads it can use it. SCRAM sends neither.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidConfig
from sparrow.server.config import (
    CLEAR_IN_WORDS,
    IN_WORDS,
    http_needs_login,
    kafka_listeners,
    native_needs_login,
    seed_ports,
)
from sparrow.server.listeners import OFF, PLAIN, SASL_MECHANISMS

if TYPE_CHECKING:
    from sparrow.server.config import ServerConfig


def check_exposure(config: ServerConfig, *, authenticated: bool) -> None:
    """Refuse to listen where other machines can connect unless they must authenticate by a token, a
    password or a certificate.

    `authenticated`: tokens or users are configured.

    Raises:
        InvalidConfig: says what to set.
    """
    if config.insecure_public_listen == IN_WORDS:
        return
    open_frontends = _listeners_without_login(config, authenticated=authenticated)
    public = next(((what, host) for what, host in open_frontends if not is_loopback(host)), None)
    if public is None:
        return
    what, host = public
    raise InvalidConfig(
        f"{what} is {host!r}: other machines could connect, and nobody has to log in there."
        " Set users, users_file, tokens, tokens_file or tls.client_ca, or listen on 127.0.0.1; if "
        "everybody may really"
        " publish, read and delete, say"
        f' insecure_public_listen: "{IN_WORDS}"'
    )


def check_clear_passwords(config: ServerConfig, *, authenticated: bool) -> None:
    """Refuse to take passwords and tokens without TLS where other machines could read them.

    `authenticated`: tokens or users are configured, or the broker has users.

    Raises:
        InvalidConfig: names every such listener, and says what to set.
    """
    if config.insecure_clear_passwords == CLEAR_IN_WORDS:
        return
    readable = [
        f"{what} is {host!r}"
        for what, host in _listeners_with_clear_passwords(config, authenticated=authenticated)
        if not is_loopback(host)
    ]
    if not readable:
        return
    raise InvalidConfig(
        f"{', '.join(readable)}: passwords and tokens would cross the network in clear there, "
        "since that listener has no TLS."
        " Set tls.certificate and tls.key, or listen on 127.0.0.1; a Kafka listener may take SCRAM "
        "alone instead"
        f" ({_SCRAM_ALONE}). If the network is safe, say"
        f' insecure_clear_passwords: "{CLEAR_IN_WORDS}"'
    )


_SCRAM_ALONE = f"sasl_mechanisms: [{', '.join(each for each in SASL_MECHANISMS if each != PLAIN)}]"


def _listeners_with_clear_passwords(config: ServerConfig, *, authenticated: bool) -> list[tuple[str, str]]:
    """Return option and host of each listener that takes passwords or tokens without TLS.

    The native and the HTTP listener check credentials that a client shows, also where they ask for
    none.
    """
    has_certificate = bool(config.tls_certificate)
    found = []
    takes_native = authenticated or native_needs_login(config, authenticated=authenticated)
    if takes_native and not (has_certificate and config.native_tls):
        found.append(("native.host", config.native_host))
    found += [
        (f"the host of the Kafka listener {each.name!r}", each.host)
        for each in kafka_listeners(config)
        if each.needs_login(authenticated=authenticated)
        and PLAIN in (each.sasl_mechanisms or SASL_MECHANISMS)
        and not (has_certificate and each.tls)
    ]
    takes_http = authenticated or http_needs_login(config, authenticated=authenticated)
    if config.http_port != OFF and takes_http and not (has_certificate and config.http_tls):
        found.append(("http.host", config.http_host))
    return found


def _listeners_without_login(config: ServerConfig, *, authenticated: bool) -> list[tuple[str, str]]:
    """Return option and host of each listener that asks for no login."""
    knows_certificates = bool(config.tls_client_ca)
    open_frontends = []
    if not (
        native_needs_login(config, authenticated=authenticated) or (knows_certificates and config.native_tls)
    ):
        open_frontends.append(("native.host", config.native_host))
    open_frontends += [
        (f"the host of the Kafka listener {each.name!r}", each.host)
        for each in kafka_listeners(config)
        if not (each.needs_login(authenticated=authenticated) or (knows_certificates and each.tls))
    ]
    if config.http_port != OFF and not (
        http_needs_login(config, authenticated=authenticated) or (knows_certificates and config.http_tls)
    ):
        open_frontends.append(("http.host", config.http_host))
    if seed_ports(config):  # the seed systems know no login
        open_frontends.append(("seeds.host", config.seeds_host))
    return open_frontends


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address; a name must resolve to loopback
    addresses alone.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)} if host else set()
    except OSError:
        return False
    return bool(found) and all(
        ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found
    )
