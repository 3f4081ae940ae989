"""Brokers of a cluster over PostgreSQL (Debian's package) and an S3 server (versitygw, else moto),
all on this machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.crash.s3_server import S3Server
from tests.cluster.postgres_server import PostgresServer, find_binaries, why_not

from bench.peers.daemon import NotInstalled
from bench.server import START_TIMEOUT_S, Server

CLUSTER = "Sparrow, cluster"
POLL_S = 0.005
_KILOBYTE = 1 << 10


class ClusterServer(Server):
    """A broker of a cluster. `start` does not wait: it may be a standby."""

    def __init__(self, directory: Path, ledger: str, objects: str, *options: str) -> None:
        super().__init__(directory, *options)
        self._engines = {"SPARROW_LEDGER": ledger, "SPARROW_OBJECTS": objects}

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **self._engines}

    def start(self) -> float:
        with (self.directory.parent / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.environment)
        return 0.0

    @property
    def is_ready(self) -> bool:
        """True if it owns the data and serves."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/readyz", timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def until_ready(self) -> None:
        """Wait until it serves.

        Raises:
            RuntimeError: it ended, or takes too long.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.is_ready:
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the broker does not serve:\n{self._log.read_text()[-2000:]}")
            time.sleep(POLL_S)

    def metrics(self) -> dict[str, float]:
        """Return the values of metrics without labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and line[0] != "#" and "{" not in line)
        return {name: float(value) for name, value in pairs}


class Engines:
    """Both engines of one cluster, in a temporary directory."""

    def __init__(self, root: Path) -> None:
        reason = why_not()
        binaries = find_binaries()
        if reason is not None or binaries is None:
            raise NotInstalled(reason or "PostgreSQL is missing")
        self.root = root
        self.postgres = PostgresServer(binaries)
        self.s3 = S3Server(root / "s3")
        self.ledger = self.postgres.create("bench")

    @property
    def description(self) -> str:
        return (
            f"PostgreSQL {self.postgres.execute('bench', 'SHOW server_version').split()[0]}, {self.s3.name}"
        )

    def node(self, name: str, *options: str) -> ClusterServer:
        """Return a broker that is not started."""
        (self.root / name).mkdir(exist_ok=True)
        # Two checksums of each upload would be a third of the work of both cores.
        objects = f"{self.s3.url(self.s3.port)}&unsigned_payload=true"
        return ClusterServer(self.root / name / "data", self.ledger, objects, *options)

    def wal_bytes(self) -> float:
        """Return the position in PostgreSQL's write-ahead log."""
        return float(self.postgres.execute("bench", "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))

    def close(self) -> None:
        self.s3.stop()
        self.postgres.remove()


@contextlib.contextmanager
def engines() -> Iterator[Engines]:
    """Both engines, thrown away at the end.

    Raises:
        NotInstalled: PostgreSQL is missing.
    """
    root = Path(tempfile.mkdtemp(prefix="sparrow-bench-"))
    os.chmod(root, 0o755)
    found = Engines(root)
    try:
        yield found
    finally:
        found.close()
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def cluster_broker() -> Iterator[ClusterServer]:
    """One broker of a cluster, which owns the data."""
    with engines() as found:
        broker = found.node("a", "--default-partitions", "1")
        broker.start()
        try:
            broker.until_ready()
            yield broker
        finally:
            broker.stop()
