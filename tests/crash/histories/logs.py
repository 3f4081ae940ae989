"""Promises of logs: no acknowledged record is lost, no record appears that nobody sent, none
appears twice, and all are in order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from itertools import pairwise

from tests.crash.histories.events import Found, History, Kind, Place


def lost(history: History, found: Sequence[Found]) -> list[str]:
    """Check that acknowledged records exist, at their offset if the acknowledgement named one."""
    places = defaultdict(set)
    for each in found:
        places[each.number].add((each.partition, each.offset))
    breaches = []
    for event in history.of(Kind.ACKNOWLEDGED):
        if event.number not in places:
            breaches.append(f"{event.number} was acknowledged and is lost")
        elif event.place is not None and event.place not in places[event.number]:
            there = sorted(places[event.number])
            breaches.append(f"{event.number} was acknowledged at {event.place} and is at {there}")
    return breaches


def invented(history: History, found: Sequence[Found]) -> list[str]:
    """Check that only records that were sent exist."""
    sent = history.numbers(Kind.SENT)
    return [f"{each.number} is there, and nobody sent it" for each in found if each.number not in sent]


def doubled(history: History, found: Sequence[Found], *, once: bool = True) -> list[str]:
    """Check that each record exists once; or, where the protocol cannot recognise a repetition
    (`once=False`), at most as often as it was sent.
    """
    sent = Counter(event.number for event in history.of(Kind.SENT))
    copies = Counter(each.number for each in found)
    allowed = {number: 1 if once else sent[number] for number in copies}
    return [
        f"{number} is there {count} times, {allowed[number]} are allowed"
        for number, count in copies.items()
        if count > allowed[number]
    ]


def reordered(found: Sequence[Found]) -> list[str]:
    """Check that the messages of each partition (the first copy of each) are in the order in which
    they were sent, that of their numbers.
    """
    breaches = []
    for partition, each in _by_partition(found).items():
        firsts = list(dict.fromkeys(message.number for message in each))
        breaches += [
            f"{later} stands before {earlier} in partition {partition}"
            for later, earlier in pairwise(firsts)
            if later > earlier
        ]
    return breaches


def gaps(found: Sequence[Found]) -> list[str]:
    """Check that the offsets of each partition are 0, 1, 2 … (for a topic without transactions from
    which nothing was removed).
    """
    return [
        f"partition {partition} has offset {message.offset} where {expected} was due"
        for partition, each in _by_partition(found).items()
        for expected, message in enumerate(each)
        if message.offset != expected
    ][:20]


def misread(
    history: History, found: Sequence[Found], *, repeats: bool = False, by: str | None = None
) -> list[str]:
    """Check that a reader gets all records, each partition in order and without gaps; once, or
    repeatedly if `repeats`.
    """
    at = {(each.partition, each.offset): each.number for each in found}
    reads = [each for each in history.of(Kind.READ) if by is None or each.by == by]
    seen: Counter[Place] = Counter(each.place for each in reads if each.place is not None)
    breaches = [
        f"{each.number} was read at {each.place}, where {at.get(each.place or (-1, -1))} is"
        for each in reads
        if each.place is not None and at.get(each.place) != each.number
    ]
    breaches += [f"{at[place]} at {place} was never read" for place in at if place not in seen]
    if not repeats:
        breaches += [f"{place} was read {count} times" for place, count in seen.items() if count > 1]
        breaches += _backwards([each.place for each in reads if each.place is not None])
    return breaches


def unread(wanted: Collection[int], history: History) -> list[str]:
    """Check that somebody read each of these messages at least once."""
    read = history.numbers(Kind.READ)
    return [f"{number} was never read" for number in sorted(set(wanted) - read)]


def reread(history: History) -> list[str]:
    """Check that no message was read twice."""
    copies = Counter(each.number for each in history.of(Kind.READ))
    return [f"{number} was read {count} times" for number, count in copies.items() if count > 1]


def _backwards(places: Sequence[Place]) -> list[str]:
    at: dict[int, int] = {}
    breaches = []
    for partition, offset in places:
        if offset < at.get(partition, 0):
            breaches.append(f"({partition}, {offset}) was read after ({partition}, {at[partition] - 1})")
        at[partition] = offset + 1
    return breaches


def _by_partition(found: Sequence[Found]) -> dict[int, list[Found]]:
    parts = defaultdict(list)
    for each in sorted(found, key=lambda each: (each.partition, each.offset)):
        parts[each.partition].append(each)
    return parts
