"""A broker with an HTTP frontend in the loop of the test."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest_asyncio

from sparrow.base.clock import ManualClock
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.frontends.http.frontend import HttpFrontend
from sparrow.frontends.http.limits import HttpLimits
from sparrow.server.logins import Logins
from sparrow.server.run import loop_factory
from sparrow.server.tokens import Tokens
from tests.http_frontend.raw import Response, ask

ONE_PARTITION = BrokerConfig(default_partitions=1)
DRAIN_S = 0.5
_numbers = itertools.count()


@dataclass(frozen=True)
class Http:
    """A running frontend and its broker."""

    broker: Broker
    frontend: HttpFrontend
    port: int
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Awaitable[Response]:
        """Send one request on a connection of its own."""
        return ask(self.port, method, path, body, headers)

    def get(self, path: str, **headers: str) -> Awaitable[Response]:
        """Send a GET; `authorization="Bearer x"` is a header."""
        return self.ask("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def post(self, path: str, body: bytes = b"", **headers: str) -> Awaitable[Response]:
        """Send a POST; `content_type="text/plain"` is a header."""
        return self.ask("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})


class MakeHttp(Protocol):
    def __call__(
        self,
        *,
        broker: Broker | None = None,
        tokens: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        login: bool | None = None,
        tls: ssl.SSLContext | None = None,
        config: BrokerConfig = ONE_PARTITION,
        clock: ManualClock | None = None,
        **limits: Any,
    ) -> Awaitable[Http]: ...


@pytest_asyncio.fixture
async def make_http(tmp_path: Path) -> AsyncIterator[MakeHttp]:
    """Create frontends, each with a broker of its own unless one is given. `login` None: required
    if there are tokens or users. The other arguments are `HttpLimits`.
    """
    async with AsyncExitStack() as stack:
        yield partial(_make, stack, tmp_path)


async def _make(
    stack: AsyncExitStack,
    path: Path,
    *,
    broker: Broker | None = None,
    tokens: Mapping[str, str] | None = None,
    users: Mapping[str, str] | None = None,
    login: bool | None = None,
    tls: ssl.SSLContext | None = None,
    config: BrokerConfig = ONE_PARTITION,
    clock: ManualClock | None = None,
    **limits: Any,
) -> Http:
    if broker is None:
        name = f"broker{next(_numbers)}"
        broker = await stack.enter_async_context(Broker(path / name, config=config, clock=clock))
    await broker.users.ensure(users or {})
    required = bool(tokens or users) if login is None else login
    logins = Logins(broker.users, Tokens(tokens or {}), is_required=required)
    frontend = HttpFrontend(
        broker, logins=logins, limits=HttpLimits(**{"failed_login_delay_ms": 1, **limits})
    )
    port = await frontend.start("127.0.0.1", 0, tls=tls)
    stack.push_async_callback(frontend.drain, DRAIN_S)
    return Http(broker, frontend, port, tls)


@pytest_asyncio.fixture
async def http(make_http: MakeHttp) -> Http:
    """A frontend that requires no login."""
    return await make_http()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that brokers run on: uvloop's transports differ in details."""
    return {"broker": loop_factory()}
