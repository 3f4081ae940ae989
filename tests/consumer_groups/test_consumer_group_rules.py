"""Single rules of consumer groups: who is admitted, who is fenced, when a response has the
assignment.
"""

import uuid

import pytest
from msgspec.structs import replace

from sparrow.base.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    InvalidArgument,
    InvalidRegularExpression,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from sparrow.broker.groups.consumer.group import Fenced
from sparrow.broker.groups.consumer.member import NOTHING, Heartbeat, MemberState
from sparrow.broker.groups.description import GroupState
from tests.consumer_groups.machine import SESSION_TIMEOUT_S, Machine, joining


@pytest.mark.parametrize(
    "wrong",
    [
        replace(joining("m", "t"), rebalance_timeout_ms=-1),
        replace(joining("m", "t"), owned=None),
        replace(joining("m", "t"), owned=frozenset({(uuid.uuid4(), 0)})),
        replace(joining("m", "t"), topics=None),
        replace(joining("m", "t"), instance_id=""),
        replace(joining("m", "t"), rack_id=""),
        joining("", "t"),
        Heartbeat("", 3),
        Heartbeat("", -1),
        Heartbeat("m", -2),
        Heartbeat("m", -3),
    ],
)
def test_heartbeat_that_makes_no_sense_is_refused(wrong: Heartbeat) -> None:
    with pytest.raises(InvalidArgument):
        Machine(t=1).beat(wrong)


def test_member_of_the_first_version_may_have_its_id_made_by_the_broker() -> None:
    with pytest.raises(InvalidArgument):
        Machine(t=1).beat(joining("", "t"))
    Machine(t=1).beat(joining("", "t", must_have_id=False))


def test_unknown_assignor_is_refused() -> None:
    with pytest.raises(UnsupportedAssignor):
        Machine(t=1).beat(joining("m", "t", server_assignor="sticky"))


def test_first_member_gets_everything_at_once() -> None:
    machine = Machine(t=3)
    answer = machine.beat(joining("m", "t"))
    assert (answer.member_epoch, answer.assignment) == (1, machine.partitions("t"))
    assert machine.group.state is GroupState.STABLE


def test_response_has_the_assignment_only_after_a_change_or_a_full_heartbeat() -> None:
    machine = Machine(t=1)
    machine.beat(joining("m", "t"))
    owned = machine.partitions("t")
    assert machine.beat(Heartbeat("m", 1, owned=owned)).assignment is None
    assert machine.beat(Heartbeat("m", 1)).assignment is None
    everything = replace(joining("m", "t"), member_epoch=1, owned=owned)
    assert machine.beat(everything).assignment == owned


def test_partitions_go_to_a_new_member_when_their_holder_says_that_it_gave_them_up() -> None:
    machine = Machine(t=2)
    machine.beat(joining("a", "t"))
    all_of_t = machine.partitions("t")
    assert machine.beat(joining("b", "t")).assignment == NOTHING
    assert machine.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS

    told = machine.beat(Heartbeat("a", 1, owned=all_of_t))
    assert (told.member_epoch, len(told.assignment or ())) == (1, 1)
    assert machine.beat(Heartbeat("b", 2)).assignment is None
    assert machine.beat(Heartbeat("a", 1)).member_epoch == 1  # it says nothing: it may still own it

    confirmed = machine.beat(Heartbeat("a", 1, owned=told.assignment))
    assert (confirmed.member_epoch, confirmed.assignment) == (2, None)
    answer = machine.beat(Heartbeat("b", 2))
    assert answer.assignment == all_of_t - machine.group.members["a"].assigned
    assert machine.group.state is GroupState.STABLE


def test_group_is_assigning_until_somebody_asks() -> None:
    machine = Machine(t=2)
    machine.beat(joining("a", "t"))
    machine.beat(joining("b", "t"))
    machine.beat(Heartbeat("b", -1))
    assert machine.group.state is GroupState.ASSIGNING
    machine.beat(Heartbeat("a", 1))
    assert machine.group.state is GroupState.STABLE


def test_member_with_another_epoch_is_fenced() -> None:
    machine = Machine(t=2)
    machine.beat(joining("a", "t"))
    for epoch in (2, 7):
        with pytest.raises(FencedMemberEpoch):
            machine.beat(Heartbeat("a", epoch, owned=machine.partitions("t")))


