"""Parents and children in any order of arrival, with one subscriber or two, over crashes: exactly
the right records are blocked.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.repetitions import repetitions

from sparrow.base.queue_policy import QueuePolicy
from sparrow.broker.queues.persistence import pages
from sparrow.broker.queues.rules.delivery_info import DeliveryInfo
from sparrow.broker.queues.rules.record_state import BLOCKED, LEASED, MOVING, READY, STATE_MASK
from sparrow.broker.queues.rules.state import QueueState
from sparrow.meta.store import Entry

SOURCES = 2
RECORDS = 24


class ParentedMachine(RuleBasedStateMachine):
    """Messages 1 … RECORDS; parents have smaller numbers, so that there are no cycles, but they
    arrive in any order.
    """

    @initialize(
        subscribers=st.sampled_from([(), ("a", "b")]),
        parent_failed=st.sampled_from(["follow", "release"]),
        has_dead_letters=st.booleans(),
    )
    def begin(self, subscribers, parent_failed, has_dead_letters) -> None:
        self.policy = QueuePolicy(
            order="parented", subscribers=subscribers, parent_failed=parent_failed, parent_wait_ms=3_600_000
        )
        self.has_dead_letters = has_dead_letters
        self.now_ms = 1000
        self.log: list[list[DeliveryInfo]] = [[] for _ in range(SOURCES)]
        self.position: dict[int, tuple[int, int]] = {}
        self.parents: dict[int, tuple[int, ...]] = {}
        self.failed: set[tuple[str, int]] = set()
        """(subscriber, message) that were given up."""
        self.entries: dict[tuple[str, int, int], bytes] = {}
        self.failed_entries: dict[tuple[int, int], bytes] = {}
        self.starts = {name: [0] * SOURCES for name in subscribers or ("",)}
        self.state = self.make()
        for _ in range(SOURCES):
            self.state.add_source(0, dict.fromkeys(self.starts, 0))

    def make(self) -> QueueState:
        return QueueState("q", self.policy, has_dead_letters=self.has_dead_letters, jitter=lambda: 0.0)

    @rule(
        message=st.integers(1, RECORDS),
        source=st.integers(0, SOURCES - 1),
        parents=st.sets(st.integers(1, RECORDS), max_size=3),
    )
    def publish(self, message, source, parents) -> None:
        if message in self.position:
            return
        named = tuple(sorted(p for p in parents if p < message))
        offset = len(self.log[source])
        info = DeliveryInfo(offset, 0, message_id=message, parents=named)
        self.log[source].append(info)
        self.position[message] = (source, offset)
        self.parents[message] = named
        self.find(source, info)

    def find(self, source: int, info: DeliveryInfo) -> None:
        self.state.found(
            source, info.offset, info.offset + 1, [info], now_ms=self.now_ms, wall_ms=self.now_ms
        )
        self.keep()

    def leased(self, name: str) -> list[int]:
        subscriber = self.state.subscribers[name]
        return [
            m
            for m, position in self.position.items()
            if subscriber.value_at(*position) & STATE_MASK == LEASED
        ]

    @rule(data=st.data(), limit=st.integers(1, 4))
    def lease(self, data, limit) -> None:
        name = data.draw(st.sampled_from(sorted(self.state.subscribers)))
        self.state.subscribers[name].grant("c", limit, now_ms=self.now_ms, wall_ms=0, lease_ms=1_000_000_000)
        self.keep()

    @rule(
        data=st.data(),
        verb=st.sampled_from(["acknowledge", "acknowledge", "acknowledge", "reject", "return"]),
    )
    def settle(self, data, verb) -> None:
        name = data.draw(st.sampled_from(sorted(self.state.subscribers)))
        held = self.leased(name)
        if not held:
            return
        message = data.draw(st.sampled_from(held))
        subscriber, (source, offset) = self.state.subscribers[name], self.position[message]
        runs = subscriber.leased_runs("c", source, offset, offset + 1)
        if verb == "acknowledge":
            subscriber.ack(source, runs)
        elif verb == "reject":
            subscriber.reject(source, runs, "bad")
            self.failed.add((name, message))
        else:
            subscriber.release(source, runs)
        self.state.settled()
        self.follow()
        self.keep()

    @rule()
    def dead_letters_are_written(self) -> None:
        for name, dead_records in self.state.take_dead_records():
            self.state.subscribers[name].finish_move(
                dead_records.source, dead_records.first, dead_records.end
            )
        self.keep()

    @rule()
    def crash(self) -> None:
        self.keep()
        self.state = self.make()
        for source in range(SOURCES):
            self.state.add_source(0, {name: starts[source] for name, starts in self.starts.items()})
            for (name, number, page), value in self.entries.items():
                if number == source:
                    kept = pages.decode_page(Entry("p", "k", value, 1), page, self.now_ms, self.now_ms)
                    self.state.subscribers[name].restore(source, [kept])
            for (number, page), value in self.failed_entries.items():
                if number == source:
                    for first, end in pages.decode_failed(Entry("f", "k", value, 1), page):
                        self.state.failed[source].set(first, end, 1)
        for source, log in enumerate(self.log):
            for info in log:
                self.find(source, info)

    def keep(self) -> None:
        for name, subscriber in self.state.subscribers.items():
            for source, page in subscriber.dirty:
                value = pages.encode_page(
                    subscriber.maps[source].columns(page),
                    subscriber.leases.by_number,
                    lambda: (self.now_ms, self.now_ms),
                )
                self.entries.pop((name, source, page), None)
                if value is not None:
                    self.entries[name, source, page] = value
            subscriber.dirty.clear()
            self.starts[name] = list(subscriber.starts)
        for source, page in self.state.dirty_failed:
            value = pages.encode_failed(self.state.failed[source].page_runs(page), page)
            if value is not None:
                self.failed_entries[source, page] = value
        self.state.dirty_failed.clear()

    # ── what must be ──────────────────────────────────────────────────────────────────────────────

    def states(self, message: int) -> dict[str, int]:
        position = self.position[message]
        return {
            name: subscriber.value_at(*position) & STATE_MASK
            for name, subscriber in self.state.subscribers.items()
        }

    def is_ended(self, message: int) -> bool:
        return message in self.position and all(s >= MOVING for s in self.states(message).values())

    def has_failed(self, message: int) -> bool:
        return any((name, message) in self.failed for name in self.state.subscribers)

    def follow(self) -> None:
        """Fail the children of failed messages."""
        if self.policy.parent_failed == "follow":
            for message in sorted(self.position):
                if any(self.is_ended(p) and self.has_failed(p) for p in self.parents[message]):
                    self.failed.update((name, message) for name in self.state.subscribers)

    @invariant()
    def everybody_is_where_they_belong(self) -> None:
        if not hasattr(self, "state"):
            return
        self.follow()
        for message in self.position:
            pending = [p for p in self.parents[message] if not self.is_ended(p)]
            follows = self.policy.parent_failed == "follow" and any(
                self.is_ended(p) and self.has_failed(p) for p in self.parents[message]
            )
            for name, state in self.states(message).items():
                if follows:
                    assert state >= MOVING, (message, name, state)
                elif pending:
                    assert state == BLOCKED, (message, name, state, pending)
                else:
                    assert state in (READY, LEASED) or state >= MOVING, (message, name, state)


TestParentedModel = ParentedMachine.TestCase
TestParentedModel.settings = settings(max_examples=repetitions(60), stateful_step_count=40, deadline=None)
