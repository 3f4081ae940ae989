"""The broker that a command talks to, the event loop that it runs on, and how a signal ends it.

The first Ctrl-C or SIGTERM cancels the command, which then finishes (a group's offsets are
committed, the connection says goodbye). The second ends the process at once.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sparrow.base.errors import InvalidArgument
from sparrow.cli.exits import TERMINATED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.client import Client
    from sparrow.client.client import Connecting

T = TypeVar("T")

DEFAULT_URL = "sparrow://127.0.0.1:9094"
CONNECT_TIMEOUT_S = 2.0
"""Short, because a person waits at the terminal."""

URL_VARIABLE = "SPARROW_URL"
TOKEN_VARIABLE = "SPARROW_TOKEN"  # noqa: S105 - a variable's name
USER_VARIABLE = "SPARROW_USER"
PASSWORD_VARIABLE = "SPARROW_PASSWORD"  # noqa: S105
TLS_FILES = ("ca_file", "certificate_file", "key_file")

Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help=f"The broker. [env var: {URL_VARIABLE}; default: {DEFAULT_URL}]"
    ),
]
Token = Annotated[
    str | None, typer.Option("--token", help=f"Token that says who you are. [env var: {TOKEN_VARIABLE}]")
]
User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help=f"User that logs in. [env var: {USER_VARIABLE}]")
]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="File whose first line is the password of --user; - is stdin. [env var: "
        f"{PASSWORD_VARIABLE}, the password itself]",
    ),
]
CaFile = Annotated[
    str | None,
    typer.Option(
        "--ca-file",
        "--tls-ca",
        metavar="FILE",
        help="Authorities that may vouch for a broker with TLS (PEM). [env var: SPARROW_CA_FILE]",
    ),
]
CertificateFile = Annotated[
    str | None,
    typer.Option(
        "--certificate-file",
        "--tls-certificate",
        metavar="FILE",
        help="Certificate to show to the broker (PEM). [env var: SPARROW_CERTIFICATE_FILE]",
    ),
]
KeyFile = Annotated[
    str | None,
    typer.Option(
        "--key-file", "--tls-key", metavar="FILE", help="Its key (PEM). [env var: SPARROW_KEY_FILE]"
    ),
]


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """A broker's address, the login there, and the files for TLS."""

    url: str
    token: str | None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


def at_broker(command: Callable[..., int]) -> Callable[..., int]:
    """Return a command with the options --url and --token, which is called with its target as the
    first argument.
    """

    def run(
        context: typer.Context, *given: Any, url: str | None = None, token: str | None = None, **options: Any
    ) -> int:
        return command(target(context, url, token), *given, **options)

    signature = inspect.signature(command, eval_str=True)
    _, *others = signature.parameters.values()
    run.__name__, run.__doc__, run.__annotations__ = command.__name__, command.__doc__, {}
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
            *others,
            inspect.Parameter("url", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Url),
            inspect.Parameter("token", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Token),
        ]
    )
    return run


def broker_command(app: typer.Typer, name: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that adds a command of this kind to a group of commands."""
    return lambda command: app.command(name)(at_broker(command))


def target(context: typer.Context, url: str | None, token: str | None) -> CommandTarget:
    """Return the target: by the options of the command, else those before the command, else the
    environment, else the default.
    """
    outer = context.find_root().params
    token = token or outer.get("token")
    user = outer.get("user") or (None if token else os.environ.get(USER_VARIABLE))
    file = outer.get("password_file")
    return CommandTarget(
        url or outer.get("url") or os.environ.get(URL_VARIABLE) or DEFAULT_URL,
        token or (None if user else os.environ.get(TOKEN_VARIABLE)),
        user,
        read_password_file(file) if file else os.environ.get(PASSWORD_VARIABLE),
        *(outer.get(name) or os.environ.get(f"SPARROW_{name.upper()}") for name in TLS_FILES),
    )


def read_password_file(path: str) -> str:
    """Return the first line of a file, or of stdin for "-".

    Raises:
        InvalidArgument: it is empty.
        OSError: it cannot be read.
    """
    if path == "-":
        line = sys.stdin.readline()
    else:
        with open(path, encoding="utf-8") as file:
            line = file.readline()
    password = line.rstrip("\r\n")
    if not password:
        raise InvalidArgument(f"{'stdin' if path == '-' else path} has no password: its first line is empty")
    return password


def connecting(where: CommandTarget) -> Connecting:
    """Return a client of that broker, to be entered as a context."""
    from sparrow.client import connect

    return connect(
        where.url,
        token=where.token,
        user=where.user,
        password=where.password,
        ca_file=where.ca_file,
        certificate_file=where.certificate_file,
        key_file=where.key_file,
        client_name="sparrow-cli",
        connect_timeout_s=CONNECT_TIMEOUT_S,
    )


def with_client(where: CommandTarget, act: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, act, close, and return the result of `act`.

    Raises:
        ConnectionLost: the broker cannot be reached; the message names the address and what to
            check.
        KeyboardInterrupt, SystemExit: Ctrl-C, SIGTERM.
    """
    signals = Signals()

    async def connected() -> T:
        signals.cancel_this_task()
        async with connecting(where) as client:
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
    """Handlers of SIGINT and SIGTERM for one command."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def cancel_this_task(self) -> None:
        """Let the first signal cancel the current task. Only the main thread gets signals."""
        if threading.current_thread() is not threading.main_thread():
            return
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            # A shell that runs a command in the background makes it ignore Ctrl-C.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._receive, number, task)

    def restore(self) -> None:
        """Restore the former handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def raise_received(self) -> None:
        """Raise the exception of the received signal, if there was one."""
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
