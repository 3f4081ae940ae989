"""A real `sparrow serve` process on a free port and a temporary data directory."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
_NO_CLIENTS = range(15_000, 32_000)
"""Ports below those that Linux gives to connections (`ip_local_port_range`)."""


def free_port() -> int:
    """Return a port that nothing listens on, and that Linux gives to no client before the server
    that it is for has started.
    """
    while True:
        port = secrets.choice(_NO_CLIENTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


class Server:
    """One broker process; `start` returns when its port accepts."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.kafka_port = free_port()
        self.http_port = free_port()
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def _log(self) -> Path:
        return self.directory.parent / "serve.log"

    @property
    def url(self) -> str:
        return f"sparrow://127.0.0.1:{self.port}"

    @property
    def kafka(self) -> str:
        """Bootstrap servers for Kafka clients."""
        return f"localhost:{self.kafka_port}"

    @property
    def command(self) -> list[str]:
        """Return the command that starts it."""
        return [
            str(Path(sys.executable).with_name("sparrow")),
            "serve",
            "--data-dir",
            str(self.directory),
            "--native-port",
            str(self.port),
            "--kafka-port",
            str(self.kafka_port),
            "--http-port",
            str(self.http_port),
            *self.options,
        ]

    @property
    def environment(self) -> dict[str, str]:
        """Without settings of the user who runs the bench."""
        return {k: v for k, v in os.environ.items() if not k.startswith(("SPARROW_", "PYTHONDONTWRITE"))}

    def start(self) -> float:
        """Start it; returns the seconds from exec to the first accepted connection."""
        log = self._log.open("ab")
        began = time.perf_counter()
        self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.environment)
        log.close()
        self._wait_for(self.port)
        spent = time.perf_counter() - began
        self._wait_for(self.http_port, touch=False)
        return spent

    def _wait_for(self, port: int, *, touch: bool = True) -> None:
        """Until the port is listened on; without `touch` no connection comes in (the HTTP listener
        loads its libraries at the first).
        """
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (_accepts(port) if touch else _is_taken(port)):
            if self.process.poll() is not None:
                raise RuntimeError(f"sparrow serve ended:\n{self._log.read_text()}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"sparrow serve does not listen on port {port} after {START_TIMEOUT_S:g} s"
                )
            time.sleep(0.002)

    def until_listening(self, port: int) -> None:
        """Listeners that open after the native one are waited for by those who measure them."""
        self._wait_for(port, touch=False)

    def rss_bytes(self) -> int:
        assert self.process is not None
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, and wait; one that does not end is killed.

        Raises:
            subprocess.TimeoutExpired: it had to be.
        """
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@contextlib.contextmanager
def server(*options: str) -> Iterator[Server]:
    """A running broker whose data is thrown away at the end."""
    root = Path(tempfile.mkdtemp(prefix="sparrow-bench-"))
    broker = Server(root / "data", *options)
    try:
        broker.start()
        yield broker
    finally:
        try:
            broker.stop()
        finally:
            shutil.rmtree(root, ignore_errors=True)
