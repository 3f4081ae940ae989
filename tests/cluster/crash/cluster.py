"""Two brokers, their engines and the links between them, as loads see a broker."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from pathlib import Path

from tests.cluster.brokers import BrokerProcess
from tests.cluster.crash.links import Link
from tests.cluster.crash.s3_server import S3Server
from tests.cluster.postgres_server import PostgresServer

NAMES = ("a", "b")
PATIENCE_S = 90.0
POLL_S = 0.02


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Cluster:
    """A pair of brokers. `url`, `kafka` and `http` are addresses for clients; `http` is that of a
    load balancer, which asks `/readyz`.

    Args:
        inline_rate: see the option `cluster.inline_rate`.
    """

    def __init__(
        self, directory: Path, postgres: PostgresServer, s3: S3Server, inline_rate: str = "2 MiB"
    ) -> None:
        self._directory = directory
        self._inline_rate = inline_rate
        self.postgres = postgres
        self.s3 = s3
        self.ledger_links = {name: Link(lambda: postgres.port) for name in NAMES}
        self.object_links = {name: Link(lambda: s3.port) for name in NAMES}
        self._balancer = Link(lambda: self._http_ports[self.owner or NAMES[0]])
        self._kafka_ports = {name: free_port() for name in NAMES}
        self._native_ports = {name: free_port() for name in NAMES}
        self._http_ports = {name: free_port() for name in NAMES}
        self.brokers: dict[str, BrokerProcess] = {}
        self.owner: str | None = None
        """The broker that is ready; None: none."""
        self._watching: asyncio.Task[None] | None = None
        self.takeovers: list[float] = []
        """Seconds in which no broker was ready, by fault."""

    async def open(self, database: str) -> None:
        self._database = database
        for link in (*self.ledger_links.values(), *self.object_links.values(), self._balancer):
            await link.open()
        for name in NAMES:
            self.start(name)
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        await self.wait_for(lambda: self.owner is not None)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for broker in self.brokers.values():
            await asyncio.to_thread(broker.end)
        for link in (*self.ledger_links.values(), *self.object_links.values(), self._balancer):
            await link.close()

    # ── for clients ──

    @property
    def url(self) -> str:
        return "sparrow://" + ",".join(f"127.0.0.1:{port}" for port in self._native_ports.values())

    @property
    def kafka(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._kafka_ports.values())

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self._balancer.port}"

    # ── brokers ──

    def start(self, name: str) -> None:
        """Start a broker."""
        ledger = self.postgres.url(self._database).replace(
            f":{self.postgres.port}/", f":{self.ledger_links[name].port}/"
        )
        self.brokers[name] = BrokerProcess(
            self._directory,
            name,
            ledger,
            self.s3.url(self.object_links[name].port),
            SPARROW_KAFKA_PORT=str(self._kafka_ports[name]),
            SPARROW_KAFKA_HOST="127.0.0.1",
            SPARROW_NATIVE_PORT=str(self._native_ports[name]),
            SPARROW_HTTP_PORT=str(self._http_ports[name]),
            SPARROW_CLUSTER_INLINE_RATE=self._inline_rate,
            SPARROW_LOG_LEVEL="info",
            SPARROW_GROUPS_MIN_SESSION_TIMEOUT="1s",
            SPARROW_DEFAULT_PARTITIONS="1",
        )

    @property
    def standby(self) -> str:
        return NAMES[1] if self.owner == NAMES[0] else NAMES[0]

    async def owned(self) -> str:
        """Return the broker that serves, as soon as one does."""
        await self.wait_for(lambda: self.owner is not None)
        assert self.owner is not None
        return self.owner

    async def taken_from(self, name: str, since: float) -> None:
        """Wait until the other broker serves; note how long that took."""
        other = NAMES[1] if name == NAMES[0] else NAMES[0]
        await self.wait_for(lambda: self.owner == other)
        self.takeovers.append(time.monotonic() - since)

    async def wait_for(self, condition: object) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():  # type: ignore[operator]  # a function
            if time.monotonic() > deadline:
                logs = "\n".join(f"== {name}\n{each.log[-3000:]}" for name, each in self.brokers.items())
                raise AssertionError(f"it did not come in {PATIENCE_S} s:\n{logs}")
            await asyncio.sleep(POLL_S)

    async def _watch(self) -> None:
        """Ask both brokers who is ready, as a load balancer does."""
        while True:
            self._restart_ended()
            found = None
            for name in NAMES:
                if await self._is_ready(name):
                    found = name
            self.owner = found
            await asyncio.sleep(POLL_S)

    def _restart_ended(self) -> None:
        """Start brokers again that have ended by themselves, as a supervisor does: a start fails if
        an engine does not answer.
        """
        for name, broker in list(self.brokers.items()):
            if broker.process.poll() not in (None, 0, -signal.SIGKILL):
                self.start(name)

    async def _is_ready(self, name: str) -> bool:
        try:
            async with asyncio.timeout(0.5):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._http_ports[name])
                try:
                    writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    return (await reader.readline()).split()[1:2] == [b"200"]
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError):
            return False
