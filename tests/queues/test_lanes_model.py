"""Each subscriber of an "all of" queue sees what it would see of a queue of its own, whatever the others do."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparrow.broker.queues.facts import Facts
from sparrow.broker.queues.lane import Lane
from sparrow.broker.queues.policy import QueuePolicy
from sparrow.broker.queues.state import QueueState
from sparrow.broker.queues.values import BELOW_MARK, LEASED, STATE_MASK

SUBSCRIBERS = ("a", "b", "c")
LEASE_MS = 1000


class LanesMachine(RuleBasedStateMachine):
    """One queue of three subscribers, and three queues of one: everything happens to both."""

    @initialize(order=st.sampled_from(["none", "key"]), limit=st.sampled_from([0, 2]))
    def begin(self, order, limit) -> None:
        self.now_ms = self.wall_ms = 1000
        policy = QueuePolicy(order=order, delivery_limit=limit, backoff_ms=300, lease_ms=LEASE_MS)
        self.all_of = self.make(policy, SUBSCRIBERS)
        self.own = {name: self.make(policy, (name,)) for name in SUBSCRIBERS}
        self.end = 0

    @staticmethod
    def make(policy: QueuePolicy, subscribers: tuple[str, ...]) -> QueueState:
        state = QueueState(
            "q",
            QueuePolicy().changed({**policy.settings(), "subscribers": subscribers}),
            has_dead_letters=True,
            jitter=lambda: 0.0,
        )
        state.add_source(0, dict.fromkeys(subscribers, 0))
        return state

    def states(self) -> list[QueueState]:
        return [self.all_of, *self.own.values()]

    def lanes(self, name: str) -> tuple[Lane, Lane]:
        return self.all_of.lanes[name], self.own[name].lanes[name]

    @rule(
        records=st.lists(
            st.tuples(
                st.integers(0, 2),
                st.sampled_from([4, 4, 9]),
                st.sampled_from([0, 0, 700]),
                st.sampled_from([0, 0, 900]),
                st.sampled_from(["", "", "q", "q/a", "other"]),
            ),
            min_size=1,
            max_size=5,
        )
    )
    def found(self, records) -> None:
        facts = [
            Facts(
                self.end + index,
                self.wall_ms,
                key,
                self.wall_ms + delay if delay else 0,
                level,
                self.wall_ms + ttl if ttl else 0,
                0,
                (),
                only_queue,
            )
            for index, (key, level, delay, ttl, only_queue) in enumerate(records)
        ]
        for state in self.states():
            state.found(0, self.end, self.end + len(facts), facts, now_ms=self.now_ms, wall_ms=self.wall_ms)
        self.end += len(facts)

    @rule(name=st.sampled_from(SUBSCRIBERS), limit=st.integers(1, 4))
    def lease(self, name, limit) -> None:
        both = [
            lane.grant("c", limit, now_ms=self.now_ms, wall_ms=self.wall_ms, lease_ms=LEASE_MS)
            for lane in self.lanes(name)
        ]
        assert [grant[:5] for grant in both[0]] == [grant[:5] for grant in both[1]]

    @rule(
        name=st.sampled_from(SUBSCRIBERS),
        data=st.data(),
        verb=st.sampled_from(["ack", "nack", "reject", "extend", "return"]),
    )
    def settle(self, name, data, verb) -> None:
        held = [n for n in range(self.end) if self.lanes(name)[0].value_at(0, n) & STATE_MASK == LEASED]
        if not held:
            return
        offset = data.draw(st.sampled_from(held))
        for lane in self.lanes(name):
            runs = lane.leased_runs("c", 0, offset, offset + 1)
            if verb == "ack":
                lane.acknowledge(0, runs)
            elif verb == "nack":
                lane.back(0, runs, self.now_ms, -1, "no luck")
            elif verb == "reject":
                lane.reject(0, runs, "bad")
            elif verb == "extend":
                lane.extend(0, runs, self.now_ms + 1500)
            else:
                lane.take_back(0, runs)

    @rule(by=st.sampled_from([200, 1100]))
    def time_passes(self, by) -> None:
        self.now_ms += by
        self.wall_ms += by
        for state in self.states():
            state.tick(self.now_ms, self.wall_ms)

    @rule()
    def dead_letters_are_written(self) -> None:
        for state in self.states():
            for name, doomed in state.take_doomed():
                state.lanes[name].moved(*doomed)

    @rule()
    def purge(self) -> None:
        assert self.all_of.purge([self.end]) == max(state.purge([self.end]) for state in self.own.values())

    @rule(data=st.data())
    def retention(self, data) -> None:
        log_start = data.draw(st.integers(0, self.end))
        for state in self.states():
            state.lost(0, log_start)

    @invariant()
    def both_agree(self) -> None:
        for name in SUBSCRIBERS if hasattr(self, "own") else ():
            lane, own = self.lanes(name)
            for offset in range(self.end):
                assert lane.value_at(0, offset) & BELOW_MARK == own.value_at(0, offset) & BELOW_MARK
            assert (lane.starts, lane.counts[1:6], lane.holders) == (own.starts, own.counts[1:6], own.holders)
            assert lane.tally == own.tally


TestLanesModel = LanesMachine.TestCase
TestLanesModel.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
