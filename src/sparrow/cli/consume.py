"""`sparrow consume TOPIC…`: messages on stdout, up to the end at the start of the command, or
without end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Annotated, cast

import typer
from msgspec import Struct, field

from sparrow.base.errors import StaleMember
from sparrow.cli.exits import OK, reader_gone, say
from sparrow.cli.formats import FORMATS, formatter
from sparrow.cli.merge import MAX_PARTITIONS, read_merged
from sparrow.cli.starts import parse_start
from sparrow.cli.target import CommandTarget, at_broker, with_client

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sparrow.client.client import Client
    from sparrow.client.subscription import Subscription
    from sparrow.records.readable import OnCorrupt
    from sparrow.records.record import Record

_AT_A_TIME = 2000
_POLL_S = 0.25
"""Interval at which a reading that ends looks whether it is at the end."""
_COMMIT_INTERVAL_S = 1.0
_ASSIGNMENT_TIMEOUT_S = 10.0
"""Time that a reading that ends waits for its group to assign partitions."""


class ConsumeRun(Struct):
    """The messages that one run reads, and where it ends."""

    topics: list[str]
    start: str | int | datetime
    write: Callable[[list[Record]], None]
    follow: bool
    group: str | None
    on_corrupt: OnCorrupt
    remaining: int | None
    """Messages that may still be printed; None: any number."""
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    """End of each partition, for a reading that does not follow."""
    printed: dict[tuple[str, int], Record] = field(default_factory=dict)
    """The last message printed of each partition, for a group that is stopped in the middle."""


@at_broker
def consume(
    broker: CommandTarget,
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", help="Names, or patterns with * and ?.", show_default=False),
    ],
    *,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", help="beginning, end, an offset, or a time. Default: beginning; with --follow: end."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Read as a member of a group; commit what was printed."),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="Print at most this many messages.")
    ] = None,
    output: Annotated[str, typer.Option("--format", help="text, json or raw.")] = "text",
    on_corrupt: Annotated[
        str,
        typer.Option("--on-corrupt", help="At a batch that cannot be read: fail, or skip it with a warning."),
    ] = "fail",
) -> int:
    """Print messages: what is there now, or with --follow also what comes."""
    if output not in FORMATS:
        raise typer.BadParameter(f"--format cannot be {output!r}; it is text, json or raw")
    if on_corrupt not in ("fail", "skip"):
        raise typer.BadParameter(f"--on-corrupt cannot be {on_corrupt!r}; it is fail or skip")
    begin = parse_start(start or ("end" if follow else "beginning"))
    write = formatter(output, sys.stdout)
    reading = ConsumeRun(topics, begin, write, follow, group, cast("OnCorrupt", on_corrupt), max_messages)
    try:
        with_client(broker, lambda client: _read(client, reading))
    except BrokenPipeError:
        return reader_gone()
    return OK


async def _read(client: Client, reading: ConsumeRun) -> None:
    if not reading.follow:
        reading.ends = await _ends(client, reading.topics)
        if not reading.ends:
            say(
                f"no topic matches {' '.join(reading.topics)}; `sparrow topic list` shows those "
                "that there are"
            )
            return
        if not reading.group and 1 < len(reading.ends) <= MAX_PARTITIONS:
            await _print_merged(client, reading)
            return
    async with client.subscribe(
        *reading.topics, start=reading.start, group=reading.group, on_corrupt=reading.on_corrupt
    ) as subscription:
        try:
            await _print_all(subscription, reading)
        except BaseException:
            await _commit_printed(subscription, reading)
            raise
        if reading.group:
            await subscription.commit()


async def _print_merged(client: Client, reading: ConsumeRun) -> None:
    if reading.remaining == 0:
        return
    wanted = _AT_A_TIME if reading.remaining is None else min(_AT_A_TIME, reading.remaining)
    pages = read_merged(client, reading.ends, reading.start, reading.on_corrupt, wanted)
    async with aclosing(pages):
        async for messages in pages:
            kept = messages[: reading.remaining]
            await _print(reading, kept)
            if reading.remaining is not None:
                reading.remaining -= len(kept)
                if reading.remaining == 0:
                    return


async def _commit_printed(subscription: Subscription, reading: ConsumeRun) -> None:
    """Commit what was printed, so that a message that could not be printed comes again."""
    for message in reading.printed.values():
        with suppress(StaleMember):
            await subscription.commit(message)


async def _ends(client: Client, topics: list[str]) -> dict[tuple[str, int], int]:
    names: set[str] = set()
    for topic in topics:
        is_pattern = "*" in topic or "?" in topic
        names |= {found.name for found in await client.admin.list_topics(topic)} if is_pattern else {topic}
    return {
        (name, each.partition): each.offset
        for name in sorted(names)
        for each in await client.admin.offsets(name, "end")
    }


async def _print_all(subscription: Subscription, reading: ConsumeRun) -> None:
    started_at = committed_at = time.monotonic()
    while reading.remaining != 0:
        if not reading.follow and _is_at_end(subscription, reading, time.monotonic() - started_at):
            return
        wanted = _AT_A_TIME if reading.remaining is None else min(_AT_A_TIME, reading.remaining)
        messages = await subscription.pull(wanted, wait_s=_POLL_S)
        kept = _within(messages, reading)
        if kept:
            await _print(reading, kept)
        if reading.remaining is not None:
            reading.remaining -= len(kept)
        if reading.group and time.monotonic() - committed_at >= _COMMIT_INTERVAL_S:
            await subscription.commit()
            committed_at = time.monotonic()


async def _print(reading: ConsumeRun, messages: list[Record]) -> None:
    """Write in a thread: the reader of the output may pause for long, and the connection must be
    kept alive meanwhile.
    """
    writing = asyncio.ensure_future(asyncio.to_thread(reading.write, messages))
    try:
        await asyncio.shield(writing)
    finally:  # Ctrl-C does not stop the thread, and the records that it prints must be committed
        await writing
        if reading.group:
            reading.printed |= {(each.topic, each.partition): each for each in messages}


def _within(messages: list[Record], reading: ConsumeRun) -> list[Record]:
    """Remove messages that came after the start. A group gets all that it will commit."""
    if reading.follow or reading.group:
        return messages
    return [each for each in messages if each.offset < reading.ends.get((each.topic, each.partition), 0)]


def _is_at_end(subscription: Subscription, reading: ConsumeRun, waited_s: float) -> bool:
    """Return True if every assigned partition is read up to its end at the start."""
    positions = subscription.positions
    if not positions:
        return waited_s > _ASSIGNMENT_TIMEOUT_S
    return all(position >= reading.ends.get(partition, 0) for partition, position in positions.items())
