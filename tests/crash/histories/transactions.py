"""Promises of transactions, and of a sink's batches: committed ones are visible whole, aborted ones
not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable


def broken(
    visible: Iterable[int], *, committed: Collection[int], aborted: Collection[int], size: int
) -> list[str]:
    """Check what readers of committed records see: the number of its transaction for each record.

    Args:
        committed: transactions whose commit was confirmed.
        aborted: those whose abort was confirmed, and those that nobody committed.
        size: records of a transaction.
    """
    found = Counter(visible)
    breaches = [f"transaction {each} was committed and is lost" for each in committed if not found[each]]
    breaches += [
        f"transaction {each} was aborted and is seen" for each in sorted(aborted) if found.get(each, 0)
    ]
    breaches += [
        f"of transaction {number} {count} records are seen; it has {size}"
        for number, count in sorted(found.items())
        if count != size
    ]
    return breaches
