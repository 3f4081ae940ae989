"""`sparrow demo`: Sparrow's main features on real input, every step checked."""

from __future__ import annotations

import json
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from sparrow.cli.exits import FAILED, OK

if TYPE_CHECKING:
    from collections.abc import Iterator


def demo(
    *,
    repo: Annotated[
        str | None,
        typer.Option(
            "--repo",
            metavar="PATH",
            help="A git repository. Default: that of this directory; without one a made-up history.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="Competing processes; one of them is killed.")
    ] = 4,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the broker's data and the logs, and say where they are.")
    ] = False,
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="URL", help="Use a running broker; what is made there stays."),
    ] = None,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster",
            help="Over two brokers and a PostgreSQL of its own; the one that owns the data is killed.",
        ),
    ] = False,
    objects: Annotated[
        str | None,
        typer.Option(
            "--objects",
            metavar="URL",
            help="With --cluster: an object store, s3://… or file:///…; default: a directory.",
        ),
    ] = None,
    out: Annotated[
        str,
        typer.Option("--out", metavar="DIR", help="Where the table, the chart and report.json go."),
    ] = "sparrow-demo",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> int:
    """Take a git history through the whole of Sparrow, and check every step.

    Commits are published children first, processed by competing processes in the order of their
    parents while one of them is killed, and read by a Spark pipeline, also killed, into a table and
    a chart. Ends with 0 only if every check passed. Everything else is removed, unless --keep.
    """
    from sparrow.demo import run
    from sparrow.demo.surroundings import DemoPlan

    plan = DemoPlan(
        repo=repo, workers=workers, keep=keep, broker=broker, cluster=cluster, objects=objects, out_dir=out
    )
    with _signals_raise():
        report = run(plan)
    if as_json:
        print(json.dumps(report.as_dict(), ensure_ascii=False))
    else:
        for line in report.lines():
            print(_printable(line))
    return OK if report.held else FAILED


def _printable(line: str) -> str:
    """Escape what would move the cursor, and characters that the terminal does not have."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    encoding = sys.stdout.encoding or "utf-8"
    return shown.encode(encoding, "replace").decode(encoding)


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Let SIGTERM, and the end of the terminal, end the demonstration as Ctrl-C does: its processes
    end, and its files are removed.
    """

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
