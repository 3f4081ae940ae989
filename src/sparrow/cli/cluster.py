"""`sparrow cluster …`: look at a cluster, and change what belongs to no single broker, by its
ledger.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING

import typer

from sparrow.base.units import counted, format_duration, format_size
from sparrow.cli import cluster_drain, cluster_import
from sparrow.cli.cluster_engines import Config, find_objects, open_ledger, read_settings
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.queue_options import AsJson
from sparrow.cli.tables import print_table

if TYPE_CHECKING:
    from sparrow.cluster.ledger import LedgerStatus, NodeInfo, ShardInfo
    from sparrow.cluster.verify import Verification
    from sparrow.server.cluster_settings import ClusterSettings

app = typer.Typer(help="Look at a cluster of brokers, drain its owner, import data.", no_args_is_help=True)


@app.command("status")
def status(*, config: Config = None, as_json: AsJson = False) -> int:
    """Show the brokers of a cluster, and which of them owns the data.

    The ledger is the one that `sparrow serve` would use: SPARROW_LEDGER, else cluster.ledger in the
    file.
    """
    found = asyncio.run(_read_status(read_settings(config)))
    owner = found.shards[0].owner
    if as_json:
        print(json.dumps(_as_json(found)))
        return OK
    rows = [
        (
            node.id,
            _role(node, owner),
            f"{node.expires_in_ms / 1000:.1f} s" if node.expires_in_ms > 0 else "expired",
            f"{format_duration(node.seen_ms)} ago",
            ", ".join(f"{name} {address}" for name, address in node.addresses.items()),
        )
        for node in found.nodes
    ]
    print_table(("NODE", "ROLE", "LEASE", "SEEN", "ADDRESSES"), rows)
    shard = found.shards[0]
    if owner is None:
        print(f"nobody owns the data (epoch {shard.epoch}, {shard.seq} commits)")
    else:
        print(f"node {owner} owns the data (epoch {shard.epoch}, {shard.seq} commits)")
        print(_describe_takeover(shard))
    return OK


@app.command("verify")
def verify(*, config: Config = None, as_json: AsJson = False) -> int:
    """Check that all objects that the ledger names are in the object store. Exit code 1 if some are
    missing or too short.

    Nothing is changed and no broker is asked. The engines are those that `sparrow serve` would use.
    """
    settings = read_settings(config)
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


async def _verify(settings: ClusterSettings) -> Verification:
    from sparrow.cluster.verify import verify

    async with open_ledger(settings) as ledger:
        return await verify(ledger, find_objects(settings))


async def _read_status(settings: ClusterSettings) -> LedgerStatus:
    async with open_ledger(settings) as ledger:
        return await ledger.status()


app.command("drain")(cluster_drain.drain)
app.command("import")(cluster_import.import_directory)


def _describe_takeover(shard: ShardInfo) -> str:
    before = "" if shard.taken_from is None else f" after node {shard.taken_from}"
    since = "" if shard.taken_ms is None else f" {format_duration(shard.taken_ms // 1000 * 1000)} ago"
    if shard.takeover_ms is None:
        return f"it took the data{before}{since}, and does not serve clients yet"
    return f"it took the data{before}{since}, and served clients after {shard.takeover_ms / 1000:.1f} s"


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
        "takeover": {
            "from": shard.taken_from,
            "ago_ms": shard.taken_ms,
            "took_ms": shard.takeover_ms,
        },
        "nodes": [
            {
                "id": node.id,
                "role": _role(node, shard.owner),
                "expires_in_ms": node.expires_in_ms,
                "seen_ms_ago": node.seen_ms,
                "addresses": dict(node.addresses),
            }
            for node in status.nodes
        ],
    }
