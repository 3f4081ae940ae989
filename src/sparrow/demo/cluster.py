"""Two brokers of a cluster for the demonstration, over a PostgreSQL server of its own and a
directory or a bucket. The broker that owns the data can be killed.

PostgreSQL is reached by a socket in a directory that belongs to its user alone; it listens at no
port.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sparrow.base.errors import InvalidArgument, SparrowError, TimedOut
from sparrow.base.settings import ENVIRONMENT_PREFIX
from sparrow.demo.surroundings import last_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIN_VERSION: Final = 15
START_S: Final = 60.0
STOP_S: Final = 20.0
PACKAGES: Final = ("asyncpg", "obstore")
_ACCOUNT: Final = "postgres"
_DEBIAN: Final = "/usr/lib/postgresql"
_POLL_S: Final = 0.02
NAMES: Final = ("a", "b")


def find_postgres(path: str | None = None, debian: str = _DEBIAN) -> str:
    """Return the directory of PostgreSQL's programs: that of `initdb` on PATH, else the newest of
    Debian's.

    Args:
        path: instead of PATH.

    Raises:
        InvalidArgument: there is none, or none that this user may run; the text says what to do.
    """
    on_path = shutil.which("initdb", path=path)
    found = [os.path.dirname(os.path.realpath(on_path))] if on_path else []
    places = sorted((each for each in Path(debian).glob("*/bin") if each.parent.name.isdigit()), reverse=True)
    found += [str(each) for each in places if int(each.parent.name) >= MIN_VERSION]
    usable = [each for each in found if os.access(f"{each}/postgres", os.X_OK)]
    if not usable:
        raise InvalidArgument(
            f"--cluster needs PostgreSQL {MIN_VERSION} or later, and there is no initdb on PATH; on Debian: "
            "apt install postgresql"
        )
    return usable[0]


def check_installed() -> None:
    """Check that both engines can be started.

    Raises:
        InvalidArgument: something is missing; the text says how to get it.
    """
    missing = [each for each in PACKAGES if importlib.util.find_spec(each) is None]
    if missing:
        raise InvalidArgument(
            f"--cluster needs the packages {' and '.join(missing)}: pip install 'sparrow-broker[cluster]'"
        )
    find_postgres()
    if os.getuid() == 0:
        try:
            pwd.getpwnam(_ACCOUNT)
        except KeyError:
            raise InvalidArgument(
                f"--cluster starts PostgreSQL, which does not run as root, and there is no user {_ACCOUNT}; "
                "run the demonstration as another user"
            ) from None


class DemoCluster:
    """Two brokers, of which one serves. `url` names both."""

    def __init__(self, work_dir: str, ledger: str, objects: str) -> None:
        self._work_dir = work_dir
        self._engines = {"SPARROW_LEDGER": ledger, "SPARROW_OBJECTS": objects}
        self._ports = {name: _free_port() for name in NAMES}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return "sparrow://" + ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def start(self) -> None:
        """Start both brokers, and wait until one serves and the other stands by.

        Raises:
            SparrowError: one ended instead; the text has the end of its log.
        """
        self._start("a")
        self._wait("a", lambda: self._is_ready("a"))
        self._start("b")
        self._wait("b", lambda: "standing by" in self._log("b").read_text(errors="replace"))

    def _start(self, name: str) -> None:
        directory = self._directory(name)
        directory.mkdir(parents=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(ENVIRONMENT_PREFIX)}
        environment |= self._engines | {
            "SPARROW_NATIVE_PORT": str(self._ports[name]),
            "SPARROW_KAFKA_PORT": "off",
            "SPARROW_HTTP_PORT": "off",
            "SPARROW_READY_FILE": str(directory / "ready.json"),
        }
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "sparrow", "serve"],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C at the terminal is the demonstration's, which ends its brokers.
                start_new_session=True,
            )

    def kill_owner(self) -> float:
        """Kill the broker that serves (-9), and wait until the other one does. Return the seconds
        that took.

        Raises:
            SparrowError, TimedOut: it does not.
        """
        owner = next(name for name in self._processes if self._is_ready(name))
        began = time.monotonic()
        process = self._processes.pop(owner)
        process.kill()
        process.wait()
        (other,) = self._processes
        self._wait(other, lambda: self._is_ready(other))
        return time.monotonic() - began

    def _wait(self, name: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not condition():
            process = self._processes[name]
            end = " ".join(last_lines(str(self._log(name)))[-3:])
            if process.poll() is not None:
                raise SparrowError(f"broker {name} ended with code {process.returncode}: {end}")
            if time.monotonic() > deadline:
                raise TimedOut(f"broker {name} was not ready within {START_S:g} s: {end}")
            time.sleep(_POLL_S)

    def _is_ready(self, name: str) -> bool:
        with suppress(FileNotFoundError):
            found = json.loads((self._directory(name) / "ready.json").read_text())
            return bool(found["pid"] == self._processes[name].pid)
        return False

    def _directory(self, name: str) -> Path:
        return Path(self._work_dir, f"broker-{name}")

    def _log(self, name: str) -> Path:
        return self._directory(name) / "log"

    def stop(self) -> None:
        """End the brokers that run, the standby first."""
        running = sorted(self._processes, key=self._is_ready)
        for name in running:
            self._processes[name].terminate()
        deadline = time.monotonic() + STOP_S
        for name in running:
            _end(self._processes[name], deadline)


@contextmanager
def running_cluster(work_dir: str, objects: str | None, *, keep: bool) -> Iterator[DemoCluster]:
    """Yield two running brokers over engines of their own.

    Args:
        objects: URL of an object store, below which a new prefix is used, that stays; None: a
            directory below `work_dir`.
        keep: leave PostgreSQL's directory.

    Raises:
        InvalidArgument, SparrowError: an engine or a broker did not start.
    """
    place = f"file://{work_dir}/objects" if objects is None else _below(objects)
    with ExitStack() as stack:
        ledger = stack.enter_context(_postgres(find_postgres(), keep=keep))
        cluster = DemoCluster(work_dir, ledger, place)
        stack.callback(cluster.stop)
        cluster.start()
        yield cluster


def _below(objects: str) -> str:
    """Return the URL of a new prefix."""
    parts = urlsplit(objects)
    return parts._replace(path=f"{parts.path.rstrip('/')}/demo-{uuid.uuid4().hex[:12]}").geturl()


@contextmanager
def _postgres(binaries: str, *, keep: bool) -> Iterator[str]:
    """Yield the URL of a database of a server that is started for it."""
    account = _ACCOUNT if os.getuid() == 0 else None
    home = tempfile.mkdtemp(prefix="sparrow-demo-pg-")  # PostgreSQL's user cannot enter the work directory
    if account is not None:
        shutil.chown(home, account)
    process: subprocess.Popen[bytes] | None = None
    try:
        log = Path(home, "log")
        command = [f"{binaries}/initdb", "-D", f"{home}/data", "-U", _ACCOUNT, "--auth=trust", "--no-sync",
                   "--locale=C", "--encoding=UTF8"]  # fmt: skip
        with log.open("wb") as output:
            done = subprocess.run(  # noqa: S603 - a program of PostgreSQL
                command, cwd=home, user=account, stdout=output, stderr=output, check=False
            )
            if done.returncode:
                raise SparrowError(f"PostgreSQL's initdb failed: {' '.join(last_lines(str(log))[-2:])}")
            process = subprocess.Popen(  # noqa: S603 - as above
                [f"{binaries}/postgres", "-D", f"{home}/data", "-k", home, "-c", "listen_addresses="],
                cwd=home,
                user=account,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not _answers(binaries, home):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SparrowError(f"PostgreSQL did not start: {' '.join(last_lines(str(log))[-2:])}")
            time.sleep(_POLL_S)
        yield f"postgresql://{_ACCOUNT}@/postgres?host={home}"
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # its connections end, then the server
            _end(process, time.monotonic() + STOP_S)
        if not keep:
            shutil.rmtree(home, ignore_errors=True)


def _answers(binaries: str, home: str) -> bool:
    done = subprocess.run(  # noqa: S603 - as above
        [f"{binaries}/pg_isready", "-q", "-h", home],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


def _end(process: subprocess.Popen[bytes], deadline: float) -> None:
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
