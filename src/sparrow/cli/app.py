"""All commands under one name. Each group has a module; this one only combines them.

A command line that begins with a command loads the module of that one alone: a program of one
command starts in half the time.
"""

from __future__ import annotations

import importlib
import os
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from sparrow.cli.exits import DEBUG_VARIABLE, reader_gone
from sparrow.cli.login_options import take_login_options
from sparrow.cli.target import CaFile, CertificateFile, KeyFile, PasswordFile, Token, Url, User
from sparrow.cli.version import print_version

_MODULES: Final = {
    "status": "status",
    "top": "top",
    "topic": "topics",
    "publish": "publish",
    "consume": "consume",
    "group": "groups",
    "queue": "queues",
    "schedule": "schedules",
    "sink": "sinks",
    "user": "users",
    "acl": "acls",
    "quota": "quotas",
    "pipeline": "pipelines",
    "log": "logdump",
    "config": "config",
    "bench": "bench",
    "cluster": "cluster",
    "worker": "worker",
    "demo": "demo",
    "doctor": "doctor",
}
"""The module of each command: it has a group `app`, or a function with the command's name."""


class _Commands(TyperGroup):
    """Commands whose exit code stays what it is when the reader of their output goes away; Typer
    would make it 1.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise typer.Exit(reader_gone()) from None


def _exit(code: int | None, **_: object) -> None:
    raise typer.Exit(code or 0)


def _options(
    *,
    url: Url = None,  # noqa: ARG001 - read by `target`
    token: Token = None,  # noqa: ARG001
    user: User = None,  # noqa: ARG001
    password_file: PasswordFile = None,  # noqa: ARG001
    ca_file: CaFile = None,  # noqa: ARG001
    certificate_file: CertificateFile = None,  # noqa: ARG001
    key_file: KeyFile = None,  # noqa: ARG001
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks, as SPARROW_DEBUG=1 does.")] = False,
) -> None:
    """Sparrow, a message broker. `sparrow serve` starts one; the other commands talk to it."""
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"


def _serve(context: typer.Context) -> int:
    """Run a broker; see `sparrow serve --help` for its options."""
    from sparrow.cli.serve import serve

    return serve(context.args)


def _version() -> int:
    """Print the version."""
    return print_version()


def commands(only: str = "") -> Any:
    """Return all commands, or one of them, as a command of their own."""
    app = typer.Typer(
        name="sparrow",
        cls=_Commands,
        result_callback=_exit,
        help="Sparrow, a message broker. `sparrow serve` starts one; the other commands talk to it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name, module_name in _MODULES.items():
        if only in ("", name):
            module = importlib.import_module(f"sparrow.cli.{module_name}")
            if hasattr(module, "app"):
                app.add_typer(module.app, name=name)
            else:
                app.command(name)(getattr(module, name))
    if not only:
        app.command(
            "serve",
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
            add_help_option=False,
        )(_serve)
        app.command("version")(_version)
    command = typer.main.get_command(app)
    take_login_options(command)
    return command


def run(arguments: list[str]) -> int:
    """Run one command line and return the exit code of the command."""
    first = arguments[0] if arguments else ""
    try:
        commands(first if first in _MODULES else "")(arguments, prog_name="sparrow")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0
