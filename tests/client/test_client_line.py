"""The line of one partition against the broker's own judge of sequences: exactly once and in order, whatever is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparrow.base.errors import DuplicateSequence, OutOfOrderSequence
from sparrow.broker.producers import ProducerStates
from sparrow.client.delivery import Batch
from sparrow.client.line import MAX_IN_FLIGHT, SEQUENCE_MASK, Line
from sparrow.client.sealing import columns, renumber, seal
from sparrow.records.batch import check, parse_header
from sparrow.records.compression import Compression
from sparrow.storage.store import Appended


class Partition:
    """What a broker keeps: the values, in order, each under the rules of its producers' sequences."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.values: list[int] = []

    def publish(self, data: bytes) -> None:
        header = check(data)
        if self.states.check(header) is not None:
            return
        first = len(self.values)
        self.values += [int(value or b"") for value in columns(data)[0]]
        self.states.accept(header, Appended(first, len(self.values) - 1), 0)


class LineMachine(RuleBasedStateMachine):
    """A producer's line, a broker, and a network that may lose the answers, or deliver old frames late."""

    @initialize(sequence=st.sampled_from([0, SEQUENCE_MASK - 20]))
    def begin(self, sequence: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.line = Line("t", 0, self.loop, is_idempotent=True)
        self.first_sequence = sequence
        self.line.next_sequence = sequence
        self.partition = Partition()
        self.identity = 1
        self.wants_restart = False
        self.serial = 0
        self.count = 0
        self.network: list[tuple[Batch, bytes]] = []
        self.late: list[bytes] = []
        self.confirmed: set[int] = set()
        self.failed: set[int] = set()
        self.values: dict[Batch, list[int]] = {}

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    # ── the producer ──────────────────────────────────────────────────────────────────────────────

    @rule(size=st.integers(1, 4))
    def add(self, size: int) -> None:
        self.serial += 1
        batch = self.line.open = Batch(self.line, self.serial, 0.0)
        batch.is_due = True
        self.values[batch] = list(range(self.count, self.count + size))
        for number in self.values[batch]:
            batch.append(b"%d" % number, None, (), 0)
        self.count += size
        self.line.close_open()

    @rule()
    def send(self) -> None:
        if self.wants_restart and not self.line.is_undecided:
            self.wants_restart = False
            self.identity += 1
            self.line.restart()
        batch = self.line.next_batch(0.0, only_undecided=self.wants_restart)
        if batch is None:
            return
        data = batch.data
        if data is None or batch.sequence < 0:
            data = seal(batch, Compression.NONE, self.identity, 0, self.line.number(batch))
        self.line.start(batch)
        self.network.append((batch, data))

    # ── the broker's answers, in the order of the sends ───────────────────────────────────────────

    @rule(failure=st.sampled_from(["", "", "", "before", "after", "never"]))
    @precondition(lambda self: self.network)
    def answer(self, failure: str) -> None:
        batch, data = self.network.pop(0)
        try:
            if failure in {"", "after"}:
                self.partition.publish(data)
            elif failure == "never":
                self.partition.states.check(parse_header(data))
        except OutOfOrderSequence:
            if not self.line.refused and self.line.sent[0] is batch:
                self.wants_restart = True
            self.line.refuse(batch, may_be_written=False)
            return
        except DuplicateSequence:
            raise AssertionError("the broker forgot a batch that was still being sent") from None
        if not failure:
            self.line.confirmed(batch)
            self.confirmed.update(self.values[batch])
        elif failure == "never" and not self.is_written(batch):
            batch.may_be_written = False
            self.line.answered(batch)
            self.failed.update(self.values[batch])
            self.wants_restart |= self.line.leaves_gap(batch)
        else:
            self.line.refuse(batch, may_be_written=True)

    def is_written(self, batch: Batch) -> bool:
        return self.values[batch][0] in self.partition.values

    @rule(arrived=st.integers(0, 20), late=st.booleans())
    def lose_the_link(self, arrived: int, late: bool) -> None:
        """Some of what was sent arrives unanswered; some may arrive later, from the old connection."""
        for _, data in self.network[:arrived]:
            self.deliver(data)
        if late:
            self.late = [data for _, data in self.network[arrived:]]
        self.network.clear()
        assert not self.line.link_lost()

    @rule()
    @precondition(lambda self: self.late)
    def old_frame_arrives(self) -> None:
        self.deliver(self.late.pop(0))

    def deliver(self, data: bytes) -> None:
        with suppress(OutOfOrderSequence, DuplicateSequence):
            self.partition.publish(data)

    # ── what must hold ────────────────────────────────────────────────────────────────────────────

    @invariant()
    def nothing_is_written_twice_or_out_of_order(self) -> None:
        if hasattr(self, "partition"):
            assert self.partition.values == sorted(set(self.partition.values))

    @invariant()
    def what_is_confirmed_is_written(self) -> None:
        if hasattr(self, "partition"):
            assert self.confirmed <= set(self.partition.values)

    @invariant()
    def the_pipeline_is_bounded(self) -> None:
        if hasattr(self, "line"):
            assert len(self.line.sent) <= MAX_IN_FLIGHT

    @rule()
    def all_goes_well_for_a_while(self) -> None:
        for _ in range(1000):
            self.send()
            if self.network:
                self.answer("")
            elif not list(self.line.batches()):
                break
        assert not list(self.line.batches())
        assert self.partition.values == [n for n in range(self.count) if n not in self.failed]


LineMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLine = pytest.mark.slow(LineMachine.TestCase)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def test_sequences_wrap_to_zero_as_kafkas_do(loop: asyncio.AbstractEventLoop) -> None:
    line = Line("t", 0, loop, is_idempotent=True)
    line.next_sequence = SEQUENCE_MASK - 1
    batch = Batch(line, 1, 0.0)
    for _ in range(3):
        batch.append(b"", None, (), 0)
    assert line.number(batch) == SEQUENCE_MASK - 1
    assert line.next_sequence == 1


def test_renumbering_changes_the_producers_fields_alone(loop: asyncio.AbstractEventLoop) -> None:
    batch = Batch(Line("t", 0, loop, is_idempotent=True), 1, 0.0)
    batch.append(b"v", b"k", (("h", b"1"),), 5)
    data = seal(batch, Compression.NONE, 1, 2, 3)
    header = check(renumber(data, 7, 8, 9))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 8, 9)
    assert columns(renumber(data, 7, 8, 9)) == columns(data) == ([b"v"], [b"k"], [(("h", b"1"),)], [5])


def test_the_parts_of_a_batch_share_its_sequences_and_its_place(loop: asyncio.AbstractEventLoop) -> None:
    line = Line("t", 0, loop, is_idempotent=True)
    batch = Batch(line, 1, 0.0)
    for number in range(5):
        batch.append(b"%d" % number, None, (), 0)
    whole = columns(seal(batch, Compression.NONE, 1, 0, SEQUENCE_MASK - 1))
    left, right = batch.part(whole, 0, 2), batch.part(whole, 2, 5)
    assert (left.sequence, right.sequence) == (SEQUENCE_MASK - 1, 0)
    later = right.part((right.values, [None] * 3, [()] * 3, right.timestamps), 1, 3)
    assert (later.serial, later.first, later.sequence) == (1, 3, 1)
