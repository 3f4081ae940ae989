"""The classic group's state: joining, syncing, leaving, static members, time."""

from __future__ import annotations

import pytest

from sparrow.base.errors import (
    DiskFull,
    FencedInstance,
    GroupFull,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    SparrowError,
    StaleMember,
    UnknownMember,
)
from sparrow.broker.groups.classic.protocol import Leaver
from sparrow.broker.groups.description import GroupState
from tests.groups.classic_driver import Driver, subscription


@pytest.fixture
def d() -> Driver:
    return Driver()


# ── joining ───────────────────────────────────────────────────────────────────────────────────────


def test_the_first_rebalance_waits_for_members_that_come_together(d: Driver) -> None:
    first = d.join()
    d.advance(0.05)
    second = d.join()
    d.advance(0.06)
    assert not d.responses  # the delay began again
    d.advance(0.1)
    one, two = d.joined(first), d.joined(second)
    assert one.generation == two.generation == 1
    assert one.leader == two.leader == one.member_id
    assert [m.member_id for m in one.members] == [one.member_id, two.member_id]
    assert two.members == ()
    assert one.protocol == "range"


def test_a_first_rebalance_does_not_wait_longer_than_the_rebalance_timeout(d: Driver) -> None:
    first = d.join(rebalance_timeout_ms=1_000)
    for _ in range(30):
        d.advance(0.05)
        d.join(rebalance_timeout_ms=1_000)
    assert d.joined(first).generation == 1


def test_members_get_the_assignments_of_the_leader(d: Driver) -> None:
    ids = d.stable(None, None, None)
    assert d.group.state is GroupState.STABLE
    again = d.sync(ids[1], 1)
    assert d.assigned(again) == ids[1].encode()


def test_followers_wait_for_the_leader_and_for_the_store(d: Driver) -> None:
    d.is_slow = True
    tickets = [d.join(), d.join()]
    d.advance(1)
    leader, other = (d.joined(t).member_id for t in tickets)
    waiting = d.sync(other, 1)
    assert waiting not in d.responses
    leading = d.sync(leader, 1, assignments={other: b"x"})
    assert waiting not in d.responses
    d.stored()
    assert (d.assigned(waiting), d.assigned(leading)) == (b"x", b"")


def test_an_assignment_that_cannot_be_stored_is_an_error_and_begins_again(d: Driver) -> None:
    d.is_slow = True
    ticket = d.join()
    d.advance(1)
    member = d.joined(ticket).member_id
    waiting = d.sync(member, 1)
    effects = d.group.assignment_failed(1, DiskFull("full"), d.now)
    assert [e.ticket for e in effects] == [waiting]  # type: ignore[union-attr]
    assert d.group.state is GroupState.PREPARING_REBALANCE


def test_a_new_member_of_a_newer_client_comes_back_with_the_id_it_was_given(d: Driver) -> None:
    error = d.responses[d.join(requires_member_id=True)]
    assert isinstance(error, MemberIdRequired)
    assert error.member_id.startswith("client-")
    ticket = d.join(error.member_id, requires_member_id=True)
    d.advance(1)
    assert d.joined(ticket).member_id == error.member_id


def test_a_rebalance_waits_for_members_that_were_given_an_id_until_their_session_ends(d: Driver) -> None:
    (one,) = d.stable(None)
    d.join(requires_member_id=True)
    again = d.join(one)
    d.advance(9)
    assert again not in d.responses
    d.advance(1)
    assert d.joined(again).generation == 2
    late = d.join("client-99")
    assert isinstance(d.responses[late], UnknownMember)


def test_a_member_that_does_not_join_again_is_out_after_the_rebalance_timeout(d: Driver) -> None:
    one, two = d.stable(None, None, session_timeout_ms=90_000)
    again = d.join(one)
    new = d.join()
    d.advance(59)
    assert again not in d.responses
    d.advance(1)
    assert {m.member_id for m in d.joined(again).members} == {one, d.joined(new).member_id}
    with pytest.raises(UnknownMember):
        d.heartbeat(two, 1)


def test_a_rebalance_ends_early_when_all_have_joined(d: Driver) -> None:
    one, two = d.stable(None, None)
    tickets = [d.join(two, protocols=(("range", subscription("b")),)), d.join(one)]
    assert {d.joined(t).generation for t in tickets} == {2}


