"""Which broker a command talks to, and the loop that it runs on."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.client import Client

T = TypeVar("T")

DEFAULT_URL = "sparrow://127.0.0.1:9094"
CONNECT_TIMEOUT_S = 2.0
"""Somebody waits at the terminal."""

URL_VARIABLE = "SPARROW_URL"
TOKEN_VARIABLE = "SPARROW_TOKEN"  # noqa: S105 - a variable's name

Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help=f"The broker. [env var: {URL_VARIABLE}; default: {DEFAULT_URL}]"
    ),
]
Token = Annotated[
    str | None, typer.Option("--token", help=f"Token that says who you are. [env var: {TOKEN_VARIABLE}]")
]


@dataclass(frozen=True, slots=True)
class Target:
    """A broker's address and the token for it."""

    url: str
    token: str | None


def target(context: typer.Context, url: str | None, token: str | None) -> Target:
    """What the command was told, else what stood in front of the command, else the environment, else the default."""
    outer = context.find_root().params
    return Target(
        url or outer.get("url") or os.environ.get(URL_VARIABLE) or DEFAULT_URL,
        token or outer.get("token") or os.environ.get(TOKEN_VARIABLE),
    )


def with_client(where: Target, act: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, act, close; returns what `act` returned.

    Raises:
        ConnectionLost: the broker cannot be reached; the message names the address and what to check.
    """

    async def connected() -> T:
        from sparrow.client import connect

        async with connect(
            where.url, token=where.token, client_name="sparrow-cli", connect_timeout_s=CONNECT_TIMEOUT_S
        ) as client:
            return await act(client)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(connected())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
