"""`sparrow pipeline archive|replay|compact-table|stats|redrive`: the built-in pipelines, each one
command.

Everything that can be wrong is found before Spark starts, which takes seconds. On a terminal
Spark's progress bar is shown; stderr says what is being done, the result is a short table on
stdout.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from sparrow.base.errors import InvalidArgument
from sparrow.base.units import counted, format_size, parse_duration_ms, parse_size_bytes
from sparrow.cli.exits import FAILED, OK, say
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, at_broker
from sparrow.cli.times import parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Callable

Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="MASTER", help="Where Spark runs: local[4], spark://…, yarn. Default: local[*]."
    ),
]
Remote = Annotated[
    str | None,
    typer.Option("--remote", metavar="URL", help="A Spark Connect server instead: sc://host:15002."),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may repeat.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC...", help="Names; * and ? stand for characters.", show_default=False),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="From the first message of this time or later on."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Up to the first message of this time or later.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `sparrow pipeline`."""
    app.command("archive")(archive)
    app.command("replay")(replay)
    app.command("compact-table")(compact_table)
    app.command("stats")(stats)
    app.command("redrive")(redrive)


# ── archive ───────────────────────────────────────────────────────────────────────────────────────


@at_broker
def archive(
    broker: CommandTarget,
    topics: Topics,
    *,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="The archive's directory.")],
    by: Annotated[
        str | None,
        typer.Option("--by", help="Period of one directory: month, day (default), hour, none."),
    ] = None,
    since: Since = None,
    until: Until = None,
    format_: Annotated[str, typer.Option("--format", help="Only parquet.")] = "parquet",
    compression: Annotated[
        str | None, typer.Option("--compression", help="zstd (default), snappy, gzip, lz4, none.")
    ] = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> int:
    """Bring an archive (Parquet with a manifest) up to date with its topics.

    The first run archives everything, each further one what is new. Ends with 1 if messages were
    deleted before they could be archived.
    """
    if format_ != "parquet":
        raise InvalidArgument(f"--format {format_}: archives are written as parquet only")
    from sparrow.pipelines import builtin

    done = builtin.archive(
        topics,
        to,
        by=by,
        since_ms=_time("--since", since),
        until_ms=_time("--until", until),
        compression=compression,
        **_common(broker, master=master, remote=remote, conf=conf),
    )
    if as_json:
        print(msgspec.json.encode(done).decode())
    else:
        rows = [(each.topic, each.rows, each.files, format_size(each.size_bytes)) for each in done.topics]
        print_table(("TOPIC", "ARCHIVED", "FILES", "SIZE"), rows)
    for each in done.topics:
        for gap in each.gaps:
            say(
                f"{each.topic}-{gap.partition}: {counted(gap.offsets, 'offset')} "
                f"({gap.from_offset} to {gap.to_offset - 1}) were deleted"
                " before they were archived; archive more often than the topic's retention"
            )
    return FAILED if done.lost else OK


# ── replay ────────────────────────────────────────────────────────────────────────────────────────


@at_broker
def replay(
    broker: CommandTarget,
    source: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="An archive, or a Parquet, CSV, JSON, Delta or Iceberg table.",
            show_default=False,
        ),
    ],
    *,
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Where it goes.")],
    from_topic: Annotated[
        str | None,
        typer.Option("--from", metavar="TOPIC", help="Topic of the archive, if it has several."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", "-w", metavar="SQL", help="Only rows for which this is true.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="COLUMN", help="Column of a table that becomes the key.")
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            "--value",
            metavar="COLUMN",
            help="Column of a table that becomes the value; json: the row as JSON.",
        ),
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Format of a table: parquet, csv, json, delta, iceberg.")
    ] = None,
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="Into the partitions they came from.")
    ] = False,
    keep_timestamps: Annotated[
        bool, typer.Option("--keep-timestamps", help="With the timestamps they had.")
    ] = False,
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="At most this many per second; 0: no limit.")
    ] = 0,
    sink_id: Annotated[
        str | None,
        typer.Option(
            "--sink-id",
            metavar="ID",
            help="The broker remembers by it that this was done; it is not done twice.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify/--no-verify", help="Check an archive's files against its manifest first."),
    ] = True,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> int:
    """Write an archive or another table to a topic, in order per partition, in one transaction."""
    from sparrow.pipelines import builtin

    done = builtin.replay(
        source,
        to,
        from_topic=from_topic,
        where=where,
        key=key,
        value=value,
        format=format_,
        keep_partitions=keep_partitions,
        keep_timestamps=keep_timestamps,
        per_second=rate,
        sink_id=sink_id,
        verify=verify,
        **_common(broker, master=master, remote=remote, conf=conf),
    )
    if as_json:
        print(msgspec.json.encode(done).decode())
        return OK
    if done.was_done:
        say(f"the replay {sink_id!r} was done before; nothing was written")
    print_table(("SOURCE", "TOPIC", "MESSAGES"), [(done.source, done.topic, done.rows)])
    return OK


# ── compact-table ─────────────────────────────────────────────────────────────────────────────────


def compact_table(
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="An archive, Parquet files, or a Delta table.", show_default=False
        ),
    ],
    *,
    target_size: Annotated[
        str, typer.Option("--target-size", metavar="SIZE", help="About how large a file becomes.")
    ] = "128MiB",
    compression: Annotated[
        str, typer.Option("--compression", help="zstd, snappy, gzip, lz4, none.")
    ] = "zstd",
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> int:
    """Merge many small files into few. Readers see either the old files of a directory or the new
    ones.
    """
    from sparrow.pipelines import builtin

    done = builtin.compact_table(
        directory,
        target_bytes=_parsed("--target-size", target_size, parse_size_bytes),
        compression=compression,
        **_engine(master, remote, conf),
    )
    if as_json:
        print(msgspec.json.encode(done).decode())
        return OK
    row = (
        done.directory,
        done.format,
        done.files_before,
        done.files_after,
        format_size(done.bytes_before),
        format_size(done.bytes_after),
    )
    print_table(("TABLE", "FORMAT", "FILES BEFORE", "FILES AFTER", "BEFORE", "AFTER"), [row])
    return OK


