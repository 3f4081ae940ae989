"""`sparrow queue lease QUEUE`: take records, print them, and settle them.

No record is settled before it was printed. Records that were leased and could not be printed,
because the reader of the output went away or Ctrl-C came, go back to the queue.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct, field

from sparrow.base.units import counted, parse_duration_ms
from sparrow.cli.exits import OK, reader_gone, say
from sparrow.cli.formats import formatter, write_lines
from sparrow.cli.ndjson import format_line
from sparrow.cli.queue_options import AsJson, Name, Subscriber
from sparrow.cli.target import CommandTarget, at_broker, with_client

if TYPE_CHECKING:
    from sparrow.client import Client
    from sparrow.client.job_batch import JobBatch
    from sparrow.client.queue import Queue


class Taking(Struct):
    """The records that one run takes, and how it settles them."""

    queue: str
    max_records: int
    wait_s: float
    verb: str
    """ "released", "acknowledged", "given back as failed", "rejected" or "kept"."""
    text: str
    delay_s: float | None
    subscriber: str
    as_json: bool
    batches: list[JobBatch] = field(default_factory=list)

    @property
    def taken(self) -> int:
        """Return the number of records taken."""
        return sum(map(len, self.batches))


@at_broker
def lease(
    broker: CommandTarget,
    name: Name,
    *,
    max_records: Annotated[int, typer.Option("--max", "-n", min=1, help="Take at most this many.")] = 10,
    wait: Annotated[
        str, typer.Option("--wait", metavar="DURATION", help="Maximum time to wait for the first.")
    ] = "1s",
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge them when they are printed.")] = False,
    nack: Annotated[
        bool, typer.Option("--nack", help="Give them back as failed: they are tried again.")
    ] = False,
    reject: Annotated[
        str | None, typer.Option("--reject", metavar="REASON", help="Move them to the dead letters.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave them leased until their leases end.")] = False,
    error: Annotated[str, typer.Option("--error", metavar="TEXT", help="With --nack: what went wrong.")] = "",
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay", metavar="DURATION", help="With --nack: try again after that. [the queue's backoff]"
        ),
    ] = None,
    subscriber: Subscriber = "",
    as_json: AsJson = False,
) -> int:
    """Take records and print them; without an option that says otherwise they are released at the
    end.
    """
    verbs = {
        "acknowledged": ack,
        "given back as failed": nack,
        "rejected": reject is not None,
        "kept": keep,
    }
    said = [verb for verb, is_said in verbs.items() if is_said]
    if len(said) > 1:
        raise typer.BadParameter("say only one of --ack, --nack, --reject and --keep")
    if not nack and (error or delay):
        raise typer.BadParameter("--error and --delay go with --nack")
    taking = Taking(
        name,
        max_records,
        _seconds("--wait", wait),
        said[0] if said else "released",
        reject or error,
        None if delay is None else _seconds("--delay", delay),
        subscriber,
        as_json,
    )
    try:
        with_client(broker, lambda client: _lease(client, taking))
    except BrokenPipeError:
        return reader_gone()
    say(f"{counted(taking.taken, 'record')} {taking.verb}" if taking.taken else "no record is ready")
    return OK


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise typer.BadParameter(f"{option} is {text!r}; it takes {error}") from None


async def _lease(client: Client, taking: Taking) -> None:
    async with client.queue(taking.queue, subscriber=taking.subscriber, create=False) as queue:
        await _take(queue, taking)
        if taking.verb == "kept":
            await client.drop()  # closing would release them
        else:
            await _settle(taking)


async def _take(queue: Queue, taking: Taking) -> None:
    wait_s = taking.wait_s
    while taking.taken < taking.max_records:
        batch = await queue.lease(taking.max_records - taking.taken, wait_s=wait_s)
        if not batch:
            return
        await _print(batch, as_json=taking.as_json)
        taking.batches.append(batch)
        wait_s = 0


async def _print(batch: JobBatch, *, as_json: bool) -> None:
    """Write in a thread: the reader of the output may pause for long, and the connection must be
    kept alive meanwhile.
    """
    if as_json:
        lines = [format_line(job.record, {"delivery_count": job.delivery_count}) for job in batch]
        await asyncio.to_thread(write_lines, lines, sys.stdout)
    else:
        await asyncio.to_thread(formatter("text", sys.stdout), batch.records)


async def _settle(taking: Taking) -> None:
    """Settle all records, also where some cannot be settled. Raises the first failure."""
    outcomes = await asyncio.gather(
        *(_settled(batch, taking) for batch in taking.batches), return_exceptions=True
    )
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def _settled(batch: JobBatch, taking: Taking) -> None:
    match taking.verb:
        case "acknowledged":
            await batch.ack()
        case "given back as failed":
            await batch.nack(taking.delay_s, error=taking.text)
        case "rejected":
            await batch.reject(taking.text)
        case _:
            await batch.release()
