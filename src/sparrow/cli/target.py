"""Which broker a command talks to, the loop that it runs on, and how a signal ends it.

The first Ctrl-C or SIGTERM cancels the command, which then finishes (a group's offsets are committed, the connection says goodbye).
The second ends the process at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sparrow.cli.exits import TERMINATED

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
        KeyboardInterrupt, SystemExit: Ctrl-C, SIGTERM.
    """
    signals = Signals()

    async def connected() -> T:
        from sparrow.client import connect

        signals.cancel_this_task()
        async with connect(
            where.url, token=where.token, client_name="sparrow-cli", connect_timeout_s=CONNECT_TIMEOUT_S
        ) as client:
            return await act(client)

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(connected())
    except asyncio.CancelledError:
        signals.raise_received()
        raise
    finally:
        signals.restore()


class Signals:
    """What SIGINT and SIGTERM do to one command."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def cancel_this_task(self) -> None:
        """Let the first signal cancel the task that runs now. Only the main thread gets signals."""
        if threading.current_thread() is not threading.main_thread():
            return
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            # A shell that runs a command in the background has it ignore Ctrl-C.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._receive, number, task)

    def restore(self) -> None:
        """Let signals mean what they meant before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def raise_received(self) -> None:
        """End as the signal asks, if there was one."""
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        if self._received == signal.SIGTERM:
            raise SystemExit(TERMINATED)

    def _receive(self, number: int, task: asyncio.Task[object]) -> None:
        if self._received is None:
            self._received = number
            task.cancel()
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
