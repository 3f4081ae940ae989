"""Promises of copying from topic to topic, with the offsets of what was read in the transactions of
what is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.crash.histories.events import Found


def miscopied(
    inputs: Iterable[Found],
    copies: Iterable[int],
    *,
    committed: Mapping[int, int],
    confirmed: Mapping[int, int],
) -> list[str]:
    """Check that the output and the group's offsets belong to the same transactions: each input
    before the offsets is in the output once, and no later input is there.

    Args:
        inputs: the numbers to copy.
        copies: the numbers that readers of committed records see in the output.
        committed: the group's offset in each partition of the input.
        confirmed: the highest offset in each partition whose transaction was confirmed.
    """
    seen = Counter(copies)
    breaches = [
        f"partition {partition} is committed to {committed.get(partition, 0)}; {offset} was confirmed"
        for partition, offset in sorted(confirmed.items())
        if committed.get(partition, 0) < offset
    ]
    for each in inputs:
        count, due = seen.pop(each.number, 0), int(each.offset < committed.get(each.partition, 0))
        if count != due:
            where = "before" if due else "not before"
            breaches.append(
                f"message {each.number} is {where} the committed offset and was copied {count} times"
            )
    return breaches + [f"message {number} was copied and never sent" for number in sorted(seen)]
