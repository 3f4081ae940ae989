"""Where other machines could come in without saying who they are: refused, unless the configuration says in words that this is meant."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidConfig
from sparrow.server.config import IN_WORDS, http_needs_login, kafka_listeners, native_needs_login, seed_ports
from sparrow.server.listeners import OFF

if TYPE_CHECKING:
    from sparrow.server.config import ServerConfig


def check_exposure(config: ServerConfig, *, authenticated: bool) -> None:
    """Refuse to listen where other machines come in unless they must say who they are: by a token, a password or a certificate.

    `authenticated`: tokens or users are configured.

    Raises:
        InvalidConfig: says what to set.
    """
    if config.insecure_public_listen == IN_WORDS:
        return
    open_doors = _doors_without_login(config, authenticated=authenticated)
    public = next(((what, host) for what, host in open_doors if not is_loopback(host)), None)
    if public is None:
        return
    what, host = public
    raise InvalidConfig(
        f"{what} is {host!r}: other machines could connect, and nobody has to log in there."
        " Set users, users_file, tokens, tokens_file or tls.client_ca, or listen on 127.0.0.1; if everybody may really"
        " publish, read and delete, say"
        f' insecure_public_listen: "{IN_WORDS}"'
    )


def _doors_without_login(config: ServerConfig, *, authenticated: bool) -> list[tuple[str, str]]:
    """Option and host of each door where nobody has to say who he is."""
    knows_certificates = bool(config.tls_client_ca)
    open_doors = []
    if not (
        native_needs_login(config, authenticated=authenticated) or (knows_certificates and config.native_tls)
    ):
        open_doors.append(("native.host", config.native_host))
    open_doors += [
        (f"the host of the Kafka listener {each.name!r}", each.host)
        for each in kafka_listeners(config)
        if not (each.needs_login(authenticated=authenticated) or (knows_certificates and each.tls))
    ]
    if config.http_port != OFF and not (
        http_needs_login(config, authenticated=authenticated) or (knows_certificates and config.http_tls)
    ):
        open_doors.append(("http.host", config.http_host))
    if seed_ports(config):  # the seed systems know no login
        open_doors.append(("seeds.host", config.seeds_host))
    return open_doors


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address; a name must resolve to loopback addresses alone."""
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
