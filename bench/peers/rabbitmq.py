"""RabbitMQ: one node of its own (own cookie, own epmd), with quorum queues and durable classic
queues.

A publish is confirmed when the queue has it on the disk: a quorum queue after the fsync of its
write-ahead log, a durable classic queue when its message store or its index was synced. An
acknowledgement of a consumer is not confirmed to it; a quorum queue logs it, too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from bench.peers.daemon import Daemon, Peer, directory, found
from bench.peers.daemon import running as running_daemon
from bench.server import free_port

QUORUM = "publish confirmed after fsync; acks never confirmed"
CLASSIC = "durable, persistent; publish confirmed after fsync; acks never"
STREAM = "stream queue: publish confirmed from the page cache; never synced by the broker"
SETTINGS = "one node without plugins, quorum and durable classic (version 2) queues, heartbeat 0"
_INSTALL = "rabbitmq-server is not installed (Debian: apt-get install rabbitmq-server)"
_SERVERS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
"""Debian's wrapper in the path changes to another user; the script behind it does not."""


def programs() -> tuple[str, str]:
    """The server and Erlang's port mapper. Raises NotInstalled."""
    return found(_SERVERS, _INSTALL), found(["epmd"], _INSTALL)


def version() -> str:
    """By the name of the directory that it is installed in: asking it takes seconds. Raises
    NotInstalled.
    """
    server = Path(programs()[0]).resolve()
    homes = (each.name for above in server.parents for each in above.glob("lib/rabbitmq_server-*"))
    own = (each.name for each in server.parents)
    versions = (name.rpartition("-")[2] for name in (*own, *homes) if name.startswith("rabbitmq_server-"))
    return next(versions, "of unknown version")


@contextlib.contextmanager
def prepared(root: Path) -> Iterator[Peer]:
    """A node with its data below `root`, not started; its port mapper runs until the block ends."""
    server, epmd = programs()
    port, mapper_port = free_port(), free_port()
    mapper = [epmd, "-address", "127.0.0.1", "-port", str(mapper_port)]
    with running_daemon(Daemon(mapper, root / "epmd.log", mapper_port)):
        yield Peer(Daemon([server], root / "log", port, _environment(root, port, mapper_port)), port)


@contextlib.contextmanager
def running() -> Iterator[int]:
    """A node without queues; yields its port."""
    with directory() as root, prepared(root) as peer, running_daemon(peer.daemon):
        yield peer.address


def _environment(root: Path, port: int, mapper_port: int) -> dict[str, str]:
    (root / "plugins").write_text("[].\n")
    (root / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\nheartbeat = 0\n")
    return {
        **os.environ,
        "HOME": str(root),
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench-{os.getpid()}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(root / "data"),
        "RABBITMQ_LOG_BASE": str(root / "logs"),
        "RABBITMQ_PID_FILE": str(root / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(root / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(root / "rabbitmq"),
        "RABBITMQ_CONF_ENV_FILE": str(root / "no-environment"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(root / "no-advanced"),
    }