# ── stats ─────────────────────────────────────────────────────────────────────────────────────────

_COLUMNS = {
    "messages": "MESSAGES",
    "bytes": "BYTES",
    "distinct_keys": "KEYS",
    "null_keys": "NO KEY",
    "null_values": "NO VALUE",
    "min_bytes": "MIN",
    "average_bytes": "AVERAGE",
    "max_bytes": "MAX",
    "late": "LATE",
    "p99_lateness_ms": "P99 LATE MS",
    "max_lateness_ms": "MAX LATE MS",
}


@at_broker
def stats(
    broker: CommandTarget,
    topics: Topics,
    *,
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="DURATION", help="Per so long a stretch of timestamps, such as 1h."),
    ] = None,
    since: Since = None,
    until: Until = None,
    exact: Annotated[bool, typer.Option("--exact", help="Count distinct keys exactly.")] = False,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Also publish them, as JSON, keyed by topic.")
    ] = None,
    to_parquet: Annotated[
        str | None, typer.Option("--to-parquet", metavar="DIR", help="Also add them to a Parquet table.")
    ] = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> int:
    """Measure topics: messages, bytes, keys, sizes, lateness, per topic and window."""
    from sparrow.pipelines import builtin

    found = builtin.stats(
        topics,
        window_ms=None if window is None else _parsed("--window", window, parse_duration_ms),
        since_ms=_time("--since", since),
        until_ms=_time("--until", until),
        exact=exact,
        to_topic=to,
        to_parquet=to_parquet,
        **_common(broker, master=master, remote=remote, conf=conf),
    )
    if as_json:
        for each in found:
            print(msgspec.json.encode(each).decode())
        return OK
    columns = ["TOPIC"] if window is None else ["TOPIC", "WINDOW"]
    rows = [
        (
            *((each.topic,) if window is None else (each.topic, each.window_start)),
            *(asdict(each)[name] for name in _COLUMNS),
        )
        for each in found
    ]
    print_table((*columns, *_COLUMNS.values()), rows)
    return OK


# ── redrive ───────────────────────────────────────────────────────────────────────────────────────

_WHERE = (
    "SQL; only those for which it is true. Columns: key, value, headers['…'], reason, error, "
    "delivery_count, queue, subscriber, flow, expectation,"
    " origin_topic, origin_partition, origin_offset, topic, partition, offset, timestamp."
)


@at_broker
def redrive(
    broker: CommandTarget,
    name: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE|TOPIC", help="A queue, or a topic of dead letters.", show_default=False
        ),
    ],
    *,
    where: Annotated[str | None, typer.Option("--where", "-w", metavar="SQL", help=_WHERE)] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="There instead of where they came from.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count and show them.")] = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> int:
    """Send dead letters back to their topics, those that SQL selects, each once."""
    from sparrow.pipelines import builtin

    done = builtin.redrive(
        name,
        where=where,
        to=to,
        dry_run=dry_run,
        **_common(broker, master=master, remote=remote, conf=conf),
    )
    if as_json:
        print(msgspec.json.encode(done).decode())
        return FAILED if done.failed else OK
    if done.is_dry_run:
        shown = [
            (
                each.partition,
                each.offset,
                each.reason or "-",
                each.error or "-",
                each.origin_topic or "-",
                each.key or "-",
            )
            for each in done.sample
        ]
        print_table(("PARTITION", "OFFSET", "REASON", "ERROR", "FROM", "KEY"), shown)
    columns = ("DEAD LETTERS", "MATCHED", "SENT", "LEFT", "FAILED")
    print_table(columns, [(done.topic, done.matched, done.sent, done.left, done.failed)])
    return FAILED if done.failed else OK


# ── what they have in common ──────────────────────────────────────────────────────────────────────


def _common(
    broker: CommandTarget,
    *,
    master: str | None,
    remote: str | None,
    conf: list[str] | None,
) -> dict[str, Any]:
    options = {
        "url": broker.url,
        "token": broker.token,
        "user": broker.user,
        "password": broker.password,
        "caFile": broker.ca_file,
        "certificateFile": broker.certificate_file,
        "keyFile": broker.key_file,
    }
    connection = {name: value for name, value in options.items() if value is not None}
    return {"connection": connection, **_engine(master, remote, conf)}


def _engine(master: str | None, remote: str | None, conf: list[str] | None) -> dict[str, Any]:
    # Options such as --since and --until, and the directories of an archive.
    settings: dict[str, object] = {"spark.sql.session.timeZone": "UTC"}
    if remote is None or remote.startswith("local"):
        # A server's settings are its own.
        from sparrow.spark.quiet_loggers import quiet_settings

        settings |= {**quiet_settings(), "spark.ui.enabled": "false"}
        settings["spark.ui.showConsoleProgress"] = sys.stderr.isatty()
    for pair in conf or []:
        name, sign, value = pair.partition("=")
        if not sign:
            raise InvalidArgument(f"--conf {pair}: write NAME=VALUE")
        settings[name] = value
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {"master": master, "remote": remote, "conf": settings, "progress": say}


def _time(option: str, text: str | None) -> int | None:
    return None if text is None else _parsed(option, text, parse_time_ms)


def _parsed(option: str, text: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidArgument(f"{option} {text}: {error}") from None
