"""`sparrow cluster …`: look at a cluster, by its ledger. No broker is asked."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from sparrow.base.errors import InvalidConfig
from sparrow.base.units import counted, format_size
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.queue_options import AsJson
from sparrow.cli.tables import print_table

if TYPE_CHECKING:
    from sparrow.cluster.ledger import LedgerStatus, NodeInfo
    from sparrow.cluster.verify import Verification
    from sparrow.server.cluster_settings import ClusterSettings

app = typer.Typer(help="Look at a cluster of brokers.", no_args_is_help=True)
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="PATH", help="The configuration file that names the ledger."),
]


@app.command("status")
def status(*, config: Config = None, as_json: AsJson = False) -> int:
    """Show the brokers of a cluster, and which of them owns the data.

    The ledger is the one that `sparrow serve` would use: SPARROW_LEDGER, else cluster.ledger in the
    file.
    """
    found = asyncio.run(_read_status(_settings(config).ledger))
    owner = found.shards[0].owner
    if as_json:
        print(json.dumps(_as_json(found)))
        return OK
    rows = [
        (
            node.id,
            _role(node, owner),
            f"{node.expires_in_ms / 1000:.1f} s" if node.expires_in_ms > 0 else "expired",
            ", ".join(f"{name} {address}" for name, address in node.addresses.items()),
        )
        for node in found.nodes
    ]
    print_table(("NODE", "ROLE", "LEASE", "ADDRESSES"), rows)
    shard = found.shards[0]
    if owner is None:
        print(f"nobody owns the data (epoch {shard.epoch}, {shard.seq} commits)")
    else:
        print(f"node {owner} owns the data (epoch {shard.epoch}, {shard.seq} commits)")
    return OK


@app.command("verify")
def verify(*, config: Config = None, as_json: AsJson = False) -> int:
    """Check that all objects that the ledger names are in the object store. Exit code 1 if some are
    missing or too short.

    Nothing is changed and no broker is asked. The engines are those that `sparrow serve` would use.
    """
    settings = _settings(config)
    found = asyncio.run(_verify(settings))
    if as_json:
        print(json.dumps(dataclasses.asdict(found)))
        return OK if found.is_good else FAILED
    for key in found.missing:
        print(f"{key}: missing")
    for key in found.short:
        print(f"{key}: too short")
    result = "good" if found.is_good else "restore these objects from a backup"
    objects = f"{counted(found.objects, 'object')}, {format_size(found.size_bytes)}"
    print(f"{counted(found.commits, 'commit')}, {objects}: {result}")
    if found.unnamed:
        print(
            f"{counted(found.unnamed, 'object')} that no commit names; the owner deletes them after a while"
        )
    return OK if found.is_good else FAILED


def _settings(config: str | None) -> ClusterSettings:
    from sparrow.server.cluster_settings import check_cluster
    from sparrow.server.config import load

    found, _ = load({} if config is None else {"config": config}, os.environ)
    if not found.cluster.ledger:
        raise InvalidConfig("no ledger is configured; set SPARROW_LEDGER, or cluster.ledger in the file")
    if found.cluster.objects:
        check_cluster(found.cluster)
    return found.cluster


async def _verify(settings: ClusterSettings) -> Verification:
    from sparrow.cluster.objects import open_objects
    from sparrow.cluster.postgres import PostgresLedger
    from sparrow.cluster.verify import verify

    if not settings.objects:
        raise InvalidConfig("no object store is configured; set SPARROW_OBJECTS, or cluster.objects")
    ledger = PostgresLedger(settings.ledger)
    try:
        return await verify(ledger, open_objects(settings.objects))
    finally:
        await ledger.close()


async def _read_status(url: str) -> LedgerStatus:
    from sparrow.cluster.postgres import PostgresLedger

    ledger = PostgresLedger(url)
    try:
        return await ledger.status()
    finally:
        await ledger.close()


def _role(node: NodeInfo, owner: int | None) -> str:
    if node.expires_in_ms <= 0 or not node.is_connected:
        return "gone" if node.id != owner else "owner, gone"
    role = "owner" if node.id == owner else "standby"
    return f"{role}, stops" if node.is_draining else role


def _as_json(status: LedgerStatus) -> dict[str, object]:
    shard = status.shards[0]
    return {
        "owner": shard.owner,
        "epoch": shard.epoch,
        "commits": shard.seq,
        "nodes": [
            {
                "id": node.id,
                "role": _role(node, shard.owner),
                "expires_in_ms": node.expires_in_ms,
                "addresses": dict(node.addresses),
            }
            for node in status.nodes
        ],
    }
