"""Random batches of sinks, with several runs and restarts, against lists: the records that readers
of committed records see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparrow.base.errors import SinkFenced, StageExpired
from sparrow.broker.sinks.stage import Stage
from sparrow.broker.sinks.state import Caller
from tests.repetitions import repetitions
from tests.sinks.staging import TIMEOUT_MS, put
from tests.transactions.machine import Machine, read_committed

T = TypeVar("T")

TOPICS = ("a", "b")
SINKS = ("s", "t")


@dataclass(eq=False)
class Staged:
    """A stage as the model knows it."""

    stage: Stage
    sink: str
    run: str
    batch: int
    is_open: bool = True
    is_committed: bool = False
    sequence: int = 0


@dataclass(eq=False)
class Sink:
    run: str
    last_batch: int = -1
    seen_s: float = 0.0
    """The time of the open batch's last activity."""


class Sinks(RuleBasedStateMachine):
    """The broker beside lists."""

    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.machine = Machine()
        self.broker = self.run(self.machine.start())
        self.logs: dict[str, list[tuple[bytes, Staged]]] = {topic: [] for topic in TOPICS}
        for topic in TOPICS:
            self.run(self.broker.topics.create(topic, 1))
        self.sinks: dict[str, Sink] = {}
        self.stages: list[Staged] = []
        self.runs = self.written = 0

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.broker.close())
            self.loop.close()

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    def open_of(self, sink: str) -> list[Staged]:
        return [each for each in self.stages if each.sink == sink and each.is_open]

    def touch(self, sink: str) -> None:
        self.sinks[sink].seen_s = self.machine.clock.monotonic()

    # ── a query and its tasks ─────────────────────────────────────────────────────────────────────

    @rule(sink=st.sampled_from(SINKS), is_new=st.booleans(), goes_back=st.booleans())
    def stage(self, *, sink: str, is_new: bool, goes_back: bool) -> None:
        known = self.sinks.get(sink)
        if known is None or is_new:
            self.runs += 1
            for each in self.open_of(sink):
                each.is_open = False
            known = self.sinks[sink] = Sink(f"r{self.runs}", known.last_batch if known else -1)
        batch = known.last_batch if goes_back and known.last_batch >= 0 else known.last_batch + 1
        stage = self.run(
            self.broker.sinks.stage(
                sink, Caller("q", known.run, batch), task=0, attempt=0, timeout_ms=TIMEOUT_MS
            )
        )
        assert (stage is None) == (batch <= known.last_batch)
        if stage is not None:
            self.touch(sink)
            self.stages.append(Staged(stage, sink, known.run, batch))

    @precondition(lambda self: self.stages)
    @rule(data=st.data(), topic=st.sampled_from(TOPICS), count=st.integers(1, 3))
    def publish(self, data: st.DataObject, topic: str, count: int) -> None:
        staged = data.draw(st.sampled_from(self.stages))
        records = [b"%d" % (self.written + each) for each in range(count)]
        self.written += count
        sequence = sum(1 for _, each in self.logs[topic] if each is staged)
        doing = put(self.machine, self.broker, staged.stage, topic, *records, sequence=sequence)
        if not staged.is_open:
            with pytest.raises(StageExpired):
                self.run(doing)
            return
        self.run(doing)
        self.touch(staged.sink)
        self.logs[topic] += [(each, staged) for each in records]

    @precondition(lambda self: self.sinks)
    @rule(data=st.data(), is_repeated=st.booleans())
    def commit(self, data: st.DataObject, *, is_repeated: bool) -> None:
        sink = data.draw(st.sampled_from(sorted(self.sinks)))
        known, open_ = self.sinks[sink], self.open_of(sink)
        listed = [each for each in open_ if data.draw(st.booleans())]
        caller = Caller("q", known.run, known.last_batch + 1)
        for _ in range(2 if is_repeated else 1):
            was_committed = self.run(
                self.broker.sinks.commit(sink, caller, [each.stage.stage_id for each in listed])
            )
            assert was_committed == (known.last_batch == caller.batch)
            known.last_batch = caller.batch
        for each in open_:
            each.is_open = False
            each.is_committed = each in listed

    @precondition(lambda self: any(not each.is_open for each in self.stages))
    @rule(data=st.data())
    def commit_of_what_is_over(self, data: st.DataObject) -> None:
        staged = data.draw(st.sampled_from([each for each in self.stages if not each.is_open]))
        known = self.sinks[staged.sink]
        doing = self.broker.sinks.commit(
            staged.sink, Caller("q", staged.run, staged.batch), [staged.stage.stage_id]
        )
        if staged.run != known.run:
            with pytest.raises(SinkFenced):
                self.run(doing)
        elif staged.batch <= known.last_batch:
            assert self.run(doing)
        else:
            with pytest.raises(StageExpired):
                self.run(doing)

    @precondition(lambda self: self.sinks)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        sink = data.draw(st.sampled_from(sorted(self.sinks)))
        known, open_ = self.sinks[sink], self.open_of(sink)
        caller = Caller("q", known.run, known.last_batch + 1)
        assert self.run(self.broker.sinks.abort(sink, caller)) == (False, len(open_))
        for each in open_:
            each.is_open = False

    # ── time and accidents ────────────────────────────────────────────────────────────────────────

    @rule(seconds=st.sampled_from([1, 25, 40]))
    def time_passes(self, seconds: int) -> None:
        self.machine.clock.advance(seconds)
        self.run(self.broker.parts.sink_coordinator.tick())
        self.run(self.broker.parts.transaction_coordinator.tick())
        now_s = self.machine.clock.monotonic()
        for name, sink in self.sinks.items():
            if sink.seen_s + TIMEOUT_MS / 1000 < now_s:
                for each in self.open_of(name):
                    each.is_open = False

    @rule(clean=st.booleans(), power_fails=st.booleans())
    def restart(self, *, clean: bool, power_fails: bool) -> None:
        if clean:
            self.run(self.broker.close())
        else:
            self.run(self.machine.stop(self.broker, power_fails=power_fails))
        self.broker = self.run(self.machine.start())
        for sink in self.sinks:
            self.touch(sink)

    @rule(topic=st.sampled_from(TOPICS))
    def checkpoint(self, topic: str) -> None:
        self.run(self.broker.parts.topic_registry.get(topic).partition(0).checkpoint())

    # ── what must be so ───────────────────────────────────────────────────────────────────────────

    def visible(self, topic: str) -> list[bytes]:
        found = []
        for value, staged in self.logs[topic]:
            if staged.is_open:
                break
            if staged.is_committed:
                found.append(value)
        return found

    @invariant()
    def readers_of_committed_records_see_exactly_those(self) -> None:
        if hasattr(self, "loop"):
            for topic in TOPICS:
                assert self.run(read_committed(self.broker, topic)) == self.visible(topic)

    @invariant()
    def the_broker_knows_the_same_sinks_and_stages(self) -> None:
        if not hasattr(self, "loop"):
            return
        known = {each.sink: (each.run, each.last_batch) for each in self.broker.sinks.list()}
        assert known == {name: (each.run, each.last_batch) for name, each in self.sinks.items()}
        open_ = {each.stage.stage_id for each in self.stages if each.is_open}
        assert {each.stage_id for each in self.broker.parts.sink_coordinator.stages} == open_
        assert {each.key for each in self.run(self.machine.meta.scan("sink-stage"))} == {
            each.partition("-")[0] for each in open_
        }


TestSinks = Sinks.TestCase
TestSinks.settings = settings(max_examples=repetitions(50), stateful_step_count=25, deadline=None)