def test_member_that_missed_the_answer_goes_on_if_it_owns_nothing_else() -> None:
    machine = Machine(t=2, u=2)
    machine.beat(joining("a", "t"))
    machine.beat(replace(joining("a", "t", "u"), member_epoch=1, owned=machine.partitions("t")))
    assert machine.group.members["a"].epoch == 2
    with pytest.raises(FencedMemberEpoch):
        machine.beat(Heartbeat("a", 1))
    with pytest.raises(FencedMemberEpoch):
        machine.beat(Heartbeat("a", 1, owned=frozenset({(uuid.uuid4(), 0)})))
    again = replace(joining("a", "t", "u"), member_epoch=1, owned=machine.partitions("t"))
    answer = machine.beat(again)
    assert (answer.member_epoch, answer.assignment) == (2, machine.partitions("t", "u"))


def test_join_that_is_sent_twice_is_answered_twice() -> None:
    machine = Machine(t=2)
    first = machine.beat(joining("a", "t"))
    assert machine.beat(joining("a", "t")) == first


def test_join_with_the_subscription_alone_suffices_for_a_new_member() -> None:
    machine = Machine(t=2)
    alone = Heartbeat("a", 0, topics=("t",))
    answer = machine.beat(alone)
    assert answer.assignment == machine.partitions("t")
    with pytest.raises(FencedMemberEpoch):
        machine.beat(alone)
    assert machine.group.members["a"].rebalance_timeout_ms == 300_000


def test_nobody_knows_a_member_that_left() -> None:
    machine = Machine(t=2)
    machine.beat(joining("a", "t"))
    machine.beat(Heartbeat("a", -1))
    for epoch in (1, -1):
        with pytest.raises(UnknownMember):
            machine.beat(Heartbeat("a", epoch))
    assert machine.group.state is GroupState.EMPTY


def test_full_group_takes_known_members_only() -> None:
    machine = Machine(max_members=1, t=2)
    machine.beat(joining("a", "t"))
    with pytest.raises(GroupFull):
        machine.beat(joining("b", "t"))
    machine.beat(Heartbeat("a", 1))


def test_silent_member_is_put_out_after_its_session() -> None:
    machine = Machine(t=2)
    machine.beat(joining("a", "t"))
    machine.now += 30
    machine.beat(joining("b", "t"))
    machine.now += 20
    assert [member_id for member_id, _ in machine.group.expire(machine.now)] == ["a"]
    assert machine.beat(Heartbeat("b", 2)).assignment == machine.partitions("t")


def test_member_that_does_not_give_up_partitions_is_put_out_after_its_rebalance_timeout() -> None:
    machine = Machine(t=2)
    machine.beat(joining("a", "t"))
    machine.beat(joining("b", "t"))
    machine.beat(Heartbeat("a", 1, owned=machine.partitions("t")))
    machine.now = 40
    for member_id, epoch in (("a", 1), ("b", 2)):
        machine.beat(Heartbeat(member_id, epoch))
    machine.now = 59
    assert machine.group.expire(machine.now) == []
    machine.now = 60
    assert machine.group.expire(machine.now) == [("a", Fenced.NOT_REVOKED)]
    assert machine.beat(Heartbeat("b", 2)).assignment == machine.partitions("t")


# ── static members ────────────────────────────────────────────────────────────────────────────────


def test_static_member_that_left_for_a_while_is_replaced_without_a_rebalance() -> None:
    machine = Machine(t=2)
    machine.beat(joining("a", "t", instance_id="i"))
    machine.beat(Heartbeat("a", -2, instance_id="i"))
    epoch = machine.group.epoch
    answer = machine.beat(joining("a2", "t", instance_id="i"))
    assert (answer.member_epoch, answer.assignment) == (epoch, machine.partitions("t"))
    assert (machine.group.epoch, list(machine.group.members)) == (epoch, ["a2"])


def test_instance_id_of_a_member_that_has_not_left_is_not_released() -> None:
    machine = Machine(t=2)
    machine.beat(joining("a", "t", instance_id="i"))
    with pytest.raises(UnreleasedInstanceId):
        machine.beat(joining("b", "t", instance_id="i"))


def test_replaced_static_member_is_fenced() -> None:
    machine = Machine(t=2)
    machine.beat(joining("a", "t", instance_id="i"))
    machine.beat(Heartbeat("a", -2, instance_id="i"))
    machine.beat(joining("b", "t", instance_id="i"))
    for epoch in (1, -1, -2):
        with pytest.raises(FencedInstance):
            machine.beat(Heartbeat("a", epoch, instance_id="i"))
    with pytest.raises(UnknownMember):
        machine.beat(Heartbeat("x", 1, instance_id="other"))


