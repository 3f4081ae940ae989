"""A PostgreSQL server of the tests' own, from Debian's package, in a temporary directory on a free
port.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

USER = "postgres"
PASSWORD = "secret-of-the-tests"


def find_binaries() -> Path | None:
    """Return the directory of the newest PostgreSQL's programs that is new enough."""
    found = [each for each in Path("/usr/lib/postgresql").glob("*/bin") if each.parent.name.isdigit()]
    found = [each for each in found if int(each.parent.name) >= 15 and (each / "initdb").exists()]
    return max(found, key=lambda each: int(each.parent.name), default=None)


class PostgresServer:
    """A running server; `url(database)` for its databases."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._home = tempfile.mkdtemp(prefix="sparrow-pg-")
        self._data = f"{self._home}/data"
        self._account = _account()
        if self._account is not None:
            shutil.chown(self._home, self._account)
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        password_file = Path(self._home, "password")
        password_file.write_text(PASSWORD)
        if self._account is not None:
            shutil.chown(password_file, self._account)
        self._run(
            "initdb", "-D", self._data, "-U", USER, "--auth=scram-sha-256",
            f"--pwfile={password_file}",
            "--no-sync", "--locale=C", "--encoding=UTF8",
        )  # fmt: skip
        self.start()

    def start(self, *options: str) -> None:
        """Start the server, and wait until it answers."""
        self.process = self._launch(self._data, self.port, *options)

    def _launch(self, data: str, port: int, *options: str) -> subprocess.Popen[bytes]:
        command = [
            f"{self._binaries}/postgres", "-D", data, "-p", str(port), "-k", self._home,
            "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200",
            "-c", "shared_buffers=32MB", *options,
        ]  # fmt: skip
        with Path(self._home, "log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self._home, user=self._account, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 60
        while self._run("pg_isready", "-h", "127.0.0.1", "-p", str(port), check=False):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(Path(self._home, "log").read_text(errors="replace")[-2000:])
            time.sleep(0.05)
        return process

    def stop(self, number: int = signal.SIGQUIT) -> None:
        """Stop the server; SIGQUIT: at once, as a crash."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None

    def fail_over(self) -> None:
        """Crash the server, and go on with a synchronous standby, which is promoted; at another
        port.
        """
        old_data, data, port = self._data, f"{self._home}/data-{time.monotonic_ns()}", _free_port()
        self._run(
            "pg_basebackup", "-D", data, "-d", self.url("postgres"), "-R", "-X", "stream", "-c", "fast",
            "--no-sync",
        )  # fmt: skip
        standby = self._launch(data, port)
        self.execute("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.execute("postgres", "SELECT pg_reload_conf()")
        self._until("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1")
        lsn = self.execute("postgres", "SELECT pg_current_wal_lsn()").strip()
        self._until(f"SELECT bool_and(flush_lsn >= '{lsn}') FROM pg_stat_replication", "t")
        self.stop()
        self.process, self._data, self.port = standby, data, port
        self.execute("postgres", "SELECT pg_promote(true, 60)")
        self._until("SELECT pg_is_in_recovery()", "f")
        shutil.rmtree(old_data, ignore_errors=True)

    def _until(self, statement: str, wanted: str) -> None:
        deadline = time.monotonic() + 60
        while (found := self.execute("postgres", statement).strip()) != wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{statement} returns {found}, not {wanted}, for a minute")
            time.sleep(0.05)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def url(self, database: str, password: str = PASSWORD) -> str:
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """Create a database; return its URL."""
        self.execute("postgres", f'CREATE DATABASE "{database}"')
        return self.url(database)

    def execute(self, database: str, statement: str) -> str:
        """Run a statement; return what psql prints."""
        done = subprocess.run(
            [f"{self._binaries}/psql", "-X", "-q", "-A", "-t", "-c", statement, self.url(database)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        return subprocess.run(
            [f"{self._binaries}/{program}", *arguments],
            cwd=self._home, user=self._account, check=check,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ).returncode  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _account() -> str | None:
    """Return the account that runs the server: PostgreSQL refuses to run as root."""
    return USER if os.getuid() == 0 else None


def why_not() -> str | None:
    """Return the reason if no server can be started here, else None."""
    if find_binaries() is None:
        return "PostgreSQL 15 or later is not installed; on Debian: apt install postgresql"
    if os.getuid() == 0:
        try:
            pwd.getpwnam(USER)
        except KeyError:
            return f"PostgreSQL does not run as root, and there is no user {USER}"
    return None


def start_postgres() -> PostgresServer:
    """Start a server, or skip the test with the reason."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    binaries = find_binaries()
    assert binaries is not None
    return PostgresServer(binaries)
