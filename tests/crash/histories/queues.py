"""Promises of queues: acknowledged records never come again, leases exclude each other, limits are
exact, parents come first.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from tests.crash.histories.events import Event, History, Kind

ACK, NACK, REJECT, RELEASE = "ack", "nack", "reject", "release"
_FINAL = {ACK, REJECT}
_SLACK_S = 0.05
"""The error of clocks that count milliseconds."""
_LOOKS = 3
"""Number of leases after which a queue has scanned everything that was published before."""


class Due(NamedTuple):
    """Earliest moment of a delivery, by both clocks."""

    at_s: float
    """Monotonic time."""
    wall_s: float


class DeadLetter(NamedTuple):
    number: int
    reason: str
    deliveries: int


def redelivered(history: History) -> list[str]:
    """Check that jobs whose ack or reject was confirmed are never leased again."""
    settled: dict[tuple[str, int], str] = {}
    breaches = []
    for event in history.of(Kind.HANDED_OUT, Kind.SETTLED):
        key = (event.by, event.number)
        if event.kind is Kind.SETTLED and event.what in _FINAL:
            settled[key] = event.what
        elif event.kind is Kind.HANDED_OUT and key in settled:
            breaches.append(f"{event.number} was handed out again after its {settled[key]} was confirmed")
    return breaches


def leased_twice(history: History, lease_s: float) -> list[str]:
    """Check that no job is leased to two workers at a time.

    A lease begins after the worker requested it. So the next may begin once the lease duration has
    passed since that request, not earlier, unless the worker returned the job.
    """
    held_since: dict[tuple[str, int], float] = {}
    breaches = []
    for event in history.of(Kind.HANDED_OUT, Kind.SETTLING):
        key = (event.by, event.number)
        if event.kind is Kind.SETTLING:
            held_since.pop(key, None)
            continue
        since = held_since.get(key)
        if since is not None and event.at_s < since + lease_s - _SLACK_S:
            breaches.append(
                f"{event.number} was handed out again {event.at_s - since:.3f} s after it was asked for"
            )
        held_since[key] = event.asked_s
    return breaches


def beyond_limit(history: History, limit: int) -> list[str]:
    """Check that no delivery exceeds the limit, and that each delivery of a message has a higher
    count than the one before, unless that was returned uncounted.
    """
    last: dict[tuple[str, int], int] = defaultdict(int)
    breaches = []
    for event in history.of(Kind.HANDED_OUT, Kind.SETTLING):
        key = (event.by, event.number)
        if event.kind is Kind.SETTLING:
            if event.what == RELEASE:
                last[key] -= 1
            continue
        if event.count > limit:
            breaches.append(f"{event.number} was delivered for the {event.count}. time; the limit is {limit}")
        if event.count <= last[key]:
            breaches.append(f"delivery {event.count} of {event.number} came after delivery {last[key]}")
        last[key] = event.count
    return breaches


def wrong_ends(
    history: History, dead: Sequence[DeadLetter], *, limit: int, lease_s: float = math.inf
) -> list[str]:
    """Check that every message that was sent ends once: acknowledged, or as one dead letter for a
    reason that matches its deliveries.

    Args:
        lease_s: a settlement that was confirmed later than the lease lasts may be the response to a
            repetition, which says nothing of the message's later state.
    """
    published = history.numbers(Kind.SENT)
    copies = Counter(each.number for each in dead)
    said = defaultdict(set)
    for event in history.of(Kind.SETTLING):
        said[event.number].add(event.what)
    asked_s: dict[int, float] = {}
    confirmed: dict[int, str] = {}
    for event in history.of(Kind.HANDED_OUT, Kind.SETTLED):
        if event.kind is Kind.HANDED_OUT:
            asked_s[event.number] = event.asked_s
        elif event.what in _FINAL and event.at_s < asked_s[event.number] + lease_s:
            confirmed[event.number] = event.what
    breaches = [f"{number} is {count} dead letters" for number, count in copies.items() if count > 1]
    for number in sorted(published):
        if number not in copies and ACK not in said[number]:
            breaches.append(f"{number} was not acknowledged, and is no dead letter")
        if number in copies and confirmed.get(number) == ACK:
            breaches.append(f"{number} is a dead letter though its acknowledgement was confirmed")
        if number not in copies and confirmed.get(number) == REJECT:
            breaches.append(f"{number} is no dead letter though its rejection was confirmed")
    for letter in dead:
        if letter.reason == "DELIVERY_LIMIT" and letter.deliveries != limit:
            breaches.append(
                f"{letter.number} died after {letter.deliveries} deliveries; the limit is {limit}"
            )
        if letter.reason == "REJECTED" and REJECT not in said[letter.number]:
            breaches.append(f"{letter.number} died as rejected, and nobody rejected it")
    return breaches


def early(history: History, due: Mapping[int, Due]) -> list[str]:
    """Check that no message is delivered before its time.

    A delay ends by the wall clock, so a delivery that is early by the monotonic clock alone shows
    only that somebody set the wall clock forward.
    """
    breaches = []
    for event in history.of(Kind.HANDED_OUT):
        if event.number not in due:
            continue
        at_s, wall_s = due[event.number]
        early_s = min(at_s - event.at_s, wall_s - event.wall_s)
        if early_s > _SLACK_S:
            breaches.append(
                f"delivery {event.count} of {event.number} was handed out {early_s:.3f} s before its time"
            )
    return breaches


def overtaken(history: History, priorities: Mapping[int, int]) -> list[str]:
    """Check that no message is delivered while one of a higher priority is known to be ready.

    A message is known if nobody received it yet, and it was acknowledged before the last three
    leases: a queue scans new messages a moment later. After a lease without a response, nothing is
    known of the messages sent before: they may be leased to nobody. Valid for a queue with one
    partition and one worker, which requests one lease after the other.
    """
    unsure: set[int] = set()
    sent: set[int] = set()
    acknowledged_s: dict[int, float] = {}
    asks_s: list[float] = [0.0] * _LOOKS
    breaches = []
    for asked_s, events in _steps(history):
        kind = events[0].kind
        if kind is Kind.UNANSWERED:
            unsure |= sent
        elif kind is Kind.SENT:
            sent.add(events[0].number)
        elif kind is Kind.ACKNOWLEDGED:
            acknowledged_s[events[0].number] = events[0].at_s
        else:
            unsure |= {event.number for event in events}
            asks_s.append(asked_s)
            known = [n for n, at_s in acknowledged_s.items() if at_s < asks_s[-_LOOKS] and n not in unsure]
            highest = max((priorities[number] for number in known), default=-1)
            breaches += [
                f"{event.number} of priority {priorities[event.number]} was handed out while one "
                f"of {highest} was ready"
                for event in events
                if priorities[event.number] < highest
            ]
    return breaches


def _steps(history: History) -> list[tuple[float, list[Event]]]:
    """Yield each event by itself, but the messages of one lease together, with the time of its
    request.
    """
    kinds = (Kind.SENT, Kind.ACKNOWLEDGED, Kind.UNANSWERED, Kind.HANDED_OUT)
    events = groupby(history.of(*kinds), lambda each: (each.kind, each.asked_s or each.number))
    return [(event[0].asked_s, event) for event in (list(each) for _, each in events)]


def children_first(history: History, parents: Mapping[int, Collection[int]]) -> list[str]:
    """Check that nobody gets a message before each of its parents was acknowledged (at least: a
    worker said so), nor a parent after one of its children.
    """
    children = defaultdict(list)
    for child, each in parents.items():
        for parent in each:
            children[parent].append(child)
    said: set[int] = set()
    out: set[int] = set()
    breaches = []
    for event in history.of(Kind.HANDED_OUT, Kind.SETTLING):
        if event.kind is Kind.SETTLING:
            if event.what == ACK:
                said.add(event.number)
            continue
        missing = [parent for parent in parents.get(event.number, ()) if parent not in said]
        if missing:
            breaches.append(f"{event.number} was handed out before its parents {missing} were finished")
        late = [child for child in children[event.number] if child in out]
        if late:
            breaches.append(f"{event.number} was handed out after its children {late}")
        out.add(event.number)
    return breaches


def unfinished(history: History, published: Collection[int], by: str | None = None) -> list[str]:
    """Check that everything that was published was acknowledged, with a confirmation."""
    done = {
        each.number for each in history.of(Kind.SETTLED) if each.what == ACK and (by is None or each.by == by)
    }
    return [f"{number} was never acknowledged" for number in sorted(set(published) - done)]
