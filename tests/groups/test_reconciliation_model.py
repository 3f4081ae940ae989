"""One model for the two machines that move partitions between members one by one: the native group,
which tells its members, and the consumer group of KIP-848, whose members ask.

Members join, leave, subscribe, and give up partitions late, in any order, while topics grow. At all
times a partition belongs to at most one member. When all members have caught up, every partition of
a wanted topic has exactly one member, which wants it, and equal subscriptions have equal shares.

The two stay two machines. Reconciliation of the native group with the consumer group's frozen
members (`reconciliation.reconcile`, called for every member whose target changed) gives the same
results, but each change makes a new member with new sets, and takes every member to the new epoch;
the native group touches only the partitions that move.
"""

from __future__ import annotations

from typing import Protocol

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sparrow.broker.groups.consumer.member import LEAVE_EPOCH, NOTHING, Assignment, Heartbeat
from sparrow.broker.groups.description import GroupState
from sparrow.broker.groups.native.group import Assign, Effect, NativeGroup, Revoke
from tests.consumer_groups.machine import Machine
from tests.repetitions import repetitions

TOPICS = "abc"
MEMBERS = st.sampled_from([f"m{number}" for number in range(5)])
SUBSCRIPTIONS = st.frozensets(st.sampled_from(TOPICS), min_size=1)
MAX_STEPS = 50
"""Steps of all members after which a group must be stable."""

Partitions = set[tuple[str, int]]


class Group(Protocol):
    """A group with its members, which keep their assigned partitions until they have released
    them.
    """

    holding: dict[str, Partitions]

    @property
    def state(self) -> GroupState: ...

    def join(self, member_id: str, topics: frozenset[str]) -> None: ...

    def subscribe(self, member_id: str, topics: frozenset[str]) -> None: ...

    def leave(self, member_id: str) -> None: ...

    def step(self, member_id: str) -> None:
        """Let a member follow its assignment: release partitions, take others."""
        ...

    def grow(self, topic: str, partitions: int) -> None: ...


class ToldGroup:
    """A native group."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = dict(counts)
        self.holding: dict[str, Partitions] = {}
        self._group = NativeGroup("g", self.counts)
        self._asked: dict[str, Partitions] = {}
        """Partitions that each member was asked to give up and still has."""

    @property
    def state(self) -> GroupState:
        return self._group.state

    def _epoch(self, member_id: str) -> int:
        return self._group.members[member_id].epoch

    def _heed(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Assign):
                self.holding[effect.member_id].update(effect.partitions)
            else:
                assert isinstance(effect, Revoke)
                self._asked[effect.member_id].update(effect.partitions)

    def join(self, member_id: str, topics: frozenset[str]) -> None:
        self.holding[member_id], self._asked[member_id] = set(), set()
        self._heed(self._group.join(member_id, topics, 0.0, session_timeout_s=60, rebalance_timeout_s=60))

    def subscribe(self, member_id: str, topics: frozenset[str]) -> None:
        self._heed(self._group.update_subscription(member_id, self._epoch(member_id), topics, 0.0))

    def leave(self, member_id: str) -> None:
        del self.holding[member_id], self._asked[member_id]
        self._heed(self._group.leave(member_id, self._epoch(member_id), 0.0))

    def step(self, member_id: str) -> None:
        given_up, self._asked[member_id] = self._asked[member_id], set()
        self.holding[member_id] -= given_up
        self._heed(self._group.confirm_revoked(member_id, self._epoch(member_id), given_up))

    def grow(self, topic: str, partitions: int) -> None:
        self.counts[topic] = partitions
        self._heed(self._group.topics_changed([topic], 0.0))


class AskingGroup:
    """A consumer group of KIP-848."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.holding: dict[str, Partitions] = {}
        self._machine = Machine(**counts)
        self._topics: dict[str, frozenset[str]] = {}

    @property
    def state(self) -> GroupState:
        return self._machine.group.state

    def _named(self, assignment: Assignment) -> Partitions:
        topics = {topic.topic_id: topic.name for topic in self._machine.catalog}
        return {(topics[topic_id], number) for topic_id, number in assignment}

    def _owned(self, member_id: str) -> Assignment:
        found = ((self._machine.catalog.find(name), number) for name, number in self.holding[member_id])
        return frozenset((topic.topic_id, number) for topic, number in found if topic is not None)

    def _beat(self, member_id: str, epoch: int, owned: Assignment) -> None:
        response = self._machine.beat(
            Heartbeat(
                member_id,
                epoch,
                rebalance_timeout_ms=60_000,
                topics=self._topics[member_id],
                owned=owned,
            )
        )
        if response.assignment is not None:
            told = self._named(response.assignment)
            given_up = self.holding[member_id] - told
            if given_up:  # it releases first, and reports that with its next heartbeat
                self.holding[member_id] -= given_up
            else:
                self.holding[member_id] = told

    def join(self, member_id: str, topics: frozenset[str]) -> None:
        self.holding[member_id], self._topics[member_id] = set(), topics
        self._beat(member_id, 0, NOTHING)

    def subscribe(self, member_id: str, topics: frozenset[str]) -> None:
        self._topics[member_id] = topics
        self.step(member_id)

    def leave(self, member_id: str) -> None:
        del self.holding[member_id], self._topics[member_id]
        self._machine.beat(Heartbeat(member_id, LEAVE_EPOCH))

    def step(self, member_id: str) -> None:
        self._beat(member_id, self._machine.group.members[member_id].epoch, self._owned(member_id))

    def grow(self, topic: str, partitions: int) -> None:
        self._machine.grow_topic(topic, partitions)


