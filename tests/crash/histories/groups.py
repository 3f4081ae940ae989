"""Promises of consumer groups: confirmed commits count, no record is skipped, and each partition is
read in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tests.crash.histories.events import History, Kind


def forgotten(history: History, at_the_end: Mapping[int, int]) -> list[str]:
    """Check that the next reader of a partition begins at the last confirmed commit or later, but
    not after the last that was asked for.

    Args:
        at_the_end: the committed offset of each partition when all was over.
    """
    confirmed: dict[int, int] = defaultdict(int)
    asked: dict[int, int] = defaultdict(int)
    breaches = []
    for event in history.of(Kind.COMMITTING, Kind.COMMITTED, Kind.RESUMED):
        partition, offset = event.place or (-1, -1)
        if event.kind is Kind.COMMITTING:
            asked[partition] = max(asked[partition], offset)
        elif event.kind is Kind.COMMITTED:
            confirmed[partition] = max(confirmed[partition], offset)
        elif not confirmed[partition] <= offset <= asked[partition]:
            breaches.append(
                f"{event.by} began partition {partition} at {offset}; {confirmed[partition]} was committed,"
                f" {asked[partition]} the most that was asked for"
            )
    breaches += [
        f"offset {offset} of partition {partition} was committed; {at_the_end.get(partition, 0)} is"
        for partition, offset in confirmed.items()
        if at_the_end.get(partition, 0) < offset
    ]
    return breaches


def disordered(history: History) -> list[str]:
    """Check that a member gets one offset after the other from its start position in a
    partition.
    """
    due: dict[tuple[str, int], int] = {}
    breaches = []
    for event in history.of(Kind.RESUMED, Kind.READ):
        partition, offset = event.place or (-1, -1)
        key = (event.by, partition)
        if event.kind is Kind.READ and key in due and offset != due[key]:
            breaches.append(f"{event.by} read ({partition}, {offset}) where offset {due[key]} was due")
        due[key] = offset + (event.kind is Kind.READ)
    return breaches
