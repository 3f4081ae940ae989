"""All commands under one name. Each group has a module; this one only combines them."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sparrow.cli import (
    acls,
    bench,
    cluster,
    config,
    consume,
    demo,
    doctor,
    groups,
    logdump,
    pipelines,
    publish,
    queues,
    quotas,
    schedules,
    sinks,
    status,
    top,
    topics,
    users,
    worker,
)
from sparrow.cli.exits import DEBUG_VARIABLE, reader_gone
from sparrow.cli.login_options import take_login_options
from sparrow.cli.target import CaFile, CertificateFile, KeyFile, PasswordFile, Token, Url, User
from sparrow.cli.version import print_version


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
app.command("status")(status.status)
app.command("top")(top.top)
app.add_typer(topics.app, name="topic")
app.command("publish")(publish.publish)
app.command("consume")(consume.consume)
app.add_typer(groups.app, name="group")
app.add_typer(queues.app, name="queue")
app.add_typer(schedules.app, name="schedule")
app.add_typer(sinks.app, name="sink")
app.add_typer(users.app, name="user")
app.add_typer(acls.app, name="acl")
app.add_typer(quotas.app, name="quota")
app.add_typer(pipelines.app, name="pipeline")
app.add_typer(logdump.app, name="log")
app.add_typer(config.app, name="config")
app.add_typer(bench.app, name="bench")
app.add_typer(cluster.app, name="cluster")
app.command("worker")(worker.worker)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)


@app.callback()
def options(
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


@app.command(
    "serve",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def serve(context: typer.Context) -> int:
    """Run a broker; see `sparrow serve --help` for its options."""
    from sparrow.cli.serve import serve

    return serve(context.args)


@app.command("version")
def version() -> int:
    """Print the version."""
    return print_version()


def run(arguments: list[str]) -> int:
    """Run one command line and return the exit code of the command."""
    command = typer.main.get_command(app)
    take_login_options(command)
    try:
        command(arguments, prog_name="sparrow")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0
