"""The state of one group: single transitions, then a model of clients against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparrow.base.errors import StaleMember, UnknownMember
from sparrow.broker.groups.native.group import (
    Assign,
    Effect,
    Fence,
    FenceReason,
    GroupState,
    NativeGroup,
    Revoke,
)
from tests.repetitions import repetitions

if TYPE_CHECKING:
    from sparrow.records.topic_partition import TopicPartition

SESSION_S = 30.0
REBALANCE_S = 60.0


def join(
    group: NativeGroup, member_id: str, *topics: str, now: float = 0.0, attached: bool = True
) -> list[Effect]:
    return group.join(
        member_id,
        topics,
        now,
        session_timeout_s=SESSION_S,
        rebalance_timeout_s=REBALANCE_S,
        attached=attached,
    )


def partitions(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple((topic, number) for number in numbers)


def two_members() -> tuple[NativeGroup, Revoke]:
    """Return a group in which m1 held four partitions, and m2 has joined and waits for two of
    them.
    """
    group = NativeGroup("g", {"a": 4})
    join(group, "m1", "a")
    (revoke,) = join(group, "m2", "a")
    assert isinstance(revoke, Revoke)
    return group, revoke


def test_an_empty_group_is_empty() -> None:
    assert NativeGroup("g", {}).state is GroupState.EMPTY


def test_the_first_member_gets_everything_at_once() -> None:
    group = NativeGroup("g", {"a": 2, "b": 1})
    assert join(group, "m1", "a", "b") == [Assign("m1", 1, (("a", 0), ("a", 1), ("b", 0)))]
    assert group.state is GroupState.STABLE


def test_second_member_waits_for_partitions_that_the_first_releases() -> None:
    group, revoke = two_members()
    assert revoke.member_id == "m1"
    assert len(revoke.partitions) == 2
    assert group.state is GroupState.RECONCILING
    assert group.members["m2"].held() == ()


def test_each_confirmed_partition_goes_on_by_itself() -> None:
    group, revoke = two_members()
    for partition in revoke.partitions:
        effects = group.confirm_revoked("m1", revoke.epoch, [partition])
        assert effects == [Assign("m2", revoke.epoch, (partition,))]
    assert group.state is GroupState.STABLE


def test_repeated_or_unrequested_confirmation_changes_nothing() -> None:
    group, revoke = two_members()
    kept = group.members["m1"].held()
    group.confirm_revoked("m1", revoke.epoch, revoke.partitions)
    assert group.confirm_revoked("m1", revoke.epoch, [*revoke.partitions, *kept, ("x", 9)]) == []
    assert group.members["m1"].held() == kept


def test_a_confirmation_of_an_earlier_revocation_does_not_count_for_a_later_one() -> None:
    counts = {"a": 2}
    group = NativeGroup("g", counts)
    join(group, "m1", "a")
    (first,) = join(group, "m2", "a")
    assert isinstance(first, Revoke)
    group.confirm_revoked("m1", first.epoch, first.partitions)
    group.leave("m2", group.epoch, 0.0)  # m1 has both again
    (second,) = join(group, "m2", "a")
    assert isinstance(second, Revoke)
    assert second.partitions == first.partitions
    assert group.confirm_revoked("m1", first.epoch, first.partitions) == []
    assert group.confirm_revoked("m1", second.epoch, second.partitions) != []


def test_a_member_that_leaves_frees_its_partitions_at_once() -> None:
    group, revoke = two_members()
    effects = group.leave("m1", revoke.epoch, 1.0)
    assert effects == [Assign("m2", revoke.epoch + 1, partitions("a", 0, 1, 2, 3))]
    assert group.leave("m2", group.epoch, 1.0) == []
    assert group.state is GroupState.EMPTY


def test_member_that_does_not_release_in_time_is_fenced_and_loses_its_partitions() -> None:
    group, _ = two_members()
    assert group.expire(REBALANCE_S - 0.1) == []
    fence, assigned = group.expire(REBALANCE_S)
    assert fence == Fence("m1", FenceReason.NOT_RELEASED)
    assert isinstance(assigned, Assign)
    assert assigned.partitions == partitions("a", 0, 1, 2, 3)
    with pytest.raises(UnknownMember, match="join again"):
        group.heartbeat("m1", group.epoch, 61.0)


def test_an_attached_member_needs_no_heartbeat() -> None:
    group = NativeGroup("g", {"a": 1})
    join(group, "m1", "a")
    assert group.expire(1e9) == []


def test_a_detached_member_keeps_its_partitions_until_its_session_ends() -> None:
    group = NativeGroup("g", {"a": 2})
    join(group, "m1", "a")
    group.detach("m1", group.epoch, 10.0)
    assert group.expire(10.0 + SESSION_S - 0.1) == []
    assert group.members["m1"].held() == partitions("a", 0, 1)
    assert group.expire(10.0 + SESSION_S) == [Fence("m1", FenceReason.SESSION_OVER)]


def test_a_member_without_a_connection_lives_by_heartbeats() -> None:
    group = NativeGroup("g", {"a": 1})
    join(group, "m1", "a", attached=False)
    for now in (20.0, 40.0, 60.0):
        assert group.heartbeat("m1", group.epoch, now) == group.epoch
        assert group.expire(now + 1) == []
    assert group.expire(60.0 + SESSION_S) == [Fence("m1", FenceReason.SESSION_OVER)]


def test_returning_member_keeps_its_partitions() -> None:
    group = NativeGroup("g", {"a": 2})
    join(group, "m1", "a")
    group.detach("m1", group.epoch, 1.0)
    assert join(group, "m1", "a", now=2.0) == [Assign("m1", group.epoch, partitions("a", 0, 1))]
    assert group.expire(1e9) == []


def test_returning_member_is_asked_again_to_release_partitions() -> None:
    group, revoke = two_members()
    group.detach("m1", revoke.epoch, 1.0)
    kept = group.members["m1"].held()
    effects = join(group, "m1", "a", now=2.0)
    assert effects == [Assign("m1", group.epoch, kept), Revoke("m1", group.epoch, revoke.partitions)]
    assert group.expire(REBALANCE_S)[0] == Fence("m1", FenceReason.NOT_RELEASED)


def test_replaced_member_is_refused() -> None:
    group = NativeGroup("g", {"a": 1})
    join(group, "m1", "a")
    old = group.epoch
    join(group, "m1", "a")
    for call in (
        lambda: group.heartbeat("m1", old, 0.0),
        lambda: group.leave("m1", old, 0.0),
        lambda: group.check_commit("m1", old, [("a", 0)]),
        lambda: group.confirm_revoked("m1", old, [("a", 0)]),
        lambda: group.update_subscription("m1", old, ["b"], 0.0),
    ):
        with pytest.raises(StaleMember, match="another connection"):
            call()
    group.detach("m1", old, 0.0)
    assert group.expire(1e9) == []


def test_an_epoch_of_the_future_is_refused() -> None:
    group = NativeGroup("g", {"a": 1})
    join(group, "m1", "a")
    with pytest.raises(StaleMember):
        group.heartbeat("m1", group.epoch + 1, 0.0)


def test_a_commit_needs_the_partition_in_hand() -> None:
    group, revoke = two_members()
    group.check_commit("m1", revoke.epoch, partitions("a", 0, 1, 2, 3))  # while releasing, too
    with pytest.raises(StaleMember, match="did not hold"):
        group.check_commit("m2", revoke.epoch, revoke.partitions)
    group.confirm_revoked("m1", revoke.epoch, revoke.partitions)
    group.check_commit("m2", revoke.epoch, revoke.partitions)
    with pytest.raises(StaleMember):
        group.check_commit("m1", revoke.epoch, revoke.partitions)


def test_a_change_that_does_not_touch_a_partition_does_not_disturb_its_commits() -> None:
    group = NativeGroup("g", {"a": 2, "b": 2})
    join(group, "m1", "a")
    epoch = group.epoch
    join(group, "m2", "b")
    assert group.epoch > epoch
    group.check_commit("m1", epoch, [("a", 0)])


def test_a_commit_from_before_a_partition_came_back_is_refused() -> None:
    group, revoke = two_members()
    old = revoke.epoch
    group.confirm_revoked("m1", revoke.epoch, revoke.partitions)
    group.leave("m2", group.epoch, 0.0)
    with pytest.raises(StaleMember):
        group.check_commit("m1", old, revoke.partitions)
    group.check_commit("m1", group.epoch, revoke.partitions)


def test_a_target_that_flips_back_waits_for_the_confirmation() -> None:
    group, revoke = two_members()
    assert group.leave("m2", group.epoch, 1.0) == []
    assert group.state is GroupState.RECONCILING
    effects = group.confirm_revoked("m1", revoke.epoch, revoke.partitions)
    assert effects == [Assign("m1", group.epoch, revoke.partitions)]
    assert group.state is GroupState.STABLE


def test_a_topic_that_grows_is_shared_out() -> None:
    counts = {"a": 1}
    group = NativeGroup("g", counts)
    join(group, "m1", "a")
    counts["a"] = 3
    assert group.topics_changed(["a"], 0.0) == [Assign("m1", 2, partitions("a", 1, 2))]


def test_a_deleted_topic_is_taken_without_a_word_and_comes_back_as_a_new_one() -> None:
    counts = {"a": 2}
    group = NativeGroup("g", counts)
    join(group, "m1", "a")
    del counts["a"]
    assert group.topics_changed(["a"], 0.0) == []
    assert group.members["m1"].held() == ()
    assert group.state is GroupState.STABLE
    counts["a"] = 1
    assert group.topics_changed(["a"], 0.0) == [Assign("m1", group.epoch, partitions("a", 0))]


def test_a_deleted_topic_is_not_released_by_anybody() -> None:
    counts = {"a": 1, "b": 1}
    group = NativeGroup("g", counts)
    join(group, "m1", "a")
    group.update_subscription("m1", group.epoch, ["b"], 0.0)
    assert group.members["m1"].releasing() == partitions("a", 0)
    del counts["a"]
    group.topics_changed(["a"], 0.0)
    assert group.members["m1"].releasing() == ()
    assert group.expire(1e9) == []


def test_topics_that_nobody_wants_change_nothing() -> None:
    counts = {"a": 1}
    group = NativeGroup("g", counts)
    join(group, "m1", "a")
    counts["b"] = 4
    assert group.topics_changed(["b"], 0.0) == []
    assert group.epoch == 1


def test_a_dropped_topic_is_revoked_and_an_added_one_assigned() -> None:
    group = NativeGroup("g", {"a": 1, "b": 1})
    join(group, "m1", "a")
    effects = group.update_subscription("m1", group.epoch, ["b"], 0.0)
    assert effects == [Revoke("m1", 2, partitions("a", 0)), Assign("m1", 2, partitions("b", 0))]
    assert group.update_subscription("m1", group.epoch, ["b"], 0.0) == []


# ── a model: clients that know only the responses ──────────────────────────────────────────────

MEMBERS = st.sampled_from(["m1", "m2", "m3", "m4"])
TOPICS = st.frozensets(st.sampled_from("abc"), min_size=1)


class GroupMachine(RuleBasedStateMachine):
    """Clients hold the partitions that they were assigned until they confirm, leave or are
    fenced.
    """

    @initialize(counts=st.dictionaries(st.sampled_from("abc"), st.integers(1, 5), min_size=1))
    def start(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.group = NativeGroup("g", self.counts, first_epoch=100)
        self.now = 0.0
        self.told_epoch: dict[str, int] = {}
        self.holding: dict[str, set[TopicPartition]] = {}
        self.to_release: dict[str, dict[TopicPartition, int]] = {}
        self.last_epoch = 100

    def heed(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Fence):
                self.forget(effect.member_id)
                continue
            assert effect.partitions
            assert effect.epoch >= self.told_epoch[effect.member_id]
            self.told_epoch[effect.member_id] = effect.epoch
            if isinstance(effect, Assign):
                others = set().union(*(h for m, h in self.holding.items() if m != effect.member_id))
                assert others.isdisjoint(effect.partitions)
                self.holding[effect.member_id].update(effect.partitions)
            else:
                assert self.holding[effect.member_id] >= set(effect.partitions)
                self.to_release[effect.member_id].update(dict.fromkeys(effect.partitions, effect.epoch))

    def forget(self, member_id: str) -> None:
        for known in (self.told_epoch, self.holding, self.to_release):
            known.pop(member_id)

    def forget_missing_partitions(self) -> None:
        for known in (*self.holding.values(), *self.to_release.values()):
            for partition in [p for p in known if p[1] >= self.counts.get(p[0], 0)]:
                if isinstance(known, set):
                    known.discard(partition)
                else:
                    del known[partition]

    @rule(member_id=MEMBERS, topics=TOPICS, attached=st.booleans())
    def join(self, member_id: str, topics: frozenset[str], attached: bool) -> None:
        effects = join(self.group, member_id, *topics, now=self.now, attached=attached)
        self.told_epoch.setdefault(member_id, 0)
        self.holding.setdefault(member_id, set())
        self.to_release.setdefault(member_id, {})
        self.told_epoch[member_id] = self.group.members[member_id].joined_epoch
        self.heed(effects)

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def release_some(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.holding)))
        asked = self.to_release[member_id]
        done = data.draw(st.sets(st.sampled_from(sorted(asked)))) if asked else set()
        epoch = max((asked[p] for p in done), default=self.told_epoch[member_id])
        for partition in done:
            del asked[partition]
            self.holding[member_id].discard(partition)
        self.heed(self.group.confirm_revoked(member_id, epoch, done))

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.holding)))
        effects = self.group.leave(member_id, self.told_epoch[member_id], self.now)
        self.forget(member_id)
        self.heed(effects)

    @precondition(lambda self: self.holding)
    @rule(data=st.data(), topics=TOPICS)
    def update(self, data: st.DataObject, topics: frozenset[str]) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.holding)))
        self.heed(self.group.update_subscription(member_id, self.told_epoch[member_id], topics, self.now))

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.holding)))
        self.group.detach(member_id, self.told_epoch[member_id], self.now)

    @precondition(lambda self: self.holding)
    @rule()
    def live_members_are_known(self) -> None:
        for member_id, epoch in self.told_epoch.items():
            self.group.heartbeat(member_id, epoch, self.now)

    @rule(seconds=st.sampled_from([1.0, 20.0, 31.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.heed(self.group.expire(self.now))

    @rule(topic=st.sampled_from("abc"), count=st.integers(0, 6))
    def topic_changes(self, topic: str, count: int) -> None:
        if count:
            self.counts[topic] = max(count, self.counts.get(topic, 0))
        else:
            self.counts.pop(topic, None)
        effects = self.group.topics_changed([topic], self.now)
        self.forget_missing_partitions()
        self.heed(effects)

    @rule()
    def everybody_releases_and_then_all_is_settled(self) -> None:
        for _ in range(100):
            busy = [member_id for member_id, asked in self.to_release.items() if asked]
            if not busy:
                break
            for member_id in busy:
                asked, self.to_release[member_id] = self.to_release[member_id], {}
                self.holding[member_id] -= asked.keys()
                self.heed(self.group.confirm_revoked(member_id, max(asked.values()), asked))
        assert self.group.state is (GroupState.STABLE if self.holding else GroupState.EMPTY)
        self.check_complete_and_balanced()

    def check_complete_and_balanced(self) -> None:
        members = self.group.members.values()
        wanted = {t for member in members for t in member.topics}
        expected = sorted((t, n) for t in wanted for n in range(self.counts.get(t, 0)))
        assert sorted(p for held in self.holding.values() for p in held) == expected
        for one in members:
            for other in members:
                if one.topics == other.topics:
                    assert abs(len(self.holding[one.member_id]) - len(self.holding[other.member_id])) <= 1

    @invariant()
    def the_group_knows_what_the_clients_hold(self) -> None:
        if not hasattr(self, "group"):
            return
        assert self.group.members.keys() == self.holding.keys()
        for member_id, member in self.group.members.items():
            exists = {p for p in self.holding[member_id] if p[1] < self.counts.get(p[0], 0)}
            assert exists == {p for p in member.holds if p[1] < self.counts.get(p[0], 0)}
            self.group.check_commit(member_id, self.told_epoch[member_id], exists)

    @invariant()
    def nothing_is_held_twice_and_epochs_only_grow(self) -> None:
        if not hasattr(self, "group"):
            return
        held = [p for partitions in self.holding.values() for p in partitions]
        assert len(held) == len(set(held))
        assert self.group.epoch >= self.last_epoch
        self.last_epoch = self.group.epoch


TestGroupMachine = pytest.mark.slow(GroupMachine.TestCase)
TestGroupMachine.settings = settings(max_examples=repetitions(60), stateful_step_count=40, deadline=None)
