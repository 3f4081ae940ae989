"""Garbage collection in the object store, by the owner of the shard.

An object that no row names any more is deleted after `DEAD_MS`, in which readers end that began
before. An object that no row ever named (its upload succeeded, its commit did not happen) is an
orphan; it is found by the hour in its key, once that is older than `ORPHAN_MS`. The ledger commits
no object whose key is older than `MAX_OBJECT_AGE_MS`, so a commit that comes late cannot name an
object that is collected. Both go by the ledger's time: the clock of a node that jumped ahead would
make objects old whose commits are on their way.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparrow.cluster.ledger import Ledger
    from sparrow.cluster.objects import Objects

_LOG = logging.getLogger(__name__)
DEAD_MS: Final = 3_600_000
ORPHAN_MS: Final = 7_200_000
_AT_ONCE: Final = 1000


async def collect_dead(ledger: Ledger, objects: Objects, dead_ms: int = DEAD_MS) -> int:
    """Delete objects that no row names since `dead_ms`. Return how many.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: some may have been deleted.
    """
    total = 0
    while keys := await ledger.garbage(dead_ms, _AT_ONCE):
        await objects.delete(keys)
        await ledger.forget_garbage(keys)
        total += len(keys)
    return total


async def collect_orphans(ledger: Ledger, objects: Objects, *, hours: int | None = None) -> int:
    """Delete objects that no row ever named. Return how many.

    Args:
        hours: look at so many hours before the newest that is old enough; None: at all.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: some may have been deleted.
    """
    newest_ms = await ledger.now_ms() - ORPHAN_MS
    if hours is None:
        prefixes: Collection[str] = ["w/"]
    else:
        prefixes = [f"w/{_hour(newest_ms - 3_600_000 * each)}/" for each in range(hours)]
    total = 0
    for prefix in prefixes:
        old = [each.key for each in await objects.find(prefix) if _hour_of(each.key) < _hour(newest_ms)]
        if not old:
            continue
        # The ledger is asked after the bucket: what was named meanwhile is younger.
        named = await ledger.named(prefix)
        orphans = [key for key in old if key not in named]
        await objects.delete(orphans)
        total += len(orphans)
    if total:
        _LOG.info("%d objects that no commit names were deleted", total)
    return total


def _hour(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%d%H")


def _hour_of(key: str) -> str:
    return key.split("/")[1]