def test_a_follower_that_asks_again_with_the_same_metadata_hears_of_the_same_generation(d: Driver) -> None:
    one, two = d.stable(None, None)
    assert d.joined(d.join(two)).generation == 1
    assert d.group.state is GroupState.STABLE
    again = d.join(one)  # the leader may assign partitions again
    assert again not in d.responses
    assert d.group.state is GroupState.PREPARING_REBALANCE


def test_a_lost_response_is_given_again_while_the_assignment_is_awaited(d: Driver) -> None:
    tickets = [d.join(), d.join()]
    d.advance(1)
    one, two = (d.joined(t) for t in tickets)
    assert d.joined(d.join(one.member_id)).members == one.members
    assert d.joined(d.join(two.member_id)).members == ()


def test_joining_again_elsewhere_ends_the_older_request(d: Driver) -> None:
    one, _ = d.stable(None, None)
    old = d.join(one)
    new = d.join(one)
    assert isinstance(d.responses[old], RebalanceInProgress)
    assert new not in d.responses


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": (("sticky", b""),)},
        {"protocols": ()},
    ],
    ids=str,
)
def test_a_member_must_share_type_and_protocol_with_all(d: Driver, changes: dict[str, object]) -> None:
    d.stable(None)
    assert isinstance(d.responses[d.join(**changes)], InconsistentGroupProtocol)


@pytest.mark.parametrize("changes", [{"protocol_type": ""}, {"protocols": ()}], ids=str)
def test_the_first_member_must_have_a_type_and_a_protocol(d: Driver, changes: dict[str, object]) -> None:
    assert isinstance(d.responses[d.join(**changes)], InconsistentGroupProtocol)
    assert d.group.is_unused


def test_members_vote_for_the_protocol(d: Driver) -> None:
    a, b, c = b"a", b"b", b"c"
    tickets = [
        d.join(protocols=(("x", a), ("y", a), ("z", a))),
        d.join(protocols=(("w", b), ("y", b), ("x", b))),
        d.join(protocols=(("y", c), ("x", c))),
    ]
    d.advance(1)
    assert d.joined(tickets[0]).protocol == "y"
    assert [m.metadata for m in d.joined(tickets[0]).members] == [a, b, c]


def test_a_group_has_a_limit_of_members() -> None:
    d = Driver(max_members=2)
    ids = d.stable(None, None)
    assert isinstance(d.responses[d.join()], GroupFull)
    again = [d.join(member) for member in ids]
    assert {d.joined(t).generation for t in again} == {2}


def test_a_new_member_is_forgotten_if_the_rebalance_takes_too_long() -> None:
    d = Driver(new_member_timeout_ms=20_000)
    (_,) = d.stable(None, session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
    ticket = d.join()
    d.advance(21)
    assert isinstance(d.responses[ticket], UnknownMember)


# ── syncing, heartbeats, commits ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"generation": 0}, StaleMember),
        ({"member_id": "stranger"}, UnknownMember),
        ({"protocol_type": "connect"}, InconsistentGroupProtocol),
        ({"protocol": "sticky"}, InconsistentGroupProtocol),
        ({"instance_id": "i"}, UnknownMember),
    ],
    ids=str,
)
def test_a_sync_must_be_of_this_generation(
    d: Driver, changes: dict[str, str], error: type[SparrowError]
) -> None:
    (one,) = d.stable(None)
    values = {"member_id": one, "generation": 1, **changes}
    assert isinstance(d.responses[d.sync(**values)], error)  # type: ignore[arg-type]


def test_during_a_rebalance_members_are_asked_to_join(d: Driver) -> None:
    one, two = d.stable(None, None)
    d.join(one)
    with pytest.raises(RebalanceInProgress):
        d.heartbeat(two, 1)
    assert isinstance(d.responses[d.sync(two, 1)], RebalanceInProgress)
    d.group.check_commit(two, 1, None, d.now)  # it may still commit what it has


def test_member_waiting_for_an_assignment_is_asked_to_join_again(d: Driver) -> None:
    tickets = [d.join(), d.join()]
    d.advance(1)
    waiting = d.sync(d.joined(tickets[1]).member_id, 1)
    d.join()
    assert isinstance(d.responses[waiting], RebalanceInProgress)


def test_members_that_never_sync_are_removed(d: Driver) -> None:
    tickets = [d.join(session_timeout_ms=600_000), d.join(session_timeout_ms=600_000)]
    d.advance(1)
    one, two = (d.joined(t).member_id for t in tickets)
    waiting = d.sync(two, 1)
    d.advance(60)
    assert isinstance(d.responses[waiting], RebalanceInProgress)
    with pytest.raises(UnknownMember):
        d.heartbeat(one, 1)
    again = d.join(two)
    assert d.joined(again).leader == two


