"""`sparrow config …`: check, show and describe the configuration file without asking a broker; make
a running one reload it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrow.base.errors import InvalidConfig
from sparrow.cli.exits import BAD_CONFIG, OK
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, broker_command, with_client

if TYPE_CHECKING:
    from sparrow.server.bootstrap.check import CheckReport

app = typer.Typer(
    help="Check and show the configuration of `sparrow serve`, or have a running broker load it again.",
    no_args_is_help=True,
)
File = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE]", help="The file; else what `serve` would read: SPARROW_CONFIG, then sparrow.yml."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@app.command("check")
def check(file: File = None, *, as_json: AsJson = False) -> int:
    """Report everything that is wrong with the configuration, or print what it declares. Exit code
    78 if something is wrong.
    """
    report = _report(file)
    if as_json:
        print(json.dumps(_as_json(report)))
        return BAD_CONFIG if report.errors else OK
    _print_warnings(report)
    _refuse_errors(report)
    assert report.config is not None
    from sparrow.server.bootstrap.summary import summary

    print(f"{report.file or 'no file, the defaults'}: good")
    for what, text in summary(report.config):
        print(f"  {what:<10}{text}")
    return OK


@app.command("show")
def show(file: File = None, *, as_json: AsJson = False) -> int:
    """Show every option with its value and where it comes from. Secrets are not shown."""
    from sparrow.server.bootstrap.plain import plain_options
    from sparrow.server.config import load

    config, resolved = load({} if file is None else {"config": file}, os.environ)
    options = plain_options(config, resolved)
    if as_json:
        print(json.dumps(options))
        return OK
    rows = [(key, _words(each["value"]), each["source"]) for key, each in options.items()]
    print_table(["option", "value", "source"], rows)
    return OK


@broker_command(app, "reload")
def reload(broker: CommandTarget, *, as_json: AsJson = False) -> int:
    """Make the running broker reload certificates, tokens and log level. Exit code 78: nothing has
    changed.
    """
    done = with_client(broker, lambda client: client.admin.reload_config())
    if as_json:
        print(json.dumps({"loaded": done.loaded, "needs_restart": done.needs_restart}))
        return OK
    print(f"loaded again: {', '.join(done.loaded)}")
    if done.needs_restart:
        print(f"changed, but after a restart only: {', '.join(done.needs_restart)}")
    return OK


@app.command("schema")
def schema() -> int:
    """Print the JSON Schema of the configuration file, for editors."""
    from sparrow.server.bootstrap.schema import file_schema

    print(json.dumps(file_schema(), indent=2))
    return OK


def _report(file: str | None) -> CheckReport:
    from sparrow.server.bootstrap.check import check

    return check({} if file is None else {"config": file}, os.environ)


def _as_json(report: CheckReport) -> dict[str, Any]:
    from sparrow.server.bootstrap.plain import plain_declared

    return {
        "file": report.file,
        "is_good": not report.errors,
        "errors": report.errors,
        "warnings": report.warnings,
        "declared": None if report.config is None else plain_declared(report.config),
    }


def _print_warnings(report: CheckReport) -> None:
    for warning in report.warnings:
        print(f"sparrow: warning: {warning}", file=sys.stderr)


def _refuse_errors(report: CheckReport) -> None:
    if report.errors:
        raise InvalidConfig("\n".join(report.errors))


def _words(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value in ("", [], {}, None):
        return "none"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
