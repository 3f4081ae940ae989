"""Redis: `redis-server` with the append-only file synced before every answer (`appendfsync always`), and nothing else on the disk."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.peers.daemon import NotInstalled, daemon, directory
from bench.server import free_port

DURABILITY = "appendfsync always: publish and XACK after fsync"
_INSTALL = "redis-server is not installed (Debian: apt-get install redis-server)"


def program() -> str:
    """Its path. Raises NotInstalled."""
    found = shutil.which("redis-server")
    if found is None:
        raise NotInstalled(_INSTALL)
    return found


@contextlib.contextmanager
def running() -> Iterator[int]:
    """A server with an empty data directory; yields its port."""
    command = program()
    with directory() as root:
        port = free_port()
        (root / "redis.conf").write_text(_settings(root, port))
        with daemon([command, str(root / "redis.conf")], root / "log", port):
            yield port


def _settings(root: Path, port: int) -> str:
    settings = {
        "bind": "127.0.0.1",
        "port": port,
        "dir": root,
        "daemonize": "no",
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "auto-aof-rewrite-percentage": 0,  # no rewriting of the file while it is measured
        "save": '""',  # no snapshots
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())
