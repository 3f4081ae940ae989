"""One log against a list of batches, through restarts, kills and power failures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparrow.base.clock import ManualClock
from sparrow.base.errors import OffsetOutOfRange
from sparrow.records.batch import parse_header
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.store import LogConfig
from tests.conformance.log_store import ORDERS
from tests.repetitions import repetitions
from tests.storage.batches import NOW_MS, batch, payload, read_batches
from tests.storage.test_local_log_store import ON_THE_LOOP

if TYPE_CHECKING:
    from collections.abc import Awaitable

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=200, retention_ms=-1, retention_bytes=2500)


class LogAgainstList(RuleBasedStateMachine):
    """The model: every kept batch as (base offset, last offset, payload), the log's start and its
    durable end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model: list[tuple[int, int, bytes]] = []
        self.start = self.durable = self.number = 0
        self.state: tuple[int, bytes] = (0, b"")

    def teardown(self) -> None:
        self.loop.close()

    def run(self, awaitable: Awaitable[Any]) -> Any:
        async def main() -> Any:
            return await awaitable

        return self.loop.run_until_complete(main())

    @initialize(
        seed=st.integers(0, 1 << 16), shorts=st.sampled_from([0.0, 0.3]), blocks=st.sampled_from([0.0, 0.5])
    )
    def begin(self, seed: int, shorts: float, blocks: float) -> None:
        self.fs = FaultyFileSystem(seed, short_writes=shorts, would_block=blocks)
        self.open()

    def open(self) -> None:
        self.store = LocalLogStore("/data", self.fs, ManualClock(NOW_MS), ON_THE_LOOP)
        self.log = self.store.open(ORDERS, CONFIG)

    @property
    def end(self) -> int:
        return self.model[-1][1] + 1 if self.model else self.start

    # ── operations ──

    @rule(shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 200)), min_size=1, max_size=4))
    def append(self, shapes: list[tuple[int, int]]) -> None:
        batches = []
        for count, size in shapes:
            self.number += 1
            batches.append(
                batch(
                    *(b"%d" % self.number + bytes(size) for _ in range(count)),
                    timestamps=NOW_MS + self.number,
                )
            )
        base = self.end

        async def act() -> Any:
            return await self.log.append(batches)

        appended = self.run(act())
        assert appended.base_offset == base
        for header, data in batches:
            self.model.append((base, base + header.last_offset_delta, payload(bytes(data))))
            base += header.last_offset_delta + 1
        assert appended.last_offset == base - 1

    @rule(share=st.floats(0, 1), max_bytes=st.sampled_from([1, 100, 500, 5000]))
    def read(self, share: float, max_bytes: int) -> None:
        offset = self.start + round(share * (self.end - self.start))
        chunk = self.run(self.log.read(offset, max_bytes))
        if offset == self.end:
            assert (chunk.data, chunk.next_offset) == (b"", self.end)
            return
        data, expected = bytes(chunk.data), [each for each in self.model if each[1] >= offset]
        first = parse_header(data)
        assert (first.base_offset, payload(data[: first.size_bytes])) == (expected[0][0], expected[0][2])
        assert len(data) <= max_bytes or len(data) == first.size_bytes
        assert chunk.next_offset in {last + 1 for _, last, _ in expected}

    @rule()
    def make_durable(self) -> None:
        async def act() -> None:
            await self.log.durable(self.end)

        self.run(act())
        assert self.log.durable_offset == self.end
        self.durable = self.end

    @rule()
    def checkpoint(self) -> None:
        self.run(self.log.checkpoint(b"state at %d" % self.end))
        if self.log.saved_state() == (self.end, b"state at %d" % self.end):
            self.state, self.durable = self.log.saved_state(), self.end
        else:
            assert not self.log.size_bytes  # a log without files cannot keep it

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        wanted = self.start + round(share * (self.end - self.start))
        assert self.run(self.log.delete_records(wanted)) == wanted
        self.moved_start(wanted)

    def moved_start(self, start: int) -> None:
        assert start >= self.start
        if start > self.start:
            self.durable = max(self.durable, start)
        self.start = start

    @rule()
    def retention(self) -> None:
        freed = self.run(self.log.enforce_retention(NOW_MS))
        assert (freed > 0) >= (self.log.start_offset > self.start)
        self.moved_start(self.log.start_offset)

    @rule()
    def restart(self) -> None:
        self.run(self.store.close())
        self.open()
        assert self.store.clean_start
        self.durable = self.end
        assert self.log.durable_offset == self.end

    @rule()
    def kill(self) -> None:
        self.fs.kill()
        self.open()
        assert not self.store.clean_start
        assert self.log.end_offset == self.end

    @rule()
    def lose_power(self) -> None:
        self.fs.crash()
        self.open()
        end = self.log.end_offset
        assert self.durable <= end <= max(self.end, self.durable)
        survivors = [each for each in self.model if each[1] < end]
        if self.durable == 0 and self.log.start_offset > self.start:
            # Nothing was promised, and the names of the first files were lost.
            self.start = self.log.start_offset
        self.model = survivors
        if not survivors:
            assert self.log.start_offset == end
            self.start = end

    # ── what always holds ──

    @invariant()
    def holds_the_same_as_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        expected = [(base, data) for base, last, data in self.model if last >= self.start]
        found = self.run(read_batches(self.log))
        assert [(parse_header(each).base_offset, payload(each)) for each in found] == expected
        assert [header.base_offset for header in self.log.headers(self.start)] == [
            base for base, _ in expected
        ]
        for outside in (self.start - 1, self.end + 1):
            with pytest.raises(OffsetOutOfRange):
                self.log.read_nowait(outside, 100)

    @invariant()
    def the_state_is_the_last_checkpoints(self) -> None:
        if hasattr(self, "log") and self.state[1]:
            assert self.log.saved_state() == (max(self.state[0], self.start), self.state[1])


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(
    max_examples=repetitions(100),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
TestLogAgainstList = pytest.mark.slow(TestLogAgainstList)