class ReconciliationMachine(RuleBasedStateMachine):
    """Members of a group in any order of events."""

    make: type[ToldGroup | AskingGroup]
    group: Group

    @initialize(counts=st.fixed_dictionaries({topic: st.integers(1, 5) for topic in TOPICS}))
    def start(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.group = self.make(counts)
        self.topics: dict[str, frozenset[str]] = {}

    @rule(member_id=MEMBERS, topics=SUBSCRIPTIONS)
    def join_or_subscribe(self, member_id: str, topics: frozenset[str]) -> None:
        is_member = member_id in self.topics
        self.topics[member_id] = topics
        (self.group.subscribe if is_member else self.group.join)(member_id, topics)

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.topics)))
        del self.topics[member_id]
        self.group.leave(member_id)

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        self.group.step(data.draw(st.sampled_from(sorted(self.topics))))

    @rule(topic=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def grow(self, topic: str, more: int) -> None:
        self.counts[topic] += more
        self.group.grow(topic, self.counts[topic])

    @rule()
    def all_catch_up(self) -> None:
        for _ in range(MAX_STEPS):
            for member_id in self.topics:
                self.group.step(member_id)
        assert self.group.state is (GroupState.STABLE if self.topics else GroupState.EMPTY)
        wanted = set().union(*self.topics.values())
        held = sorted(partition for each in self.group.holding.values() for partition in each)
        assert held == [(topic, number) for topic in sorted(wanted) for number in range(self.counts[topic])]
        for member_id, topics in self.topics.items():
            assert {topic for topic, _ in self.group.holding[member_id]} <= topics
        if len(set(self.topics.values())) == 1:
            shares = [len(each) for each in self.group.holding.values()]
            assert max(shares) - min(shares) <= 1

    @invariant()
    def no_partition_has_two_members(self) -> None:
        if hasattr(self, "group"):
            held = [partition for each in self.group.holding.values() for partition in each]
            assert len(held) == len(set(held))


@pytest.mark.slow
@pytest.mark.parametrize("make", [ToldGroup, AskingGroup])
def test_partitions_move_one_by_one_and_all_are_held_in_the_end(make: type) -> None:
    class Model(ReconciliationMachine):
        pass

    Model.make = make
    run_state_machine_as_test(
        Model, settings=settings(max_examples=repetitions(30), stateful_step_count=25, deadline=None)
    )
