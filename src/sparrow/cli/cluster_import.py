"""`sparrow cluster import DIR`: the content of a data directory goes into an empty cluster."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from sparrow.base.units import counted, format_size
from sparrow.cli.cluster_engines import Config, find_objects, open_ledger, read_settings
from sparrow.cli.doctor import check_usable
from sparrow.cli.exits import OK, say
from sparrow.cli.queue_options import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.cluster.import_check import ImportResult
    from sparrow.cluster.importer import Progress
    from sparrow.server.cluster_settings import ClusterSettings

_LINE_S: Final = 10.0
"""Interval between two lines where stderr is no terminal."""


def import_directory(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="The data directory of a broker that is stopped.")
    ],
    *,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Copy the content of a data directory into an empty cluster: topics with all records and their
    offsets, queues with leases and delivery counts, groups, transactions, users, rules.

    Everything is read back and compared at the end. Brokers of the cluster do not start before
    that. An import that was interrupted goes on when it is run again. The directory stays as it is,
    as after a start and a stop of its broker.
    """
    check_usable(directory)
    found = asyncio.run(_import(os.path.abspath(directory), read_settings(config)))
    if as_json:
        print(json.dumps(msgspec.structs.asdict(found)))
    else:
        print(
            f"imported and checked: {counted(found.logs, 'log')} with {found.batches} batches "
            f"({format_size(found.size_bytes)}), and {found.entries} entries of the meta store"
        )
    return OK


async def _import(directory: str, settings: ClusterSettings) -> ImportResult:
    from sparrow.cluster.import_source import open_source
    from sparrow.cluster.importer import DirectoryImport
    from sparrow.server.cluster import check_engines

    async with open_ledger(settings) as ledger:
        objects = find_objects(settings)
        from sparrow.cluster.postgres import PostgresLedger

        await check_engines(ledger, objects)
        async with open_source(directory) as source:
            with _progress() as progress:
                work = DirectoryImport(
                    source,
                    ledger,
                    objects,
                    connect=lambda: PostgresLedger(settings.ledger),
                    progress=progress,
                )
                return await work.run()


@contextmanager
def _progress() -> Iterator[Progress]:
    """Yield what shows the progress on stderr: a bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("copied", total=None)
        yield lambda word, done, total: shown.update(task, description=word, completed=done, total=total)


def _lines() -> Progress:
    last_at = time.monotonic()

    def show(word: str, done: int, total: int) -> None:
        nonlocal last_at
        if time.monotonic() - last_at >= _LINE_S:
            last_at = time.monotonic()
            say(f"{word} {format_size(done)} of {format_size(total)}")

    return show
