"""Many idle sockets cost little memory, no task and no time of others."""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import tracemalloc

import pytest

from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_streams.conftest import DEADLINE_S, socket_to
from tests.http_streams.test_socket_garbage import HANDSHAKE

SOCKETS = 1000
MAX_BYTES_EACH = 16_000


@pytest.fixture
def open_files() -> int:
    """Return the number of sockets that this process may open, with as many for the broker in
    it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * SOCKETS + 500
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    return min(SOCKETS, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500) // 2)


@pytest.mark.slow
async def test_a_thousand_idle_sockets_cost_little_memory_and_no_task(
    make_http: MakeHttp, open_files: int
) -> None:
    http = await make_http(max_connections=2 * SOCKETS, sweep_interval_ms=50)
    async with socket_to(http.port) as busy:
        tasks = len(asyncio.all_tasks())
        tracemalloc.start()
        try:
            clients = await asyncio.to_thread(_open, http.port, open_files)
            await _until_open(http, open_files + 1)
            gc.collect()
            used = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert used / open_files < MAX_BYTES_EACH
        assert len(asyncio.all_tasks()) <= tasks + 1
        await busy.ask("publish", "published", topic="t", message={"value": "x"})
        for client in clients:
            client.close()
        await _until_open(http, 1)


def _open(port: int, count: int) -> list[socket.socket]:
    """Open sockets and complete their handshakes."""
    clients = []
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        client.sendall(HANDSHAKE)
        clients.append(client)
    for client in clients:
        assert client.recv(4096).startswith(b"HTTP/1.1 101")
    return clients


async def _until_open(http: Http, count: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while http.frontend.connections != count:
            await asyncio.sleep(0.01)
