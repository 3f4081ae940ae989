"""Handing the shard over when an operator asks for it.

The request goes through the ledger: the owner sees it with its next renewal, finishes what it has
promised, and lets the shard go, which a standby then takes at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparrow.base.errors import Unavailable
from sparrow.cluster.errors import LedgerMissing, LedgerUnavailable
from sparrow.cluster.ownership import standbys

if TYPE_CHECKING:
    from sparrow.cluster.ledger import Ledger

POLL_S: Final = 0.1


class Handover(Struct, frozen=True):
    """The outcome of a request.

    Attributes:
        node: the node that was asked.
        owner: the node that serves clients now; None: none does yet.
        epoch: of the shard.
        takeover_ms: from when the shard was free until clients were served again.
    """

    node: int
    owner: int | None
    epoch: int
    takeover_ms: int | None

    @property
    def is_done(self) -> bool:
        return self.owner is not None


async def ask_handover(ledger: Ledger, wait_s: float, *, shard: int = 0) -> Handover:
    """Ask the owner to hand the shard over, and wait until a standby serves clients.

    Args:
        wait_s: how long; 0: do not wait.

    Raises:
        Unavailable: nobody owns the shard, or no other node could take it.
        LedgerUnavailable
    """
    status = await ledger.status()
    info = next(each for each in status.shards if each.id == shard)
    owner = next((node for node in status.nodes if node.id == info.owner), None)
    if owner is None or owner.expires_in_ms <= 0 or not owner.is_connected:
        raise Unavailable(
            "no broker owns the data now, so that there is nothing to hand over; a broker that stands by "
            "takes it by itself"
        )
    if not standbys(status, owner.id):
        raise Unavailable(
            f"node {owner.id} owns the data, and no other broker stands by to take it; start one first, "
            "or stop the owner with SIGTERM"
        )
    if not await ledger.ask_handover(shard, owner.id):
        raise Unavailable(f"node {owner.id} lost the data in this moment; look at `sparrow cluster status`")
    found = Handover(owner.id, None, info.epoch, None)
    deadline = time.monotonic() + wait_s
    while not found.is_done and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)
        found = await _look(ledger, shard, found)
    return found


async def _look(ledger: Ledger, shard: int, before: Handover) -> Handover:
    try:
        status = await ledger.status()
    except LedgerMissing:
        raise
    except LedgerUnavailable:
        return before  # it comes back, or the time is over
    info = next(each for each in status.shards if each.id == shard)
    if info.owner in (None, before.node) or info.takeover_ms is None:
        return before
    return Handover(before.node, info.owner, info.epoch, info.takeover_ms)
