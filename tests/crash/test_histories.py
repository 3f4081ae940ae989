"""Tests of the checks of crash tests: each accepts a history in which the promise was kept, and
rejects the same one after a change.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crash.histories import Event, Found, History, Kind, kept
from tests.crash.histories.copies import miscopied
from tests.crash.histories.groups import disordered, forgotten
from tests.crash.histories.logs import doubled, gaps, invented, lost, misread, reordered, reread, unread
from tests.crash.histories.queues import (
    ACK,
    NACK,
    REJECT,
    RELEASE,
    DeadLetter,
    Due,
    beyond_limit,
    children_first,
    early,
    leased_twice,
    overtaken,
    redelivered,
    unfinished,
    wrong_ends,
)
from tests.crash.histories.transactions import broken


def log(*partitions: int) -> tuple[History, list[Found]]:
    """Return a history in which message n went to the n-th of these partitions, was acknowledged
    and read.
    """
    history, ends, found = History(), dict.fromkeys(partitions, 0), []
    for number, partition in enumerate(partitions):
        place = (partition, ends[partition])
        ends[partition] += 1
        history.note(Kind.SENT, number)
        history.note(Kind.ACKNOWLEDGED, number, place)
        history.note(Kind.READ, number, place)
        found.append(Found(number, *place))
    return history, found


def judged(history: History, found: list[Found]) -> set[str]:
    """Return the promises that do not hold."""
    verdicts = {
        "lost": lost(history, found),
        "invented": invented(history, found),
        "doubled": doubled(history, found),
        "reordered": reordered(found),
        "gaps": gaps(found),
        "misread": misread(history, found),
        "unread": unread(history.numbers(Kind.ACKNOWLEDGED), history),
    }
    return {name for name, breaches in verdicts.items() if breaches}


logs = st.lists(st.integers(0, 2), min_size=2, max_size=30)


@given(logs)
def test_a_log_in_which_all_is_well_is_accepted(partitions: list[int]) -> None:
    assert judged(*log(*partitions)) == set()


@given(logs, st.data())
def test_a_message_that_vanished_is_missed(partitions: list[int], data: st.DataObject) -> None:
    history, found = log(*partitions)
    found.pop(data.draw(st.integers(0, len(found) - 1)))
    assert "lost" in judged(history, found)


@given(logs, st.data())
def test_a_message_that_is_there_twice_is_seen(partitions: list[int], data: st.DataObject) -> None:
    history, found = log(*partitions)
    twice = data.draw(st.sampled_from(found))
    end = 1 + max(each.offset for each in found if each.partition == twice.partition)
    found.append(twice._replace(offset=end))
    assert "doubled" in judged(history, found)


@given(logs, st.data())
def test_two_messages_that_changed_places_are_seen(partitions: list[int], data: st.DataObject) -> None:
    history, found = log(*[0] * len(partitions))
    first, second = sorted(data.draw(st.sets(st.integers(0, len(found) - 1), min_size=2, max_size=2)))
    one, other = found[first], found[second]
    found[first], found[second] = one._replace(number=other.number), other._replace(number=one.number)
    assert {"reordered", "lost", "misread"} <= judged(history, found)


def test_unacknowledged_records_may_appear_up_to_as_often_as_they_were_sent() -> None:
    history, found = log(0, 0)
    history.note(Kind.SENT, 2)
    history.note(Kind.SENT, 2)
    assert judged(history, found) == set()
    copies = [*found, Found(2, 0, 2), Found(2, 0, 3)]
    assert doubled(history, copies, once=False) == []
    assert doubled(history, [*copies, Found(2, 0, 4)], once=False)
    assert invented(history, [*found, Found(3, 0, 2)])


def test_readers_that_skip_repeat_or_go_back_are_seen() -> None:
    history, found = log(0, 0, 0)
    skipping = History(each for each in history.of(*Kind) if (each.kind, each.number) != (Kind.READ, 1))
    assert misread(skipping, found) == ["1 at (0, 1) was never read"]
    assert unread([0, 1, 2], skipping) == ["1 was never read"]
    history.note(Kind.READ, 0, (0, 0))
    assert len(misread(history, found)) == 2  # twice, and backwards
    assert misread(history, found, repeats=True) == []
    assert reread(history) == ["0 was read 2 times"]
    history.note(Kind.READ, 2, (0, 1))
    assert misread(history, found, repeats=True)


# ── groups ────────────────────────────────────────────────────────────────────────────────────────


def member() -> History:
    """Record that one member reads to offset 4 and commits, and another continues."""
    history = History()
    for offset in range(4):
        history.note(Kind.READ, offset, (0, offset), by="a")
    history.note(Kind.COMMITTING, -1, (0, 4), by="a")
    history.note(Kind.COMMITTED, -1, (0, 4), by="a")
    return history


def test_a_group_goes_on_where_it_committed() -> None:
    history = member()
    history.note(Kind.RESUMED, -1, (0, 4), by="b")
    history.note(Kind.READ, 4, (0, 4), by="b")
    assert forgotten(history, {0: 4}) == disordered(history) == []


@pytest.mark.parametrize("start", [3, 5])
def test_a_member_that_begins_before_or_behind_the_commits_is_seen(start: int) -> None:
    history = member()
    history.note(Kind.RESUMED, -1, (0, start), by="b")
    assert forgotten(history, {0: 4})


def test_a_commit_that_is_gone_at_the_end_is_seen_and_one_without_an_answer_may_hold_or_not() -> None:
    history = member()
    assert forgotten(history, {0: 3})
    history.note(Kind.COMMITTING, -1, (0, 6), by="a")
    for start in (4, 5, 6):
        history.note(Kind.RESUMED, -1, (0, start), by="b")
    assert forgotten(history, {0: 6}) == forgotten(history, {0: 4}) == []


def test_a_member_that_reads_with_gaps_is_seen() -> None:
    history = member()
    history.note(Kind.READ, 5, (0, 5), by="a")
    assert disordered(history)


# ── queues ────────────────────────────────────────────────────────────────────────────────────────


def deliver(history: History, number: int, *said: str, count: int = 1, by: str = "") -> None:
    """Record a delivery, its settlement and the confirmation."""
    history.note(Kind.HANDED_OUT, number, count=count, by=by)
    for what in said:
        history.note(Kind.SETTLING, number, what=what, by=by)
        history.note(Kind.SETTLED, number, what=what, by=by)


@pytest.mark.parametrize(("said", "breaks"), [(ACK, True), (REJECT, True), (NACK, False), (RELEASE, False)])
def test_only_finished_records_may_not_be_delivered_again(said: str, *, breaks: bool) -> None:
    history = History()
    deliver(history, 1, said)
    deliver(history, 1, count=2)
    assert bool(redelivered(history)) == breaks


def test_an_acknowledgement_without_an_answer_may_hold_or_not() -> None:
    history = History()
    deliver(history, 1)
    history.note(Kind.SETTLING, 1, what=ACK)
    deliver(history, 1, ACK, count=2)
    assert redelivered(history) == unfinished(history, [1]) == []
    assert unfinished(history, [1, 2]) == ["2 was never acknowledged"]


def test_each_subscriber_has_its_own_acknowledgements() -> None:
    history = History()
    deliver(history, 1, ACK, by="a")
    deliver(history, 1, by="b")
    assert redelivered(history) == []
    assert unfinished(history, [1], "b")


def test_a_lease_excludes_others_as_long_as_it_lasts() -> None:
    def twice(after_s: float, *between: Event) -> History:
        first = Event(10.2, Kind.HANDED_OUT, 1, asked_s=10.0)
        again = Event(10 + after_s, Kind.HANDED_OUT, 1, asked_s=10 + after_s)
        return History([first, *between, again])

    assert leased_twice(twice(1.9), 2.0)
    assert leased_twice(twice(2.0), 2.0) == []
    given_back = Event(10.3, Kind.SETTLING, 1, what=NACK)
    assert leased_twice(twice(0.5, given_back), 2.0) == []


def test_deliveries_beyond_the_limit_or_counted_twice_are_seen() -> None:
    history = History()
    deliver(history, 1, NACK, count=1)
    deliver(history, 1, RELEASE, count=2)
    deliver(history, 1, NACK, count=2)
    assert beyond_limit(history, 2) == []
    deliver(history, 1, NACK, count=2)
    assert beyond_limit(history, 2)
    deliver(history, 2, NACK, count=3)
    assert len(beyond_limit(history, 2)) == 2


Doctor = Callable[[History, list[DeadLetter]], None]


def _rejected_twice(_: History, dead: list[DeadLetter]) -> None:
    dead.append(dead[-1])


def _acknowledged_and_dead(_: History, dead: list[DeadLetter]) -> None:
    dead.append(DeadLetter(0, "DELIVERY_LIMIT", 3))


def _dead_too_early(_: History, dead: list[DeadLetter]) -> None:
    dead[0] = dead[0]._replace(deliveries=2)


def _not_dead(_: History, dead: list[DeadLetter]) -> None:
    dead.pop()


def _forgotten(history: History, _: list[DeadLetter]) -> None:
    history.note(Kind.SENT, 3)


@pytest.mark.parametrize(
    ("doctor", "breaches"),
    [
        (lambda *_: None, 0),
        (_rejected_twice, 1),
        (_acknowledged_and_dead, 1),
        (_dead_too_early, 1),
        (_not_dead, 2),
        (_forgotten, 1),
    ],
)
def test_every_message_ends_once_and_for_a_reason(doctor: Doctor, breaches: int) -> None:
    history, dead = History(), [DeadLetter(1, "DELIVERY_LIMIT", 3), DeadLetter(2, "REJECTED", 1)]
    for number in range(3):
        history.note(Kind.SENT, number)
    deliver(history, 0, ACK)
    for count in range(1, 4):
        deliver(history, 1, NACK, count=count)
    deliver(history, 2, REJECT)
    doctor(history, dead)
    assert len(wrong_ends(history, dead, limit=3)) == breaches


def test_delivery_before_its_time_is_detected() -> None:
    history = History([Event(10.0, Kind.HANDED_OUT, 1, wall_s=2000.0)])
    assert early(history, {1: Due(10.0, 2000.0)}) == early(history, {2: Due(11.0, 2001.0)}) == []
    assert early(history, {1: Due(10.1, 2000.1)})


def test_a_wall_clock_that_is_set_makes_no_delivery_early() -> None:
    history = History([Event(10.0, Kind.HANDED_OUT, 1, wall_s=2000.0)])
    set_forward, set_back = Due(10.2, 2000.0), Due(10.0, 2000.2)
    assert early(history, {1: set_forward}) == early(history, {1: set_back}) == []


def test_a_child_before_its_parent_and_a_parent_after_its_child_are_seen() -> None:
    parents = {2: [1]}
    good, orphan, late = History(), History(), History()
    deliver(good, 1, ACK)
    deliver(good, 2, ACK)
    assert children_first(good, parents) == []
    deliver(orphan, 2, ACK)
    assert children_first(orphan, parents)
    deliver(late, 1, ACK)
    deliver(late, 2)
    deliver(late, 1)
    assert children_first(late, parents) == ["1 was handed out after its children [2]"]


@pytest.mark.parametrize("lost_answer", [False, True])
def test_less_urgent_records_do_not_come_first(*, lost_answer: bool) -> None:
    history = History()
    for number in range(6):
        history.note(Kind.SENT, number)
        history.note(Kind.ACKNOWLEDGED, number)
    if lost_answer:
        history.note(Kind.UNANSWERED)
    priorities = {0: 9, 1: 8, 2: 7, 3: 6, 4: 1, 5: 5}
    now_s = max(each.at_s for each in history.of(*Kind))
    for number in range(5):
        asked_s = now_s + 1 + number
        history = History([*history.of(*Kind), Event(asked_s, Kind.HANDED_OUT, number, asked_s=asked_s)])
    found = overtaken(history, priorities)
    assert found == ([] if lost_answer else ["4 of priority 1 was handed out while one of 5 was ready"])


# ── transactions ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("visible", "breaches"),
    [
        ([1, 1, 3, 3], []),
        ([3, 3], ["transaction 1 was committed and is lost"]),
        ([1, 1, 2, 2], ["transaction 2 was aborted and is seen"]),
        ([1], ["of transaction 1 1 records are seen; it has 2"]),
        ([1, 1, 1, 1], ["of transaction 1 4 records are seen; it has 2"]),
    ],
)
def test_transactions_are_seen_whole_or_not_at_all(visible: list[int], breaches: list[str]) -> None:
    assert broken(visible, committed={1}, aborted={2}, size=2) == breaches


@pytest.mark.parametrize(
    ("copies", "committed", "confirmed", "breaches"),
    [
        ([0, 1], 2, 2, []),
        ([0, 1], 2, 1, []),  # a commit that was never requested
        ([], 0, 0, []),
        ([0], 2, 1, ["message 1 is before the committed offset and was copied 0 times"]),
        ([0, 0, 1], 2, 2, ["message 0 is before the committed offset and was copied 2 times"]),
        ([0, 1, 2], 2, 2, ["message 2 is not before the committed offset and was copied 1 times"]),
        ([0, 1, 7], 2, 2, ["message 7 was copied and never sent"]),
        ([0], 1, 2, ["partition 0 is committed to 1; 2 was confirmed"]),
    ],
)
def test_offsets_and_output_are_of_the_same_transactions(
    copies: list[int], committed: int, confirmed: int, breaches: list[str]
) -> None:
    inputs = [Found(number, 0, number) for number in range(3)]
    assert miscopied(inputs, copies, committed={0: committed}, confirmed={0: confirmed}) == breaches


def test_breaches_are_told_with_their_number() -> None:
    kept([], [])
    with pytest.raises(AssertionError, match=r"2 breaches of what was promised:\s+one\s+two"):
        kept(["one"], [], ["two"])
