"""`sparrow log dump FILE`: the content of a segment file, offline. `sparrow log skip`: removal of
an unreadable batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sparrow.base.errors import SparrowError
from sparrow.cli.exits import BAD_DATA, OK, say
from sparrow.cli.ndjson import format_line
from sparrow.cli.segmentfile import FoundBatch, read_batches
from sparrow.cli.target import CommandTarget, broker_command, with_client
from sparrow.cli.times import format_time
from sparrow.records.compression import Compression

if TYPE_CHECKING:
    from sparrow.model.topics import RemovedBatch
    from sparrow.records.batch import BatchHeader
    from sparrow.records.record import Record

app = typer.Typer(help="Look into log files; remove a batch that nobody can read.", no_args_is_help=True)

_FLAGS = ("is_log_append_time", "is_transactional", "is_control", "has_delete_horizon")


@app.callback()
def _group() -> None:
    """Look into log files; remove an unreadable batch."""


@app.command("dump")
def dump(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A segment file (….log).", show_default=False)],
    *,
    records: Annotated[bool, typer.Option("--records", "-r", help="Also every record.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> int:
    """Print every batch of a segment file; report what is corrupt, with its position."""
    problems = 0
    for found in read_batches(file):
        problem = found.problem or _print_batch(found, records=records, as_json=as_json)
        if problem:
            problems += 1
            say(f"{file}: position {found.position}: {problem}")
    return BAD_DATA if problems else OK


@broker_command(app, "skip")
def skip(
    broker: CommandTarget,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)],
    offset: Annotated[
        int, typer.Argument(metavar="OFFSET", min=0, help="An offset in the batch.", show_default=False)
    ],
    *,
    force: Annotated[bool, typer.Option("--force", help="Also a batch that can be read.")] = False,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", help="In this data directory, which no broker uses.")
    ] = None,
) -> int:
    """Remove the records of an unreadable batch, so that every client continues behind it."""
    removed: RemovedBatch
    if data_dir is None:
        removed = with_client(
            broker,
            lambda client: client.admin.skip_batch(topic, partition, offset, force=force),
        )
    else:
        removed = _skip_offline(data_dir, topic, partition, offset, force=force)
    print(
        f"removed the batch of offsets {removed.base_offset} to {removed.last_offset} of topic "
        f"{topic}, partition {partition}:"
        f" {removed.record_count} records, {removed.size_bytes} bytes; {removed.reason or 'it could be read'}"
    )
    return OK


def _skip_offline(data_dir: str, topic: str, partition: int, offset: int, *, force: bool) -> RemovedBatch:
    import asyncio

    from sparrow.cli.doctor import check_usable, journal_mark
    from sparrow.storage.offline import remove_batch

    check_usable(data_dir)  # otherwise a directory that does not exist would be created
    return asyncio.run(
        remove_batch(data_dir, topic, partition, offset, force=force, journal_mark=journal_mark(data_dir))
    )


def _print_batch(found: FoundBatch, *, records: bool, as_json: bool) -> str:
    """Print one sound batch, and return what is wrong with its records, if anything."""
    assert found.header is not None  # a batch without a problem has a header
    print(_batch_json(found.position, found.header) if as_json else _batch_text(found.position, found.header))
    if not records or found.header.is_control:
        return ""
    try:
        for record in _decoded(found.data):
            print(format_line(record).decode() if as_json else _record_text(record))
    except SparrowError as error:
        return f"its records cannot be read: {error.text}"
    return ""


def _decoded(data: bytes) -> list[Record]:
    from sparrow.records.record import decode

    return decode(data, check_crc=False)


def _batch_text(position: int, header: BatchHeader) -> str:
    flags = "".join(
        f" {name.removeprefix('is_').removeprefix('has_')}" for name in _FLAGS if getattr(header, name)
    )
    producer = (
        ""
        if header.producer_id < 0
        else (f" producer {header.producer_id}/{header.producer_epoch} sequence {header.base_sequence}")
    )
    return (
        f"position {position} offsets {header.base_offset}..{header.last_offset} records "
        f"{header.record_count}"
        f" bytes {header.size_bytes} {_codec(header)} epoch {header.leader_epoch}"
        f" time {format_time(header.base_timestamp)}..{format_time(header.max_timestamp)}{producer}{flags}"
    )


def _batch_json(position: int, header: BatchHeader) -> str:
    shown = {
        "position": position,
        **msgspec.structs.asdict(header),
        "size_bytes": header.size_bytes,
        "codec": _codec(header),
    }
    shown |= {name: True for name in _FLAGS if getattr(header, name)}
    return msgspec.json.encode(shown).decode()


def _codec(header: BatchHeader) -> str:
    try:
        return Compression(header.compression).name.lower()
    except ValueError:
        return f"codec-{header.compression}"


def _record_text(record: Record) -> str:
    key = "-" if record.key is None else repr(record.key)[1:]
    value = "null" if record.value is None else repr(record.value)[1:]
    headers = "".join(f" {name}={value!r}" for name, value in record.headers)
    return f"  {record.offset} {format_time(record.timestamp)} key {key} value {value}{headers}"
