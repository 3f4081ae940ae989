"""A check of a cluster from outside: is every object that the ledger names in the bucket, and as
large as it has to be?

Nothing is changed, and no object is read. The owner may go on meanwhile: an object that it dropped
between the two looks is looked up again in the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrow.cluster.manifest import decode_manifest

if TYPE_CHECKING:
    from sparrow.cluster.ledger import Ledger, WalRow
    from sparrow.cluster.objects import Objects


@dataclass(slots=True)
class Verification:
    """The result. `missing` and `short` are keys; `unnamed` counts objects that no row names: they
    are garbage, or uploads whose commit has not come.
    """

    commits: int = 0
    objects: int = 0
    size_bytes: int = 0
    missing: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    unnamed: int = 0

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.short)


async def verify(ledger: Ledger, objects: Objects, shard: int = 0) -> Verification:
    """Compare the ledger with the bucket.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: one does not answer.
        NewerFormat, LedgerRefused: a manifest cannot be read.
    """
    rows = (await ledger.load(shard)).wal
    there = {each.key: each.size_bytes for each in await objects.find("w/")}
    named = {row.object_key: _size_of(row) for row in rows if row.object_key is not None}
    found = Verification(len(rows), len(there), sum(there.values()))
    found.missing = sorted(key for key in named if key not in there)
    found.short = sorted(key for key, size in named.items() if key in there and there[key] < size)
    if found.missing:
        still = await ledger.named("w/")
        found.missing = [key for key in found.missing if key in still]
    found.unnamed = sum(key not in named for key in there)
    return found


def _size_of(row: WalRow) -> int:
    runs = decode_manifest(row.manifest).runs
    return max((run.position + run.length for run in runs), default=0)
