"""The rules of a share group: who joins, continues, is fenced, is removed; what a member receives
and when.
"""

import pytest

from sparrow.base.errors import FencedMemberEpoch, GroupFull, InvalidArgument, UnknownMember
from sparrow.broker.groups.description import GroupState
from sparrow.broker.groups.share.checks import check_heartbeat
from sparrow.broker.groups.share.member import ShareHeartbeat
from tests.share_groups.machine import SESSION_TIMEOUT_S, Machine, joining


def test_first_member_gets_everything_at_once() -> None:
    machine = Machine({"a": 3, "b": 1})
    answer = machine.join("m", "a", "b", "missing")
    assert answer.member_epoch == 1
    assert machine.named(answer.assignment) == {"a": [0, 1, 2], "b": [0]}
    assert machine.group.state is GroupState.STABLE


def test_heartbeat_tells_the_assignment_only_when_it_is_new_or_asked_for() -> None:
    machine = Machine({"a": 2})
    machine.join("m", "a")
    assert machine.send(ShareHeartbeat("m", 1)).assignment is None
    full = machine.send(ShareHeartbeat("m", 1, topics=["a"]))
    assert machine.named(full.assignment) == {"a": [0, 1]}
    assert full.member_epoch == 1


def test_others_hear_of_a_new_member_with_their_next_heartbeat_and_share_meanwhile() -> None:
    machine = Machine({"a": 2})
    machine.join("m", "a")
    second = machine.join("n", "a")
    assert (second.member_epoch, len(second.assignment or ())) == (2, 1)
    assert len(machine.group.members["m"].assigned) == 2
    told = machine.send(ShareHeartbeat("m", 1))
    assert (told.member_epoch, len(told.assignment or ())) == (2, 1)
    assert not (told.assignment or frozenset()) & (second.assignment or frozenset())


def test_more_members_than_partitions_all_get_something() -> None:
    machine = Machine({"a": 1})
    assert all(machine.join(f"m{n}", "a").assignment for n in range(5))


def test_lost_response_is_repeated_for_the_epoch_before() -> None:
    machine = Machine({"a": 2})
    machine.join("m", "a")
    machine.join("n", "a")
    machine.send(ShareHeartbeat("m", 1))
    again = machine.send(ShareHeartbeat("m", 1))
    assert (again.member_epoch, len(again.assignment or ())) == (2, 1)


def test_member_at_another_epoch_is_fenced_and_may_join_again() -> None:
    machine = Machine({"a": 2})
    machine.join("m", "a")
    for epoch in (2, 7):
        with pytest.raises(FencedMemberEpoch):
            machine.send(ShareHeartbeat("m", epoch))
    answer = machine.join("m", "a")
    assert (answer.member_epoch, machine.named(answer.assignment)) == (1, {"a": [0, 1]})


def test_heartbeats_of_strangers_are_refused() -> None:
    machine = Machine({"a": 2})
    machine.join("m", "a")
    with pytest.raises(UnknownMember):
        machine.send(ShareHeartbeat("x", 1))
    with pytest.raises(UnknownMember):
        machine.group.leave("x")


def test_subscription_may_change_and_may_become_empty() -> None:
    machine = Machine({"a": 1, "b": 2})
    machine.join("m", "a")
    changed = machine.send(ShareHeartbeat("m", 1, topics=["b"]))
    assert (changed.member_epoch, machine.named(changed.assignment)) == (2, {"b": [0, 1]})
    nothing = machine.send(ShareHeartbeat("m", 2, topics=[]))
    assert (nothing.member_epoch, nothing.assignment) == (3, frozenset())


def test_member_that_leaves_makes_room_for_the_others() -> None:
    machine = Machine({"a": 4})
    machine.join("m", "a")
    machine.join("n", "a")
    machine.group.leave("n")
    told = machine.send(ShareHeartbeat("m", 1))
    assert machine.named(told.assignment) is None  # it had everything before, and keeps it
    assert machine.named(machine.group.members["m"].assigned) == {"a": [0, 1, 2, 3]}
    machine.group.leave("m")
    assert machine.group.state is GroupState.EMPTY


def test_silent_member_is_put_out_when_its_session_is_over() -> None:
    machine = Machine({"a": 2})
    machine.join("m", "a")
    machine.now += SESSION_TIMEOUT_S - 1
    machine.join("n", "a")
    assert machine.group.expire(machine.now) == []
    machine.now += 2
    assert machine.group.expire(machine.now) == ["m"]
    assert set(machine.group.members) == {"n"}


def test_topics_that_come_grow_and_go_are_followed() -> None:
    machine = Machine({"a": 1})
    machine.join("m", "a", "b")
    machine.put("b", 2)
    assert machine.named(machine.send(ShareHeartbeat("m", 1)).assignment) == {"a": [0], "b": [0, 1]}
    machine.put("a", 2)
    assert machine.named(machine.send(ShareHeartbeat("m", 2)).assignment) == {"a": [0, 1], "b": [0, 1]}
    machine.drop("a")
    assert machine.named(machine.send(ShareHeartbeat("m", 3)).assignment) == {"b": [0, 1]}


def test_topic_that_nobody_subscribed_to_changes_nothing() -> None:
    machine = Machine({"a": 1})
    machine.join("m", "a")
    machine.put("z", 9)
    assert machine.send(ShareHeartbeat("m", 1)).member_epoch == 1


def test_only_topics_of_the_queue_are_assigned_where_it_has_its_own() -> None:
    machine = Machine({"a": 1, "b": 1})
    machine.group.limit_topics(("a",))
    assert machine.named(machine.join("m", "a", "b").assignment) == {"a": [0]}
    machine.group.limit_topics(None)
    assert machine.named(machine.send(ShareHeartbeat("m", 1)).assignment) == {"a": [0], "b": [0]}


def test_full_group_takes_nobody_but_its_members() -> None:
    machine = Machine({"a": 1}, max_members=2)
    machine.join("m", "a")
    machine.join("n", "a")
    with pytest.raises(GroupFull):
        machine.join("o", "a")
    assert machine.join("n", "a").member_epoch == 2


def test_refused_heartbeat_changes_nothing() -> None:
    machine = Machine({"a": 1}, max_members=1)
    machine.join("m", "a")
    before = (machine.group.epoch, dict(machine.group.members), dict(machine.group.targets))
    machine.group.take_changes()
    for beat in (joining("n", "a"), ShareHeartbeat("m", 5, topics=["b"])):
        with pytest.raises((GroupFull, FencedMemberEpoch)):
            machine.send(beat)
    assert (machine.group.epoch, machine.group.members, machine.group.targets) == before
    assert not machine.group.changes


@pytest.mark.parametrize(
    "beat",
    [
        ShareHeartbeat("", 0, topics=["a"]),
        ShareHeartbeat("  ", 0, topics=["a"]),
        ShareHeartbeat("x" * 37, 0, topics=["a"]),
        ShareHeartbeat("m", 0),
        ShareHeartbeat("m", 0, topics=[]),
        ShareHeartbeat("m", -2),
        ShareHeartbeat("m", 0, topics=["a"], rack_id=" "),
    ],
)
def test_heartbeat_that_makes_no_sense_is_refused(beat: ShareHeartbeat) -> None:
    with pytest.raises(InvalidArgument):
        check_heartbeat(beat)


@pytest.mark.parametrize("beat", [joining("m", "a"), ShareHeartbeat("m", 5), ShareHeartbeat("m", -1)])
def test_heartbeat_that_makes_sense_is_not_refused(beat: ShareHeartbeat) -> None:
    check_heartbeat(beat)
