"""NATS with JetStream: one `nats-server` with file storage.

What it says of a publish depends on its version. Up to 2.9 (Debian 12 has 2.9.10) the
acknowledgement comes when the message is written to the file, so from the page cache, and files are
synced every two minutes; there is no setting for it. From 2.10 on that is the default still, and
`sync_interval: always` syncs each message before its acknowledgement. Both are measured where they
can be had. An acknowledgement of a consumer is kept in memory and written to a file soon after; it
is confirmed to the consumer only if it asks (`ack_sync`).
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.peers.daemon import Daemon, NotInstalled, Peer, directory, found
from bench.peers.daemon import running as running_daemon
from bench.server import free_port

UNSYNCED = "publish acknowledged from the page cache; fsync every 2 min; acks written later"
SYNCED = "sync_interval always: publish acknowledged after fsync; acks written later"
SETTINGS = (
    "JetStream, file storage, one replica; sync_interval: 2 min (its default), or always where the row "
    "says so"
)
PROGRAM_VARIABLE = "SPARROW_BENCH_NATS_SERVER"
"""The environment variable that names another nats-server than the one in the path."""
_INSTALL = "nats-server is not installed (Debian: apt-get install nats-server)"
_SYNCS_FROM = (2, 10)


def program() -> str:
    """Its path. Raises NotInstalled."""
    return found([os.environ.get(PROGRAM_VARIABLE) or "nats-server"], _INSTALL)


def version() -> str:
    """As it says itself. Raises NotInstalled."""
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip().rpartition("v")[2]


def can_sync(release: str) -> bool:
    """Return True if this version can sync a message before it acknowledges it."""
    numbers = re.findall(r"\d+", release)
    return tuple(int(each) for each in numbers[:2]) >= _SYNCS_FROM


def too_old(release: str) -> str:
    """The sentence for a server that cannot."""
    return (
        f"nats-server {release} cannot sync before it acknowledges; 2.10 and later can: go install "
        f"github.com/nats-io/nats-server/v2@latest, and name it in {PROGRAM_VARIABLE}"
    )


@contextlib.contextmanager
def prepared(root: Path, *, is_synced: bool = False) -> Iterator[Peer]:
    """A server with its data below `root`, not started.

    Raises:
        NotInstalled: it is missing, or too old for what is asked for.
    """
    command = program()
    if is_synced and not can_sync(version()):
        raise NotInstalled(too_old(version()))
    port = free_port()
    (root / "nats.conf").write_text(_settings(root, port, is_synced=is_synced))
    yield Peer(Daemon([command, "-c", str(root / "nats.conf")], root / "log", port), port)


@contextlib.contextmanager
def running(*, is_synced: bool = False) -> Iterator[int]:
    """A server without streams; yields its port."""
    with directory() as root, prepared(root, is_synced=is_synced) as peer, running_daemon(peer.daemon):
        yield peer.address


def _settings(root: Path, port: int, *, is_synced: bool) -> str:
    sync = "sync_interval: always" if is_synced else ""
    return f"""\
host: 127.0.0.1
port: {port}
server_name: bench
jetstream {{
  store_dir: "{root / "data"}"
  {sync}
}}
"""
