"""`sparrow queue peek QUEUE`: show records with their state in the queue. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparrow.cli.exits import OK
from sparrow.cli.ndjson import format_line
from sparrow.cli.queue_options import AsJson, Name, Subscriber
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, at_broker, with_client

if TYPE_CHECKING:
    from sparrow.client.results import PeekedRecord

_SHOWN_CHARACTERS = 60
"""Characters of a value that a table shows."""


@at_broker
def peek(
    broker: CommandTarget,
    name: Name,
    *,
    max_records: Annotated[int, typer.Option("--max", "-n", min=1, help="Show at most this many.")] = 10,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            help="Only those ready, leased, delayed, blocked or moving; may repeat.",
        ),
    ] = None,
    subscriber: Subscriber = "",
    as_json: AsJson = False,
) -> int:
    """Show the next records of a queue, without changing them."""
    found = with_client(
        broker,
        lambda client: client.admin.peek_queue(name, max_records, states=state, subscriber=subscriber),
    )
    if as_json:
        for record in found:
            print(format_line(record, _known(record)).decode())
        return OK
    columns = ("TOPIC", "PARTITION", "OFFSET", "STATE", "DELIVERIES", "PRIORITY", "KEY", "VALUE")
    print_table(columns, [_row(record) for record in found])
    return OK


def _known(record: PeekedRecord) -> dict[str, object]:
    """Return the fields that the queue knows."""
    known: dict[str, object] = {
        "state": record.state,
        "delivery_count": record.delivery_count,
        "priority": record.priority,
    }
    if record.consumer:
        known["consumer"] = record.consumer
    if record.deliver_at_ms:
        known["deliver_at"] = record.deliver_at_ms
    if record.error:
        known["error"] = record.error
    return known


def _row(record: PeekedRecord) -> tuple[object, ...]:
    return (
        record.topic,
        record.partition,
        record.offset,
        record.state,
        record.delivery_count,
        record.priority,
        shortened(record.key, "-"),
        shortened(record.value, "null"),
    )


def shortened(data: bytes | None, missing: str) -> str:
    """Return a key or value as a table shows it."""
    if data is None:
        return missing
    text = data[: 4 * _SHOWN_CHARACTERS + 1].decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
