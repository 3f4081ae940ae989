"""Each subscriber of an "all of" queue sees what it would see of a queue of its own, whatever the
others do.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.repetitions import repetitions

from sparrow.base.queue_policy import QueuePolicy
from sparrow.broker.queues.rules.delivery_info import DeliveryInfo
from sparrow.broker.queues.rules.record_state import BELOW_LEASE, LEASED, STATE_MASK
from sparrow.broker.queues.rules.state import QueueState
from sparrow.broker.queues.rules.subscriber import SubscriberState

SUBSCRIBERS = ("a", "b", "c")
LEASE_MS = 1000


class SubscribersMachine(RuleBasedStateMachine):
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

    def subscribers(self, name: str) -> tuple[SubscriberState, SubscriberState]:
        return self.all_of.subscribers[name], self.own[name].subscribers[name]

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
        infos = [
            DeliveryInfo(
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
            state.found(0, self.end, self.end + len(infos), infos, now_ms=self.now_ms, wall_ms=self.wall_ms)
        self.end += len(infos)

    @rule(name=st.sampled_from(SUBSCRIBERS), limit=st.integers(1, 4))
    def lease(self, name, limit) -> None:
        both = [
            subscriber.grant("c", limit, now_ms=self.now_ms, wall_ms=self.wall_ms, lease_ms=LEASE_MS)
            for subscriber in self.subscribers(name)
        ]
        assert [grant[:5] for grant in both[0]] == [grant[:5] for grant in both[1]]

    @rule(
        name=st.sampled_from(SUBSCRIBERS),
        data=st.data(),
        verb=st.sampled_from(["ack", "nack", "reject", "extend", "return"]),
    )
    def settle(self, name, data, verb) -> None:
        held = [n for n in range(self.end) if self.subscribers(name)[0].value_at(0, n) & STATE_MASK == LEASED]
        if not held:
            return
        offset = data.draw(st.sampled_from(held))
        for subscriber in self.subscribers(name):
            runs = subscriber.leased_runs("c", 0, offset, offset + 1)
            if verb == "ack":
                subscriber.ack(0, runs)
            elif verb == "nack":
                subscriber.nack(0, runs, self.now_ms, -1, "no luck")
            elif verb == "reject":
                subscriber.reject(0, runs, "bad")
            elif verb == "extend":
                subscriber.extend(0, runs, self.now_ms + 1500)
            else:
                subscriber.release(0, runs)

    @rule(by=st.sampled_from([200, 1100]))
    def time_passes(self, by) -> None:
        self.now_ms += by
        self.wall_ms += by
        for state in self.states():
            state.tick(self.now_ms, self.wall_ms)

    @rule()
    def dead_letters_are_written(self) -> None:
        for state in self.states():
            for name, dead_records in state.take_dead_records():
                state.subscribers[name].finish_move(*dead_records)

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
            subscriber, own = self.subscribers(name)
            for offset in range(self.end):
                assert subscriber.value_at(0, offset) & BELOW_LEASE == own.value_at(0, offset) & BELOW_LEASE
            assert (subscriber.starts, subscriber.counts[1:6], subscriber.leases.leased_counts) == (
                own.starts,
                own.counts[1:6],
                own.leases.leased_counts,
            )
            assert subscriber.tally == own.tally


TestSubscribersModel = SubscribersMachine.TestCase
TestSubscribersModel.settings = settings(max_examples=repetitions(30), stateful_step_count=30, deadline=None)
