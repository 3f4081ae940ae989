"""Any number of well-behaved consumers come, go, stop and come back, in any order: none is
forgotten, and they all reach one generation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparrow.base.errors import FencedInstance, MemberIdRequired, RebalanceInProgress, SparrowError
from sparrow.broker.groups.classic.protocol import JoinResponse, SyncResponse
from sparrow.broker.groups.description import GroupState
from tests.groups.classic_driver import Driver, subscription
from tests.repetitions import repetitions

SESSION_S = 10.0


@dataclass
class Consumer:
    """A consumer that reacts to responses as clients do. `is_up` is False if its process is
    gone.
    """

    instance_id: str | None
    needs_id: bool
    topics: str
    member_id: str = ""
    generation: int = -1
    ticket: int | None = None
    assignment: bytes | None = None
    is_up: bool = True
    is_fenced: bool = False

    def join(self, d: Driver) -> None:
        self.assignment = None
        self.ticket = d.join(
            self.member_id,
            instance_id=self.instance_id,
            requires_member_id=self.needs_id,
            protocols=(("range", subscription(*self.topics)),),
            session_timeout_ms=int(SESSION_S * 1000),
        )

    def step(self, d: Driver) -> None:
        """Handle a response, if one has come, and continue."""
        if self.ticket not in d.responses:
            return
        response = d.responses[self.ticket]
        self.ticket = None
        if isinstance(response, JoinResponse):
            self.member_id, self.generation = response.member_id, response.generation
            given = {m.member_id: m.member_id.encode() for m in response.members}
            self.ticket = d.sync(
                self.member_id, self.generation, instance_id=self.instance_id, assignments=given
            )
        elif isinstance(response, SyncResponse):
            self.assignment = response.assignment
        elif isinstance(response, MemberIdRequired):
            self.member_id = response.member_id
            self.join(d)
        elif isinstance(response, FencedInstance):
            self.is_fenced, self.is_up = True, False
        else:
            assert isinstance(response, RebalanceInProgress), f"a living consumer heard {response!r}"
            self.join(d)

    def heartbeat(self, d: Driver) -> None:
        if self.ticket is None:
            try:
                d.heartbeat(self.member_id, self.generation, self.instance_id)
            except RebalanceInProgress:
                self.join(d)
            except FencedInstance:
                self.is_fenced, self.is_up = True, False


class ClassicGroupMachine(RuleBasedStateMachine):
    """A group and its consumers. Static instance ids are unique among those that are up, as
    operators must ensure.
    """

    def __init__(self) -> None:
        super().__init__()
        self.d = Driver(initial_delay_ms=100)
        self.consumers: list[Consumer] = []
        self.last_generation = 0

    @property
    def up(self) -> list[Consumer]:
        return [c for c in self.consumers if c.is_up]

    @precondition(lambda self: len(self.up) < 6)
    @rule(
        instance=st.sampled_from([None, None, "i", "j"]),
        needs_id=st.booleans(),
        topics=st.sampled_from(["a", "ab"]),
    )
    def start(self, instance: str | None, needs_id: bool, topics: str) -> None:
        if instance is not None and any(c.instance_id == instance for c in self.up):
            return
        consumer = Consumer(instance, needs_id, topics)
        self.consumers.append(consumer)
        consumer.join(self.d)

    @precondition(lambda self: self.up)
    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.up)).step(self.d)

    @precondition(lambda self: self.up)
    @rule(data=st.data())
    def change_topics(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.up))
        if consumer.ticket is None:
            consumer.topics = "c" + consumer.topics[-1:]
            consumer.join(self.d)

    @precondition(lambda self: self.up)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.up))
        consumer.is_up = False
        if consumer.instance_id is None and consumer.member_id:
            self.d.leave(consumer.member_id)

    @precondition(lambda self: self.up)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.up)).is_up = False

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0]))
    def pass_time(self, seconds: float) -> None:
        for consumer in self.up:
            consumer.step(self.d)
            consumer.heartbeat(self.d)
        self.d.advance(seconds)

    @invariant()
    def everything_is_consistent(self) -> None:
        group = self.d.group
        assert group.generation >= self.last_generation
        self.last_generation = group.generation
        assert not group.members or group.leader in group.members
        assert bool(group.members) or group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE)
        waiting = {t for m in group.members.values() for t in (m.join_ticket, m.sync_ticket) if t is not None}
        mine = {c.ticket for c in self.up if c.ticket is not None and c.ticket not in self.d.responses}
        assert mine <= waiting, "a request was forgotten"

    @invariant()
    def one_generation_has_one_assignment(self) -> None:
        if self.d.group.state is GroupState.STABLE:
            for consumer in self.up:
                is_current = consumer.generation == self.d.group.generation and consumer.ticket is None
                if is_current and consumer.member_id in self.d.group.members:
                    assert consumer.assignment == self._own(consumer)

    @staticmethod
    def _own(consumer: Consumer) -> Any:
        """Return the partitions of a static member that came back: the assignment of its former
        id.
        """
        return consumer.assignment if consumer.instance_id else consumer.member_id.encode()

    def teardown(self) -> None:
        for _ in range(400):
            for consumer in self.up:
                consumer.step(self.d)
                consumer.heartbeat(self.d)
            self.d.advance(1)
        group = self.d.group
        assert {c.member_id for c in self.up} == set(group.members)
        assert group.state is (GroupState.STABLE if self.up else GroupState.EMPTY)
        assert {c.generation for c in self.up} <= {group.generation}
        assert not any(isinstance(c.assignment, SparrowError) for c in self.up)


ClassicGroupMachine.TestCase.settings = settings(
    max_examples=repetitions(40), stateful_step_count=30, deadline=None
)
test_consumers_come_and_go = ClassicGroupMachine.TestCase
