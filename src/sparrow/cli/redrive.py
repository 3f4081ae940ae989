"""`sparrow queue redrive QUEUE`: send dead letters back to their topics, and watch until it is
done.

The broker does the work. This command asks for its progress; Ctrl-C also stops the work.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from sparrow.base.units import counted
from sparrow.cli.exits import FAILED, OK, say
from sparrow.cli.progress import counting_progress
from sparrow.cli.queue_options import AsJson, Name
from sparrow.cli.target import CommandTarget, at_broker, with_client
from sparrow.cli.times import parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.client import Client
    from sparrow.client.results import RedriveProgress

_POLL_S = 0.2
_WHERE = (
    "Only those with reason=R, topic=T, partition=N, key=K, subscriber=S, since=TIME, until=TIME "
    "(when they died), or"
    " error~TEXT (the last error contains it); may repeat, all must hold."
)

Where = Annotated[list[str] | None, typer.Option("--where", "-w", metavar="CONDITION", help=_WHERE)]


@at_broker
def redrive(
    broker: CommandTarget,
    name: Name,
    *,
    where: Where = None,
    max_records: Annotated[int, typer.Option("--max", "-n", min=0, help="At most this many; 0: all.")] = 0,
    per_second: Annotated[
        float, typer.Option("--rate", min=0, help="At most this many per second; 0: no limit.")
    ] = 0,
    as_json: AsJson = False,
) -> int:
    """Send dead letters of a queue back to their topics, each exactly once. Ctrl-C stops it."""
    conditions = parse_where(where or [])

    async def act(client: Client) -> RedriveProgress:
        return await _redrive(client, name, max_records, per_second, conditions)

    done = with_client(broker, act)
    if as_json:
        print(msgspec.json.encode(done).decode())
    else:
        print(_sentence(done))
    if done.error:
        say(f"the redrive ended early: {done.error}")
    return FAILED if done.error or done.failed else OK


async def _redrive(
    client: Client, name: str, max_records: int, per_second: float, conditions: dict[str, Any]
) -> RedriveProgress:
    dead = (await client.admin.describe_queue(name)).statistics.dead
    total = min(dead, max_records) if max_records else dead
    progress = await client.admin.redrive_queue(
        name, max_records=max_records, per_second=per_second, **conditions
    )
    try:
        with counting_progress("records", total) as show:
            while progress.is_running:
                show(_looked_at(progress))
                await asyncio.sleep(_POLL_S)
                progress = await client.admin.redrive_progress(name)
    except asyncio.CancelledError:
        say(f"{_sentence(await client.admin.stop_redrive(name))}; stopped")
        raise
    return progress


def _looked_at(progress: RedriveProgress) -> int:
    return progress.moved + progress.skipped + progress.failed


def _sentence(progress: RedriveProgress) -> str:
    parts = [f"{counted(progress.moved, 'record')} sent back"]
    if progress.skipped:
        parts.append(f"{progress.skipped} that did not match left alone")
    if progress.failed:
        parts.append(f"{progress.failed} could not be sent")
    return ", ".join(parts)


def parse_where(texts: list[str]) -> dict[str, Any]:
    """Parse conditions as `client.admin.redrive_queue` takes them.

    Raises:
        typer.BadParameter: an unknown condition, a value that it does not take, or one given twice.
    """
    conditions: dict[str, Any] = {}
    for text in texts:
        condition, parse, value = _condition(text)
        if condition in conditions:
            raise typer.BadParameter(f"--where {text!r}: a condition like it is given already; all must hold")
        try:
            conditions[condition] = parse(value)
        except (ValueError, OverflowError) as error:
            raise typer.BadParameter(f"--where {text!r}: {error}") from None
    return conditions


def _condition(text: str) -> tuple[str, Callable[[str], Any], str]:
    for start, (condition, parse) in _CONDITIONS.items():
        if text.startswith(start) and len(text) > len(start):
            return condition, parse, text.removeprefix(start)
    raise typer.BadParameter(f"--where {text!r} is none of {', '.join(f'{start}…' for start in _CONDITIONS)}")


def _time(text: str) -> datetime:
    return datetime.fromtimestamp(parse_time_ms(text) / 1000, UTC)


_CONDITIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "reason=": ("reason", str.upper),
    "topic=": ("topic", str),
    "partition=": ("partition", int),
    "key=": ("key", os.fsencode),
    "error~": ("error_contains", str),
    "subscriber=": ("subscriber", str),
    "since=": ("since", _time),
    "until=": ("until", _time),
}
