"""Servers for the client's tests: a real broker behind its native frontend, and a proxy that cuts
connections.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sparrow.base.errors import NotAuthenticated
from sparrow.broker.access.authz import ANONYMOUS, Principal
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.client.client import Client
from sparrow.client.options import ClientOptions
from sparrow.client.session import Session
from sparrow.client.url import parse_url
from sparrow.frontends.native.frontend import NativeFrontend
from sparrow.frontends.native.limits import NativeLimits
from sparrow.records.record import Record

NEVER = 1 << 60


class TokenAuthenticator:
    """Admits everybody who has the token, or everybody if there is none."""

    def __init__(self) -> None:
        self.token: str | None = None

    def authenticate(self, credentials: Mapping[str, str], peer: str) -> Principal:
        if self.token is not None and credentials.get("token") != self.token:
            raise NotAuthenticated("the token is not known here; ask the operator for one")
        return ANONYMOUS


class Frontend:
    """A broker with a native frontend, which can be stopped and started again on the same port."""

    def __init__(self, path: Path, config: BrokerConfig, limits: NativeLimits) -> None:
        self.authenticator = TokenAuthenticator()
        self.limits = limits
        self.port = 0
        self._path = path
        self._config = config
        self._broker: Broker | None = None
        self._native: NativeFrontend | None = None

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    @property
    def native(self) -> NativeFrontend:
        assert self._native is not None
        return self._native

    @property
    def url(self) -> str:
        return f"sparrow://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._broker = Broker(self._path, config=self._config)
        await self._broker.start()
        self._native = NativeFrontend(self._broker, authenticator=self.authenticator, limits=self.limits)
        self.port = await self._native.start("127.0.0.1", self.port)

    async def stop(self, *, drain_s: float = 1.0) -> None:
        if self._native is not None:
            await self._native.drain(drain_s)
            self._native = None
        if self._broker is not None:
            await self._broker.close()
            self._broker = None


class Proxy:
    """A proxy that cuts each connection after a number of bytes in each direction, drawn from a
    seed.

    `is_silent` keeps connections open and forwards nothing.
    """

    def __init__(
        self, target_port: int, *, seed: int = 0, min_bytes: int = NEVER, max_bytes: int = NEVER
    ) -> None:
        self.cuts = 0
        self.is_silent = False
        self.is_refusing = False
        self.port = 0
        self._target_port = target_port
        self._random = random.Random(seed)
        self._span = (min_bytes, max_bytes)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"sparrow://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.is_refusing = True
        self.cut()
        await asyncio.sleep(0)  # a connection that was just accepted is refused
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # aborted connections are closed in the loop's next iteration

    def never_cut(self) -> None:
        self._span = (NEVER, NEVER)

    def cut(self) -> None:
        """Cut all connections now."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.is_refusing:
            writer.transport.abort()
            return
        with suppress(asyncio.CancelledError, OSError):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            pair = (writer, there_writer)
            self._writers.update(pair)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._forward(reader, there_writer, pair))
                    group.create_task(self._forward(there_reader, writer, pair))
            finally:
                self._writers.difference_update(pair)
                there_writer.transport.abort()
        writer.transport.abort()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pair: tuple[asyncio.StreamWriter, ...],
    ) -> None:
        left = self._random.randint(*self._span)
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                while self.is_silent:
                    await asyncio.sleep(0.01)
                writer.write(data[:left])
                left -= len(data)
                if left <= 0:
                    self.cuts += 1
                    with suppress(OSError):
                        await writer.drain()
                    break
                await writer.drain()
        for one in pair:
            one.close()


@asynccontextmanager
async def client_of(url: str, **options: object) -> AsyncIterator[Client]:
    """Yield a client that reconnects fast."""
    session = await open_session(url, **options)
    async with Client(session) as client:
        yield client


async def open_session(url: str, **options: object) -> Session:
    merged = {"backoff_initial_s": 0.001, "backoff_max_s": 0.02, "close_timeout_s": 5.0, **options}
    session = Session(parse_url(url), ClientOptions(**merged))  # type: ignore[arg-type]
    await session.open()
    return session


async def everything(client: Client, topic: str, count: int, timeout_s: float = 20.0) -> list[Record]:
    """Return the first `count` messages of a topic, and any that follow at once."""
    found: list[Record] = []
    async with client.subscribe(topic, start="beginning", mode="pull") as sub, asyncio.timeout(timeout_s):
        while len(found) < count:
            found += await sub.pull(1000, wait_s=1)
        found += await sub.pull(1000, wait_s=0)
    return found