def test_static_member_that_stays_away_is_forgotten_after_its_session() -> None:
    machine = Machine(t=2)
    machine.beat(joining("a", "t", instance_id="i"))
    machine.beat(Heartbeat("a", -2, instance_id="i"))
    machine.group.expire(SESSION_TIMEOUT_S + 1)
    assert not machine.group.members


# ── topics and regular expressions ────────────────────────────────────────────────────────────────


def test_topics_that_come_grow_and_go_change_the_assignment() -> None:
    machine = Machine(t=1)
    machine.beat(joining("a", "t", "later"))
    machine.make_topic("other", 1)
    assert machine.beat(Heartbeat("a", 1)).assignment is None
    machine.make_topic("later", 2)
    assert machine.beat(Heartbeat("a", 1)).assignment == machine.partitions("t", "later")
    machine.grow_topic("t", 3)
    assert machine.beat(Heartbeat("a", 2)).assignment == machine.partitions("t", "later")
    machine.delete_topic("t")
    assert machine.beat(Heartbeat("a", 3)).assignment == machine.partitions("later")


def test_topic_created_again_under_its_name_is_another_topic() -> None:
    machine = Machine(t=1)
    machine.beat(joining("a", "t"))
    before = machine.partitions("t")
    machine.delete_topic("t")
    machine.make_topic("t", 1)
    answer = machine.beat(Heartbeat("a", 1, owned=before))
    assert answer.assignment == NOTHING
    assert machine.beat(Heartbeat("a", 1, owned=NOTHING)).assignment == machine.partitions("t")


def test_regular_expression_matches_whole_names_and_follows_the_topics() -> None:
    machine = Machine(a1=1, ba1=1)
    machine.beat(joining("m", regex="a.*"))
    assert machine.group.subscribed_topics() == {"a1"}
    machine.make_topic("a2", 2)
    assert machine.beat(Heartbeat("m", 1)).assignment == machine.partitions("a1", "a2")
    machine.delete_topic("a1")
    assert machine.beat(Heartbeat("m", 2)).assignment == machine.partitions("a2")


def test_topic_that_comes_just_before_a_member_leaves_is_matched_all_the_same() -> None:
    machine = Machine(t=1)
    machine.beat(joining("m", regex="t.*"))
    machine.beat(joining("n", "t"))
    machine.make_topic("t2", 1)
    machine.beat(Heartbeat("n", -1))
    assert machine.beat(Heartbeat("m", 1)).assignment == machine.partitions("t", "t2")


def test_expression_beside_names_of_topics_is_resolved_with_the_next_heartbeat() -> None:
    machine = Machine(t=1, r1=1, r2=1)
    answer = machine.beat(joining("m", "t", regex="r.*"))
    assert answer.assignment == machine.partitions("t")
    answer = machine.beat(Heartbeat("m", answer.member_epoch))
    assert answer.assignment == machine.partitions("t", "r1", "r2")
    assert machine.beat(Heartbeat("m", answer.member_epoch)).assignment is None


@pytest.mark.parametrize("regex", ["(", "a{2000}", "(?=a)", "(a)\\1", "[", "*", "(a{900}){900}"])
def test_invalid_regular_expression_is_refused_and_changes_nothing(regex: str) -> None:
    machine = Machine(t=1)
    machine.beat(joining("m", "t"))
    with pytest.raises(InvalidRegularExpression):
        machine.beat(joining("n", regex=regex))
    assert list(machine.group.members) == ["m"]


def test_expression_that_backtracks_elsewhere_is_matched_at_once() -> None:
    machine = Machine(**{"a" * 240: 1})
    machine.beat(joining("m", regex="(a*)*(a*)*(a*)*b"))
    assert machine.group.subscribed_topics() == set()


def test_empty_expression_unsubscribes() -> None:
    machine = Machine(t=1)
    machine.beat(joining("m", regex="t"))
    answer = machine.beat(replace(joining("m", regex=""), member_epoch=1, owned=machine.partitions("t")))
    assert answer.assignment == NOTHING


# ── offsets ───────────────────────────────────────────────────────────────────────────────────────


def test_only_the_members_epoch_commits() -> None:
    machine = Machine(t=1)
    machine.beat(joining("m", "t"))
    machine.group.check_member_epoch("m", 1)
    with pytest.raises(StaleMemberEpoch):
        machine.group.check_member_epoch("m", 2)
    with pytest.raises(UnknownMember):
        machine.group.check_member_epoch("n", 1)
