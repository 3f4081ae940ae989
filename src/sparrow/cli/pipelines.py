"""`sparrow pipeline …`: check, run and watch pipelines that a YAML file describes.

Only `run` starts Spark. It does so in a separate thread: PySpark takes Ctrl-C for itself where it
starts in the main thread, and here the first Ctrl-C (or SIGTERM) lets every flow end after its
running batch, the second ends the process at once.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrow.base.errors import InvalidArgument, InvalidConfig, SparrowError
from sparrow.cli import pipeline_builtins
from sparrow.cli.exits import BAD_CONFIG, FAILED, OK, exit_code_of, say
from sparrow.cli.pipeline_builtins import Conf, Master, Remote  # noqa: TC001 - Typer reads annotations when it runs
from sparrow.cli.tables import print_table
from sparrow.cli.target import TLS_FILES, Token, Url, read_password_file
from sparrow.cli.times import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.pipelines.model import Broker
    from sparrow.pipelines.pipeline import Pipeline

app = typer.Typer(
    help="Run data pipelines on Spark: from topics to topics and tables. Needs the extra 'spark'.",
    no_args_is_help=True,
)
MISSING = "pipelines need more packages; install them with: pip install 'sparrow-broker[server,spark]'"

File = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline's YAML file.", show_default=False)]
Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE|DIR...",
        help="Files of pipelines, or directories of such files (*.yml, *.yaml).",
        show_default=False,
    ),
]
Checkpoints = Annotated[
    str | None,
    typer.Option(
        "--checkpoints", metavar="DIR", help="Where checkpoints are, instead of what the file says."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


@app.command("run")
def run(
    context: typer.Context,
    file: File,
    *,
    flow: Annotated[
        list[str] | None, typer.Option("--flow", metavar="NAME", help="Only this flow; may repeat.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Take what is there, then end, whatever the triggers say.")
    ] = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    checkpoints: Checkpoints = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Let Spark write its log, and show all that it says of a failure."),
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> int:
    """Check a pipeline, then run its flows until they have ended or are stopped.

    The first Ctrl-C stops after the running batches, the second at once. Ends with 1 if a flow
    failed.
    """
    if master is not None and remote is not None:
        raise InvalidArgument("--master and --remote are two places; give one of them")
    from sparrow.cli.pipeline_run import run_until_stopped, settings_of

    settings = settings_of(conf or [])
    pipeline = _with_options(_load(file), context, url, token, checkpoints)
    _known_flows(pipeline, flow or [])
    pipeline.check()
    return run_until_stopped(
        pipeline,
        {
            "flows": flow or (),
            "once": True if once else None,
            "master": master,
            "remote": remote,
            "conf": settings,
            "is_verbose": verbose,
        },
        as_json=as_json,
    )


@app.command("check")
def check(file: File, *, as_json: AsJson = False) -> int:
    """Report everything that is wrong with a pipeline, with file and line, or print what it does.
    Starts nothing. Exit code 78 if something is wrong.
    """
    errors: list[str] = []
    pipeline: Pipeline | None = None
    try:
        pipeline = _load(file)
        pipeline.check()
    except InvalidConfig as error:
        if not as_json:
            raise
        errors = error.text.splitlines()
    if as_json:
        print(json.dumps({"file": file, "is_good": not errors, "errors": errors}))
        return BAD_CONFIG if errors else OK
    assert pipeline is not None
    from sparrow.pipelines import summary

    print(f"{file}: good, {summary.size_words(pipeline)}")
    print_table(summary.HEADINGS, [summary.flow_row(pipeline, each) for each in pipeline.flows])
    return OK


@app.command("list")
def list_flows(files: Files, *, as_json: AsJson = False) -> int:
    """List the flows of pipelines: from where, to where, and when."""
    rows, is_good = [], True
    from sparrow.pipelines import summary

    for path in _expanded(files):
        try:
            pipeline = _load(path)
        except InvalidConfig as error:
            is_good = False
            say(error.text)
            continue
        for each in pipeline.flows:
            if as_json:
                print(json.dumps({"file": path, **summary.flow_data(pipeline, each)}))
            rows.append((pipeline.name, *summary.flow_row(pipeline, each)))
    if not as_json:
        print_table(("PIPELINE", *summary.HEADINGS), rows)
    return OK if is_good else BAD_CONFIG


@app.command("status")
def status(
    context: typer.Context,
    file: File,
    *,
    checkpoints: Checkpoints = None,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> int:
    """Show how a pipeline is doing: what its runs report, how far behind it is, and its last batch.
    Does not start Spark.

    Ends with 1 if a flow has failed.
    """
    pipeline = _with_options(_load(file), context, url, token, checkpoints)
    from sparrow.pipelines.status import connection, status_of

    failure: SparrowError | None = None
    try:
        with connection(pipeline) as link:
            found = status_of(pipeline, link)
    except SparrowError as error:
        # The checkpoints say something even without a broker.
        failure, found = error, status_of(pipeline, None)
    if as_json:
        for each in found:
            print(json.dumps(asdict(each)))
    else:
        columns = ("FLOW", "STATE", "LAST BATCH", "LAG", "ROWS", "ROWS/S", "BATCH MS", "REPORTED")
        print_table(columns, [_status_row(each) for each in found])
        for error_text in dict.fromkeys(each.error for each in found if each.error):
            say(error_text)
    if failure is not None:
        say(failure.text)
        return exit_code_of(failure)
    return FAILED if any(each.error for each in found) else OK


@app.command("schema")
def schema() -> int:
    """Print the JSON Schema of a pipeline's file, for editors."""
    _require()
    from sparrow.pipelines.pipeline_file import file_schema

    print(json.dumps(file_schema(), indent=2))
    return OK


