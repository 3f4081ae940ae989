"""Redis: `redis-server` with the append-only file and nothing else on the disk; synced before every
answer (`appendfsync always`), or each second (`everysec`).
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.peers.daemon import Daemon, Peer, directory, found
from bench.peers.daemon import running as running_daemon
from bench.server import free_port

DURABILITY = "appendfsync always: publish and XACK after fsync"
UNSYNCED = "appendfsync everysec: publish answered from the page cache; fsync each second"
SETTINGS = (
    "appendonly yes, appendfsync always (rows that say everysec: everysec), no snapshots, no rewriting of "
    "the file"
)
_INSTALL = "redis-server is not installed (Debian: apt-get install redis-server)"


def program() -> str:
    """Its path. Raises NotInstalled."""
    return found(["redis-server"], _INSTALL)


def version() -> str:
    """As it says itself. Raises NotInstalled."""
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True).stdout
    return next((word[2:] for word in said.split() if word.startswith("v=")), said.strip())


@contextlib.contextmanager
def prepared(root: Path) -> Iterator[Peer]:
    """A server with its data below `root`, not started."""
    command, port = program(), free_port()
    (root / "redis.conf").write_text(_settings(root, port))
    yield Peer(Daemon([command, str(root / "redis.conf")], root / "log", port), port)


@contextlib.contextmanager
def running() -> Iterator[int]:
    """A server with an empty data directory; yields its port."""
    with directory() as root, prepared(root) as peer, running_daemon(peer.daemon):
        yield peer.address


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
