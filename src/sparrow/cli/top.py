"""`sparrow top`: the state of the broker and its busiest queues, live."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sparrow.cli.exits import OK
from sparrow.cli.status import lines_of
from sparrow.cli.target import Token, Url, target, with_client

if TYPE_CHECKING:
    from sparrow.client import Client
    from sparrow.client.results import BrokerStatus, QueueDescription

MAX_QUEUES: Final = 20
FOREVER: Final = 0
_COLUMNS: Final = ("QUEUE", "READY", "LEASED", "DELAYED", "BLOCKED", "DEAD", "IN/S", "ACKED/S", "CONSUMERS")


def top(
    context: typer.Context,
    *,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")
    ] = 1.0,
    times: Annotated[
        int, typer.Option("--times", "-n", min=FOREVER, help="Look so often; 0: until Ctrl-C.")
    ] = FOREVER,
    url: Url = None,
    token: Token = None,
) -> int:
    """Show the broker and its busiest queues live, like top. Without a terminal each look is
    printed below the one before.
    """
    with_client(target(context, url, token), lambda client: _watch(client, interval_s, times))
    return OK


async def _watch(client: Client, interval_s: float, times: int) -> None:
    look = 0
    if not sys.stdout.isatty():
        while True:
            print("\n".join(_plain_lines(await _status(client), await _queues(client))), flush=True)
            look += 1
            if look == times:
                return
            await asyncio.sleep(interval_s)
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(), screen=times == FOREVER, auto_refresh=False) as live:
        while True:
            live.update(_screen(await _status(client), await _queues(client)), refresh=True)
            look += 1
            if look == times:
                return
            await asyncio.sleep(interval_s)


async def _status(client: Client) -> BrokerStatus:
    return await client.admin.broker_status()


async def _queues(client: Client) -> list[QueueDescription]:
    """Return the busiest queues, and those with most to do."""
    found = await client.admin.list_queues()
    busiest = sorted(found, key=lambda q: (-q.statistics.acknowledged_rate, -q.statistics.unfinished, q.name))
    return busiest[:MAX_QUEUES]


def _row(queue: QueueDescription) -> tuple[str, ...]:
    s = queue.statistics
    name = queue.name if queue.name.isprintable() else queue.name.encode("unicode_escape").decode()
    numbers = (s.ready, s.leased, s.delayed, s.blocked, s.dead)
    rates = (f"{s.published_rate:,.1f}", f"{s.acknowledged_rate:,.1f}")
    return (name, *(f"{each:,}" for each in numbers), *rates, str(len(s.consumers)))


def _plain_lines(status: BrokerStatus, queues: list[QueueDescription]) -> list[str]:
    rows = [_COLUMNS, *map(_row, queues)] if queues else []
    return [*lines_of(status), *("\t".join(row) for row in rows)]


def _screen(status: BrokerStatus, queues: list[QueueDescription]) -> Any:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    first, *others = lines_of(status)
    color = {"ready": "green", "degraded": "yellow"}.get(status.status, "red")
    table = Table(box=box.SIMPLE_HEAD)
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "QUEUE" else "right", no_wrap=True)
    for queue in queues:
        table.add_row(*map(Text, _row(queue)))
    return Group(Text(first, style=f"bold {color}"), *map(Text, others), table)
