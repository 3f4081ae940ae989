"""`sparrow queue dead-letters QUEUE`: the dead letters of a queue, and their reasons. Changes
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparrow.cli.exits import OK, say
from sparrow.cli.ndjson import format_line
from sparrow.cli.queue_options import AsJson, Name
from sparrow.cli.queue_peek import shortened
from sparrow.cli.redrive import Where, parse_where
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, at_broker, with_client
from sparrow.cli.times import format_time

if TYPE_CHECKING:
    from sparrow.client.results import DeadLetter


@at_broker
def dead_letters(
    broker: CommandTarget,
    name: Name,
    *,
    max_records: Annotated[int, typer.Option("--max", "-n", min=1, help="Show at most this many.")] = 20,
    where: Where = None,
    as_json: AsJson = False,
) -> int:
    """Show the dead letters of a queue: when and why each was given up, after how many deliveries,
    and where it came from.
    """
    conditions = parse_where(where or [])
    found = with_client(
        broker,
        # One more than is shown, to know whether there are more.
        lambda client: client.admin.dead_letters(name, max_records + 1, **conditions),
    )
    shown = found[:max_records]
    if as_json:
        for letter in shown:
            print(format_line(letter, _known(letter)).decode())
    elif shown:
        columns = ("DIED", "REASON", "DELIVERIES", "FROM", "ERROR", "VALUE")
        print_table(columns, [_row(letter) for letter in shown])
    else:
        say(f"queue {name} has no dead letters{' that match' if where else ''}")
    if len(found) > max_records:
        say(f"there are more than {max_records}; --max shows more")
    return OK


def _row(letter: DeadLetter) -> tuple[object, ...]:
    subscriber = f" ({letter.subscriber})" if letter.subscriber else ""
    return (
        format_time(letter.timestamp),
        letter.reason,
        "-" if letter.delivery_count < 0 else letter.delivery_count,
        f"{letter.origin_topic}/{letter.origin_partition} @{letter.origin_offset}{subscriber}",
        letter.error or "-",
        shortened(letter.value, "null"),
    )


def _known(letter: DeadLetter) -> dict[str, object]:
    """Return the known fields of a dead letter."""
    origin = {
        "topic": letter.origin_topic,
        "partition": letter.origin_partition,
        "offset": letter.origin_offset,
        "timestamp": letter.origin_timestamp,
    }
    known = {
        "state": letter.state,
        "reason": letter.reason,
        "error": letter.error,
        "delivery_count": letter.delivery_count,
        "died": letter.timestamp,
        "subscriber": letter.subscriber,
        "first_delivery": letter.first_delivery_ms,
        "last_delivery": letter.last_delivery_ms,
        "origin": {name: value for name, value in origin.items() if value != -1},
    }
    return {name: value for name, value in known.items() if value not in ("", -1)}
