"""Options of `publish` for delivery by queues: time, priority, parents."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from sparrow.base.errors import InvalidArgument
from sparrow.base.units import parse_duration_ms
from sparrow.cli.times import parse_time_ms
from sparrow.client.schedule import Schedule, with_schedule

if TYPE_CHECKING:
    from collections.abc import Callable

Delay = Annotated[
    str | None,
    typer.Option("--delay", metavar="DURATION", help="Queues deliver it so long after now, such as 5s."),
]
DeliverAt = Annotated[
    str | None,
    typer.Option("--deliver-at", metavar="TIME", help="Queues deliver it at this time, ISO 8601 or ms."),
]
Priority = Annotated[
    int | None, typer.Option("--priority", min=0, max=9, help="Queues deliver 9 first. Without: 4.")
]
Ttl = Annotated[
    str | None,
    typer.Option("--ttl", metavar="DURATION", help="Queues do not deliver it any more so long after now."),
]
ExpiresAt = Annotated[
    str | None,
    typer.Option("--expires-at", metavar="TIME", help="Queues do not deliver it any more from this time on."),
]
MessageId = Annotated[
    str | None,
    typer.Option("--message-id", metavar="ID", help="Id by which other messages name it as their parent."),
]
Parents = Annotated[
    list[str] | None,
    typer.Option(
        "--parent",
        metavar="ID",
        help="A message that a parented queue finishes before it delivers this one; may repeat.",
    ),
]


def parse_schedule(
    *,
    delay: str | None,
    deliver_at: str | None,
    priority: int | None,
    ttl: str | None,
    expires_at: str | None,
    message_id: str | None,
    parents: list[str] | None,
) -> Schedule:
    """Parse the options that were given.

    Raises:
        typer.BadParameter: a value is invalid, or two contradict each other.
    """
    schedule: Schedule = {}
    if delay is not None:
        schedule["delay_ms"] = _parsed("--delay", parse_duration_ms, delay)
    if deliver_at is not None:
        schedule["deliver_at"] = _parsed("--deliver-at", parse_time_ms, deliver_at)
    if priority is not None:
        schedule["priority"] = priority
    if ttl is not None:
        schedule["ttl_ms"] = _parsed("--ttl", parse_duration_ms, ttl)
    if expires_at is not None:
        schedule["expires_at"] = _parsed("--expires-at", parse_time_ms, expires_at)
    if message_id is not None:
        schedule["message_id"] = message_id
    if parents:
        schedule["parents"] = parents
    try:
        with_schedule((), schedule, round(time.time() * 1000))
    except InvalidArgument as error:
        raise typer.BadParameter(error.text) from None
    return schedule


def _parsed(option: str, parse: Callable[[str], int], text: str) -> int:
    try:
        return parse(text)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{option} cannot be {text!r}: {error}") from None