def test_a_silent_member_is_removed_and_the_others_rebalance(d: Driver) -> None:
    one, two = d.stable(None, None)
    d.advance(6)
    d.heartbeat(one, 1)
    d.advance(6)
    with pytest.raises(RebalanceInProgress):
        d.heartbeat(one, 1)
    assert [m.member_id for m in d.joined(d.join(one)).members] == [one]
    with pytest.raises(UnknownMember):
        d.heartbeat(two, 1)


def test_commits_need_a_member_of_the_current_generation_or_an_empty_group(d: Driver) -> None:
    group = d.group
    group.check_commit("", -1, None, d.now)
    tickets = [d.join()]
    d.advance(1)
    one = d.joined(tickets[0]).member_id
    with pytest.raises(RebalanceInProgress):
        group.check_commit(one, 1, None, d.now)
    group.check_commit(one, 1, None, d.now, is_transactional=True)
    d.all_sync([one], 1)
    group.check_commit(one, 1, None, d.now)
    group.check_commit("", -1, None, d.now, is_transactional=True)
    with pytest.raises(UnknownMember):
        group.check_commit("", -1, None, d.now)
    with pytest.raises(UnknownMember):
        group.check_commit("stranger", 1, None, d.now)
    with pytest.raises(StaleMember):
        group.check_commit(one, 0, None, d.now)


def test_commits_keep_a_session_alive(d: Driver) -> None:
    (one,) = d.stable(None)
    for _ in range(5):
        d.advance(9)
        d.group.check_commit(one, 1, None, d.now)
    d.heartbeat(one, 1)


# ── leaving ───────────────────────────────────────────────────────────────────────────────────────


def test_when_one_leaves_the_others_rebalance(d: Driver) -> None:
    one, two = d.stable(None, None)
    assert d.leave(one) == [None]
    assert d.group.leader == two
    assert d.joined(d.join(two)).generation == 2


def test_a_group_whose_last_member_leaves_is_empty_and_stored(d: Driver) -> None:
    (one,) = d.stable(None)
    stores = d.stores
    d.leave(one)
    assert (d.group.state, d.group.generation, d.stores) == (GroupState.EMPTY, 2, stores + 1)
    assert d.group.protocol_type == "consumer"
    ticket = d.join()
    d.advance(1)
    assert d.joined(ticket).generation == 3


def test_many_leave_at_once_each_with_its_own_response(d: Driver) -> None:
    one, two = d.stable("i", "j")
    results = d.leave(Leaver("stranger"), Leaver("", "i"), Leaver("wrong", "j"), Leaver(two, "j"), Leaver(""))
    assert [type(r) for r in results] == [
        UnknownMember,
        type(None),
        FencedInstance,
        type(None),
        UnknownMember,
    ]
    assert d.group.state is GroupState.EMPTY
    assert one not in d.group.members


def test_a_pending_member_may_leave(d: Driver) -> None:
    error = d.responses[d.join(requires_member_id=True)]
    assert d.leave(error.member_id) == [None]
    assert d.group.is_unused


def test_member_leaving_while_it_waits_is_answered(d: Driver) -> None:
    one, _ = d.stable(None, None)
    waiting = d.join(one)
    d.leave(one)
    assert isinstance(d.responses[waiting], UnknownMember)


# ── static members ────────────────────────────────────────────────────────────────────────────────


def test_a_static_member_that_comes_back_replaces_itself_without_a_rebalance(d: Driver) -> None:
    one, two = d.stable("i", "j")
    back = d.joined(d.join(instance_id="j"))
    assert (back.generation, d.group.state) == (1, GroupState.STABLE)
    assert back.member_id != two
    assert d.assigned(d.sync(back.member_id, 1, instance_id="j")) == two.encode()
    with pytest.raises(FencedInstance):
        d.heartbeat(two, 1, "j")
    with pytest.raises(UnknownMember):
        d.heartbeat(two, 1)
    assert one in d.group.members


def test_a_static_leader_that_comes_back_need_not_assign(d: Driver) -> None:
    one, _ = d.stable("i", "j")
    back = d.joined(d.join(instance_id="i", can_skip_assignment=True))
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert len(back.members) == 2
    again = d.joined(d.join(instance_id="i"))
    assert not again.skip_assignment
    assert again.leader == back.member_id != again.member_id
    assert again.members == ()
    assert one not in d.group.members


