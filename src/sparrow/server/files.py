"""The system's limit of open files, and the number of connections that it leaves room for."""

from __future__ import annotations

import logging
import resource
from typing import TYPE_CHECKING

from sparrow.server.config import kafka_listeners, seed_ports
from sparrow.server.listeners import OFF

if TYPE_CHECKING:
    from sparrow.server.config import ServerConfig

log = logging.getLogger("sparrow.server")

OPEN_FILES_BESIDES = 1_000
"""Descriptors for everything but connections of clients: segment files, the meta store,
listeners.
"""


def allow_connections(config: ServerConfig) -> None:
    """Raise the limit as far as possible and useful; warn if it leaves fewer connections than one
    listener would take.
    """
    wanted = _frontends(config) * config.listeners.max_connections
    allow_open_files(wanted + _besides(config))
    room = connection_room(config)
    if not room or room >= wanted:
        return
    log.log(
        logging.WARNING if room < config.listeners.max_connections else logging.DEBUG,
        "the limit of open files (ulimit -n) leaves room for %d connections at a time, of all %d "
        "frontends together, not for"
        " max_connections %d at each",
        room,
        _frontends(config),
        config.listeners.max_connections,
    )


def connection_room(config: ServerConfig) -> int:
    """Return how many clients may be connected at all listeners together; 0: as many as they
    allow.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return 0
    return limit - min(_besides(config), limit // 2)


def _frontends(config: ServerConfig) -> int:
    return 1 + bool(kafka_listeners(config)) + (config.http_port != OFF) + len(seed_ports(config))


def _besides(config: ServerConfig) -> int:
    return OPEN_FILES_BESIDES + config.webhooks.max_connections


def allow_open_files(wanted: int) -> int:
    """Raise the soft limit of open files towards `wanted`, as far as the hard limit allows; the
    default soft limit is often 1,024.

    Returns the limit that holds now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ceiling = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft >= ceiling:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))
    except (OSError, ValueError):  # the system has another limit, which it does not show
        return soft
    return ceiling
