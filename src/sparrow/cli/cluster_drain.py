"""`sparrow cluster drain`: the owner hands the data over to a broker that stands by."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sparrow.base.units import parse_duration_ms
from sparrow.cli.cluster_engines import Config, open_ledger, read_settings
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.queue_options import AsJson

if TYPE_CHECKING:
    from sparrow.cluster.handover import Handover
    from sparrow.server.cluster_settings import ClusterSettings


def drain(
    *,
    wait: Annotated[
        str,
        typer.Option("--wait", metavar="DURATION", help="Time to wait until the other serves; 0s: only ask."),
    ] = "60s",
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Let the broker that owns the data hand it over to one that stands by, and stand by itself.

    Clients are informed, what they were promised is kept, and they go on at the other broker. Exit
    code 0: it serves; 1: it does not after --wait; 69: there is no broker that could. A request
    counts for a minute.
    """
    found = asyncio.run(_ask(read_settings(config), _seconds(wait)))
    if as_json:
        print(json.dumps({**msgspec.structs.asdict(found), "is_done": found.is_done}))
    elif found.is_done:
        print(
            f"node {found.owner} owns the data now (epoch {found.epoch}); it served clients "
            f"{found.takeover_ms} ms after node {found.node} had let go"
        )
    else:
        print(
            f"node {found.node} was asked to hand over; no other broker serves yet: "
            "look at `sparrow cluster status`"
        )
    return OK if found.is_done or not _seconds(wait) else FAILED


def _seconds(text: str) -> float:
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise typer.BadParameter(f"--wait is {text!r}; it takes {error}") from None


async def _ask(settings: ClusterSettings, wait_s: float) -> Handover:
    from sparrow.cluster.handover import ask_handover

    async with open_ledger(settings) as ledger:
        return await ask_handover(ledger, wait_s)