def test_a_static_member_that_votes_differently_begins_a_rebalance(d: Driver) -> None:
    both = (("range", b""), ("sticky", b""))
    d.stable("i", protocols=both)
    ticket = d.join(instance_id="i", protocols=both[::-1])
    assert d.joined(ticket).generation == 2
    assert d.joined(ticket).protocol == "sticky"


def test_a_static_member_that_comes_back_while_partitions_are_assigned_begins_a_rebalance(d: Driver) -> None:
    tickets = [d.join(instance_id=i) for i in "ij"]
    d.advance(1)
    waiting = d.sync(d.joined(tickets[1]).member_id, 1, instance_id="j")
    d.join(instance_id="j")
    assert isinstance(d.responses[waiting], FencedInstance)
    assert d.group.state is GroupState.PREPARING_REBALANCE


def test_static_members_stay_in_a_rebalance_that_they_miss(d: Driver) -> None:
    one, two = d.stable("i", "j", session_timeout_ms=100_000)
    ticket = d.join(one, instance_id="i")
    d.advance(60)
    assert {m.member_id for m in d.joined(ticket).members} == {one, two}
    d.all_sync([one], 2)
    assert d.assigned(d.sync(two, 2, instance_id="j")) == two.encode()


def test_a_rebalance_of_static_members_that_are_all_away_waits_for_one(d: Driver) -> None:
    one, two = d.stable("i", "j", session_timeout_ms=100_000)
    d.leave(one)
    d.advance(61)
    assert d.group.state is GroupState.PREPARING_REBALANCE
    ticket = d.join(two, instance_id="j")
    assert d.joined(ticket).generation == 2


def test_a_static_member_is_gone_when_its_session_ends(d: Driver) -> None:
    d.stable("i")
    d.advance(10)
    assert d.group.state is GroupState.EMPTY


# ── what is known of topics ───────────────────────────────────────────────────────────────────────


def test_group_knows_the_topics_of_its_consumers(d: Driver) -> None:
    d.stable(None, None, protocols=(("range", subscription("a", "b")),))
    assert d.group.subscribed == {"a", "b"}


def test_metadata_of_another_kind_says_nothing_about_topics(d: Driver) -> None:
    d.stable(None, protocols=(("range", b"\x00\x00\x7f\xff\xff\xff"),))
    assert d.group.subscribed is None


# ── pending members ───────────────────────────────────────────────────────────────────────────────


def test_a_pending_member_that_never_comes_back_does_not_disturb_a_stable_group(d: Driver) -> None:
    ids = d.stable(None, None)
    refused = d.responses[d.join(requires_member_id=True)]
    assert isinstance(refused, MemberIdRequired)
    for _ in range(20):
        d.advance(1)
        for member_id in ids:
            d.heartbeat(member_id, 1)
    assert d.group.state is GroupState.STABLE


def test_a_pending_member_that_leaves_does_not_disturb_a_stable_group(d: Driver) -> None:
    ids = d.stable(None, None)
    refused = d.responses[d.join(requires_member_id=True)]
    assert isinstance(refused, MemberIdRequired)
    assert d.leave(refused.member_id) == [None]
    d.heartbeat(ids[0], 1)


def test_a_rebalance_does_not_wait_for_a_pending_member_that_the_group_has_no_room_for() -> None:
    d = Driver(max_members=2)
    (first,) = d.stable(None)
    refused = d.responses[d.join(requires_member_id=True)]
    assert isinstance(refused, MemberIdRequired)
    second = d.join()
    again = d.join(first)
    assert again not in d.responses  # it waits for the member that has only an id
    third = d.join(refused.member_id)
    assert isinstance(d.responses[third], GroupFull)
    assert d.joined(again).generation == d.joined(second).generation == 2


def test_common_protocols_follow_changes_of_members(d: Driver) -> None:
    data = subscription("a")
    first, second = d.stable(None, None, protocols=(("x", data), ("y", data)))
    d.join(first, protocols=(("y", data),))
    assert isinstance(d.responses[d.join(protocols=(("x", data),))], InconsistentGroupProtocol)
    late = d.join(second, protocols=(("y", data), ("z", data)))
    assert d.joined(late).protocol == "y"
    d.leave(first, second)
    d.advance(1)
    alone = d.join(protocols=(("x", data),))
    d.advance(1)
    assert d.joined(alone).protocol == "x"