pipeline_builtins.add_to(app)


# ── what they have in common ──────────────────────────────────────────────────────────────────────


def _require() -> None:
    """Check that the packages of the extra are there, before something fails in the middle.

    Raises:
        InvalidArgument: a package is missing.
    """
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("sqlglot", "yaml", "fastavro")):
        raise InvalidArgument(MISSING)


def _load(file: str) -> Pipeline:
    _require()
    from sparrow.pipelines import load

    return load(_declared(file) or file)


def _declared(name: str) -> str | None:
    """Return the file of a pipeline that the broker's configuration declares by this name; None: it
    is a file, or there is no such declaration.
    """
    if os.path.exists(name) or name.endswith((".yml", ".yaml")):
        return None
    from sparrow.server.config import config_file_of, load

    if config_file_of({}, os.environ) is None:
        return None
    config, _ = load({}, os.environ)
    return next((each.file for each in config.pipelines if each.name == name), None)


def _expanded(files: Sequence[str]) -> list[str]:
    """Replace directories by the files in them."""
    found: list[str] = []
    for path in files:
        if not os.path.isdir(path):
            found.append(path)
            continue
        inside = [
            os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith((".yml", ".yaml"))
        ]
        if not inside:
            say(f"{path} has no file *.yml or *.yaml")
        found += inside
    return found


def _known_flows(pipeline: Pipeline, names: Sequence[str]) -> None:
    """Refuse unknown flows before Spark starts."""
    from sparrow.base.faults import suggestion

    known = [flow.name for flow in pipeline.flows]
    for name in names:
        if name not in known:
            close = suggestion(name, known) or f"; it has {', '.join(known)}"
            raise InvalidArgument(f"--flow: the pipeline {pipeline.name} has no flow {name!r}{close}")


def _with_options(
    pipeline: Pipeline, context: typer.Context, url: str | None, token: str | None, checkpoints: str | None
) -> Pipeline:
    """Return the pipeline with the broker and checkpoints of the command line."""
    outer = context.find_root().params
    broker = _broker(pipeline.broker, outer, url or outer.get("url"), token or outer.get("token"))
    if checkpoints is not None and "://" not in checkpoints:
        checkpoints = os.path.abspath(checkpoints)
    return replace(pipeline, broker=broker, checkpoints=checkpoints or pipeline.checkpoints)


def _broker(broker: Broker, outer: dict[str, Any], url: str | None, token: str | None) -> Broker:
    """Combine login options as a whole: a token of the command line does not go with a user of the
    file.
    """
    given: dict[str, Any] = {name: os.path.abspath(outer[name]) for name in TLS_FILES if outer.get(name)}
    if url:
        given["url"] = url
    user, password_file = outer.get("user"), outer.get("password_file")
    if token or user or password_file:
        given |= {"token": token, "token_file": None}
    if token:
        given |= {"user": None, "password": None, "password_file": None}
    elif user or password_file:
        password = read_password_file(password_file) if password_file else None
        given |= {"user": user or broker.user, "password": password}
        given["password_file"] = None if password else broker.password_file
    return replace(broker, **given)


def _status_row(each: Any) -> tuple[object, ...]:
    return (
        each.flow,
        each.state,
        _figure(each.batch),
        _figure(each.lag),
        _figure(each.rows),
        _figure(each.rows_per_second),
        _figure(each.batch_ms),
        "-" if each.updated_ms is None else format_time(each.updated_ms),
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else str(round(value))
