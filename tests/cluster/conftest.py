"""Engines for the tests of cluster mode."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.cluster.postgres_server import PostgresServer, start_postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NUMBERS = itertools.count(1)
KEY, SECRET = "key-of-the-tests", "secret-of-the-tests"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Yield a running PostgreSQL server for all tests of a process."""
    server = start_postgres()
    yield server
    server.remove()


@pytest.fixture
def ledger_url(postgres: PostgresServer) -> str:
    """Return the URL of an empty database."""
    pytest.importorskip("asyncpg")
    return postgres.create(f"test_{next(_NUMBERS)}")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Yield the address of a running S3 server (moto, in its own process)."""
    pytest.importorskip("obstore")
    pytest.importorskip("moto.server", reason="moto is not installed: make setup")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the S3 server did not start")
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.fixture
def s3_url(s3_endpoint: str) -> Callable[[str], str]:
    """Return the URL of a prefix in a new bucket."""
    bucket = f"bucket-{next(_NUMBERS)}"
    request = urllib.request.Request(f"{s3_endpoint}/{bucket}", method="PUT")
    urllib.request.urlopen(request).close()
    credentials = f"access_key_id={KEY}&secret_access_key={SECRET}"
    return lambda prefix: f"s3://{bucket}/{prefix}?endpoint={s3_endpoint}&region=us-east-1&{credentials}"
