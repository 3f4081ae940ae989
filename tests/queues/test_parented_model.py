"""Parents and children in any order of arrival, with one subscriber or two, over crashes: who is blocked is who must be."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparrow.broker.queues import pages
from sparrow.broker.queues.facts import Facts
from sparrow.broker.queues.policy import QueuePolicy
from sparrow.broker.queues.state import QueueState
from sparrow.broker.queues.values import BLOCKED, LEASED, MOVING, READY, STATE_MASK
from sparrow.meta.store import Fact

SOURCES = 2
RECORDS = 24


class ParentedMachine(RuleBasedStateMachine):
    """Messages 1 … RECORDS; parents have smaller numbers, so that there are no cycles, but they arrive in any order."""

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
        self.log: list[list[Facts]] = [[] for _ in range(SOURCES)]
        self.place: dict[int, tuple[int, int]] = {}
        self.parents: dict[int, tuple[int, ...]] = {}
        self.failed: set[tuple[str, int]] = set()
        """(lane, message) that were given up."""
        self.facts: dict[tuple[str, int, int], bytes] = {}
        self.failed_facts: dict[tuple[int, int], bytes] = {}
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
        if message in self.place:
            return
        named = tuple(sorted(p for p in parents if p < message))
        offset = len(self.log[source])
        facts = Facts(offset, 0, message_id=message, parents=named)
        self.log[source].append(facts)
        self.place[message] = (source, offset)
        self.parents[message] = named
        self.find(source, facts)

    def find(self, source: int, facts: Facts) -> None:
        self.state.found(
            source, facts.offset, facts.offset + 1, [facts], now_ms=self.now_ms, wall_ms=self.now_ms
        )
        self.keep()

    def leased(self, name: str) -> list[int]:
        lane = self.state.lanes[name]
        return [m for m, place in self.place.items() if lane.value_at(*place) & STATE_MASK == LEASED]

    @rule(data=st.data(), limit=st.integers(1, 4))
    def lease(self, data, limit) -> None:
        name = data.draw(st.sampled_from(sorted(self.state.lanes)))
        self.state.lanes[name].grant("c", limit, now_ms=self.now_ms, wall_ms=0, lease_ms=1_000_000_000)
        self.keep()

    @rule(
        data=st.data(),
        verb=st.sampled_from(["acknowledge", "acknowledge", "acknowledge", "reject", "return"]),
    )
    def settle(self, data, verb) -> None:
        name = data.draw(st.sampled_from(sorted(self.state.lanes)))
        held = self.leased(name)
        if not held:
            return
        message = data.draw(st.sampled_from(held))
        lane, (source, offset) = self.state.lanes[name], self.place[message]
        runs = lane.leased_runs("c", source, offset, offset + 1)
        if verb == "acknowledge":
            lane.acknowledge(source, runs)
        elif verb == "reject":
            lane.reject(source, runs, "bad")
            self.failed.add((name, message))
        else:
            lane.take_back(source, runs)
        self.state.settled()
        self.follow()
        self.keep()

    @rule()
    def dead_letters_are_written(self) -> None:
        for name, doomed in self.state.take_doomed():
            self.state.lanes[name].moved(doomed.source, doomed.first, doomed.end)
        self.keep()

    @rule()
    def crash(self) -> None:
        self.keep()
        self.state = self.make()
        for source in range(SOURCES):
            self.state.add_source(0, {name: starts[source] for name, starts in self.starts.items()})
            for (name, number, page), value in self.facts.items():
                if number == source:
                    runs = pages.decode_page(Fact("p", "k", value, 1), page, self.now_ms, self.now_ms)
                    self.state.lanes[name].restore(source, runs)
            for (number, page), value in self.failed_facts.items():
                if number == source:
                    for first, end in pages.decode_failed(Fact("f", "k", value, 1), page):
                        self.state.failed[source].set(first, end, 1)
        for source, log in enumerate(self.log):
            for facts in log:
                self.find(source, facts)

    def keep(self) -> None:
        for name, lane in self.state.lanes.items():
            for source, page in lane.dirty:
                value = pages.encode_page(
                    lane.maps[source].columns(page), lane.marks, self.now_ms, self.now_ms
                )
                self.facts.pop((name, source, page), None)
                if value is not None:
                    self.facts[name, source, page] = value
            lane.dirty.clear()
            self.starts[name] = list(lane.starts)
        for source, page in self.state.dirty_failed:
            value = pages.encode_failed(self.state.failed[source].page_runs(page), page)
            if value is not None:
                self.failed_facts[source, page] = value
        self.state.dirty_failed.clear()

    # ── what must be ──────────────────────────────────────────────────────────────────────────────

    def states(self, message: int) -> dict[str, int]:
        place = self.place[message]
        return {name: lane.value_at(*place) & STATE_MASK for name, lane in self.state.lanes.items()}

    def is_ended(self, message: int) -> bool:
        return message in self.place and all(s >= MOVING for s in self.states(message).values())

    def has_failed(self, message: int) -> bool:
        return any((name, message) in self.failed for name in self.state.lanes)

    def follow(self) -> None:
        """Children of what failed fail with it."""
        if self.policy.parent_failed == "follow":
            for message in sorted(self.place):
                if any(self.is_ended(p) and self.has_failed(p) for p in self.parents[message]):
                    self.failed.update((name, message) for name in self.state.lanes)

    @invariant()
    def everybody_is_where_they_belong(self) -> None:
        if not hasattr(self, "state"):
            return
        self.follow()
        for message in self.place:
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
TestParentedModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
