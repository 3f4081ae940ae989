"""`sparrow status`: one screen about the broker. The exit code says whether it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparrow.base.units import format_duration, format_size
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.target import Token, Url, target, with_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.client.results import BrokerStatus

NOT_READY = "not ready"


def status(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    url: Url = None,
    token: Token = None,
) -> int:
    """Show whether the broker is well: readiness, disk, rates, times of syncs, and what needs
    attention. Exits with 1 if it is not ready.
    """
    found = with_client(target(context, url, token), lambda client: client.admin.broker_status())
    if as_json:
        import msgspec

        print(msgspec.json.encode(found).decode())
    else:
        for line in lines_of(found):
            print(line)
    return FAILED if found.status == NOT_READY else OK


def lines_of(found: BrokerStatus) -> Iterator[str]:
    """Yield the lines of the screen."""
    yield f"{found.status}: version {found.version}, up for {duration(found.uptime_ms)}"
    for reason in found.reasons:
        yield f"  {reason}"
    yield f"disk         {_disk(found)}"
    rates = found.rates
    yield (
        f"messages     {rates.messages_in:,.1f}/s in, {rates.messages_out:,.1f}/s out "
        f"({_size(rates.bytes_in)}/s in, {_size(rates.bytes_out)}/s out)"
    )
    yield (
        f"jobs         {rates.delivered:,.1f}/s delivered, {rates.acknowledged:,.1f}/s acknowledged; "
        f"{found.unfinished:,} unfinished, {found.dead:,} dead"
    )
    yield f"syncs        {_sync(found)}"
    yield (
        f"holds        {found.topics:,} topics, {found.partitions:,} partitions, {found.queues:,} queues, "
        f"{found.groups:,} groups, {_size(found.bytes)}"
    )
    connected = [f"{count:,} {name}" for name, count in found.connections.items() if count]
    yield f"connections  {', '.join(connected) or 'none'}"
    yield "needs attention:" if found.attention else "needs attention: nothing"
    for each in found.attention:
        yield f"  {_plain(each.text)}"


def duration(ms: int) -> str:
    """Return a duration in its largest whole unit but one, such as "90m"."""
    for unit_ms in (86_400_000, 3_600_000, 60_000, 1_000):
        if ms >= 2 * unit_ms:
            return format_duration(ms // unit_ms * unit_ms)
    return format_duration(max(0, ms))


def _disk(found: BrokerStatus) -> str:
    if found.free_bytes < 0:
        return "it does not say how full it is"
    full = f", full in {duration(found.full_in_ms)} at this rate" if found.full_in_ms >= 0 else ""
    return f"{_size(found.free_bytes)} free of {_size(found.total_bytes)}{full}"


def _sync(found: BrokerStatus) -> str:
    if found.sync_p50_ms < 0:
        return "none in the last minute"
    return f"p50 {found.sync_p50_ms:g} ms, p99 {found.sync_p99_ms:g} ms in the last minute"


def _size(count: float) -> str:
    return format_size(round(count))


def _plain(text: str) -> str:
    """Escape names in a sentence, which clients choose."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
