"""`sparrow publish TOPIC`: messages from arguments, from a file's lines, or from stdin."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sparrow.base.errors import InvalidRecord
from sparrow.base.units import parse_duration_ms
from sparrow.cli.exits import FAILED, OK, exit_code_of, say
from sparrow.cli.lines import read_lines
from sparrow.cli.ndjson import parse_line
from sparrow.cli.progress import reading_progress
from sparrow.cli.publication import Publication, PublishTally
from sparrow.cli.schedule import (
    Delay,
    DeliverAt,
    ExpiresAt,
    MessageId,
    Parents,
    Priority,
    Ttl,
    parse_schedule,
)
from sparrow.cli.target import CommandTarget, at_broker, with_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.base.errors import SparrowError
    from sparrow.cli.ndjson import Headers
    from sparrow.client.client import Client

_STDIN = 0
_LINE_END_BYTES = 1


@at_broker
def publish(
    broker: CommandTarget,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to publish.", show_default=False)],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VALUE]...", help="Messages; none: lines of --file or stdin."),
    ] = None,
    *,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="Publish a file's lines; - is stdin.")
    ] = None,
    ndjson: Annotated[
        bool, typer.Option("--ndjson", help="Lines are JSON: value, key, headers, partition, timestamp.")
    ] = False,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every message.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header; may repeat.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Partition of every message.")
    ] = None,
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        typer.Option("--compression", help="Compression of batches."),
    ] = "none",
    acks: Annotated[
        Literal["all", "1", "0"],
        typer.Option("--acks", help="all: on stable storage; 1: page cache; 0: nothing."),
    ] = "all",
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            help="Maximum time for which each message is tried, such as 10s, while the broker takes none.",
        ),
    ] = "2m",
    delay: Delay = None,
    deliver_at: DeliverAt = None,
    priority: Priority = None,
    ttl: Ttl = None,
    expires_at: ExpiresAt = None,
    message_id: MessageId = None,
    parent: Parents = None,
) -> int:
    """Publish messages and print how many were acknowledged."""
    if values and (file or ndjson):
        raise typer.BadParameter("give either VALUEs or --file/--ndjson, not both")
    if message_id is not None and len(values or ()) != 1:
        raise typer.BadParameter("--message-id is the id of one message; give one VALUE with it")
    headers = parse_headers(header or [])
    schedule = parse_schedule(
        delay=delay,
        deliver_at=deliver_at,
        priority=priority,
        ttl=ttl,
        expires_at=expires_at,
        message_id=message_id,
        parents=parent,
    )
    tally = PublishTally()
    timeout_s = _timeout_s(timeout)

    async def act(client: Client) -> None:
        def say_refused(error: SparrowError) -> None:
            say(
                f"the broker at {client.address} takes no messages for now: {error.text} ({error.code});"
                f" trying for {timeout_s:g} s, Ctrl-C stops"
            )

        producer = client.producer(
            acks=acks, compression=compression, delivery_timeout_s=timeout_s, on_refused=say_refused
        )
        encoded = None if key is None else os.fsencode(key)
        publication = Publication(
            producer, topic, tally, key=encoded, headers=headers, partition=partition, schedule=schedule
        )
        try:
            async with producer:
                try:
                    if values:
                        await publication.send_values([os.fsencode(value) for value in values])
                    else:
                        await _send_input(publication, file, ndjson)
                except InvalidRecord:
                    await publication.finish()
                    raise
                await publication.finish()
        finally:  # also after Ctrl-C: the messages that were acknowledged by now
            publication.settle_done()

    return _reported(tally, acks, lambda: with_client(broker, act))


async def _send_input(publication: Publication, file: str | None, ndjson: bool) -> None:
    with _opened(file) as descriptor, reading_progress(descriptor) as advance:
        number = 0
        async for lines in read_lines(descriptor):
            if ndjson:
                number = await _send_ndjson(publication, lines, number)
            else:
                await publication.send_values(lines)
            publication.settle_done()
            advance(sum(map(len, lines)) + _LINE_END_BYTES * len(lines), len(lines))


async def _send_ndjson(publication: Publication, lines: list[bytes], number: int) -> int:
    for number, line in enumerate(lines, number + 1):  # noqa: B020, PLR1704 - counts on from the last chunk
        if not line.strip():
            continue
        try:
            message = parse_line(line)
        except InvalidRecord as error:
            raise InvalidRecord(f"line {number}: {error.text}; the lines before it were published") from None
        await publication.send(message)
    return number


@contextmanager
def _opened(file: str | None) -> Iterator[int]:
    if file is None or file == "-":
        if sys.stdin.isatty():
            say("reading messages from the terminal, one per line; Ctrl-D ends")
        yield _STDIN
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file)
        yield descriptor
    finally:
        os.close(descriptor)


def _reported(tally: PublishTally, acks: str, work: Callable[[], None]) -> int:
    try:
        work()
    except BaseException:
        if tally.read:
            _report(tally, acks)
        raise
    _report(tally, acks)
    first = next(iter(tally.failures.values()), None)
    return exit_code_of(first.error) if first else OK if not tally.unknown else FAILED


def _report(tally: PublishTally, acks: str) -> None:
    for failure in tally.failures.values():
        say(failure.sentence())
    if tally.unexplained:
        say(f"and {tally.unexplained} more were not published for other reasons")
    if tally.unknown:
        say(f"{_counted(tally.unknown)} sent without an answer: they may have arrived or not")
    seconds = max(time.monotonic() - tally.started_at, 1e-9)
    done = "sent without acknowledgement (acks=0)" if acks == "0" else "acknowledged"
    rate = f" ({tally.acknowledged / seconds:,.0f}/s)" if tally.acknowledged >= 1000 else ""
    print(f"{_counted(tally.acknowledged)} {done} in {seconds:.1f} s{rate}", flush=True)


def _timeout_s(text: str) -> float:
    try:
        timeout_ms = parse_duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(f"--timeout cannot be {text!r}; it takes {error}") from None
    if timeout_ms == 0:
        raise typer.BadParameter("--timeout cannot be 0; it is how long each message is tried for")
    return timeout_ms / 1000


def _counted(number: int) -> str:
    return "1 message" if number == 1 else f"{number} messages"


def parse_headers(texts: list[str]) -> Headers:
    """Parse headers from NAME=VALUE texts; names may repeat.

    Raises:
        typer.BadParameter: a text without "=".
    """
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"header {text!r} is not NAME=VALUE")
        pairs.append((name, os.fsencode(value)))
    return tuple(pairs)
