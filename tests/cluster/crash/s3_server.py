"""An S3 server in a process: versitygw where it is installed (SPARROW_VERSITYGW, PATH, or Go's
directory of programs), else moto.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

KEY, SECRET = "key-of-the-tests", "secret-of-the-tests"
BUCKET = "sparrow"


def find_versitygw() -> str | None:
    """Return the program."""
    places = [os.environ.get("SPARROW_VERSITYGW"), shutil.which("versitygw")]
    places.append(str(Path.home() / "go/bin/versitygw"))
    return next((each for each in places if each and Path(each).exists()), None)


def why_not() -> str | None:
    """Return the reason if no server can be started here, else None."""
    if find_versitygw() is None and importlib.util.find_spec("moto") is None:
        return "neither versitygw nor moto is installed; for moto: make setup"
    return None


def start_s3(directory: Path) -> S3Server:
    """Start a server, or skip the test with the reason."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    return S3Server(directory)


class S3Server:
    """A server with one bucket. versitygw keeps it in a directory; moto in memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._program = find_versitygw()
        self.name = "versitygw" if self._program else "moto"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        (directory / BUCKET).mkdir(parents=True, exist_ok=True)
        self.start()
        if self._program is None:
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request).close()

    @property
    def can_restart(self) -> bool:
        """True if the content outlives the process."""
        return self._program is not None

    def start(self) -> None:
        if self._program is None:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        else:
            command = [
                self._program, "--access", KEY, "--secret", SECRET, "--port", f"127.0.0.1:{self.port}",
                "--quiet", "posix", "--nometa", str(self._directory),
            ]  # fmt: skip
        with (self._directory.parent / "s3.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._directory.parent / "s3.log").read_text(errors="replace")[-2000:])
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def url(self, port: int) -> str:
        """Return the URL of objects through a port."""
        return (
            f"s3://{BUCKET}/cluster?endpoint=http://127.0.0.1:{port}&region=us-east-1"
            f"&access_key_id={KEY}&secret_access_key={SECRET}"
        )
