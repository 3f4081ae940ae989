"""The queue of one partition against the broker's own check of sequences: exactly once and in
order, whatever the responses.
"""

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
from sparrow.client.batch import ProducerBatch, decode_columns, encode, renumber
from sparrow.client.partition_queue import MAX_IN_FLIGHT, SEQUENCE_MASK, PartitionQueue
from sparrow.records.batch import check, parse_header
from sparrow.records.compression import Compression
from sparrow.storage.store import Appended
from tests.repetitions import repetitions


class Partition:
    """A broker's partition: the values in order, under the rules of its producers' sequences."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.values: list[int] = []

    def publish(self, data: bytes) -> None:
        header = check(data)
        if self.states.check(header) is not None:
            return
        first = len(self.values)
        self.values += [int(value or b"") for value in decode_columns(data)[0]]
        self.states.accept(header, Appended(first, len(self.values) - 1), 0)


class PartitionQueueMachine(RuleBasedStateMachine):
    """A partition queue, a broker, and a network that may lose responses or deliver old frames
    late.
    """

    @initialize(sequence=st.sampled_from([0, SEQUENCE_MASK - 20]))
    def begin(self, sequence: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.queue = PartitionQueue("t", 0, is_idempotent=True)
        self.first_sequence = sequence
        self.queue.next_sequence = sequence
        self.partition = Partition()
        self.identity = 1
        self.wants_restart = False
        self.serial = 0
        self.count = 0
        self.network: list[tuple[ProducerBatch, bytes]] = []
        self.late: list[bytes] = []
        self.confirm: set[int] = set()
        self.failed: set[int] = set()
        self.values: dict[ProducerBatch, list[int]] = {}

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    # ── the producer ──────────────────────────────────────────────────────────────────────────────

    @rule(size=st.integers(1, 4))
    def add(self, size: int) -> None:
        self.serial += 1
        batch = self.queue.open = ProducerBatch("t", 0, self.serial, 0.0, loop=self.loop)
        batch.is_due = True
        self.values[batch] = list(range(self.count, self.count + size))
        for number in self.values[batch]:
            batch.append(b"%d" % number, None, (), 0)
        self.count += size
        self.queue.close_open()

    @rule()
    def send(self) -> None:
        if self.wants_restart and not self.queue.is_undecided:
            self.wants_restart = False
            self.identity += 1
            self.queue.restart()
        batch = self.queue.next_batch(only_undecided=self.wants_restart)
        if batch is None:
            return
        data = batch.data
        if data is None or batch.sequence < 0:
            data = encode(batch, Compression.NONE, self.identity, 0, self.queue.number(batch))
        self.queue.start(batch)
        self.network.append((batch, data))

    # ── the broker's answers, in the order of the sends ───────────────────────────────────────────

    @rule(failure=st.sampled_from(["", "", "", "before", "after", "never"]))
    @precondition(lambda self: self.network)
    def respond(self, failure: str) -> None:
        batch, data = self.network.pop(0)
        try:
            if failure in {"", "after"}:
                self.partition.publish(data)
            elif failure == "never":
                self.partition.states.check(parse_header(data))
        except OutOfOrderSequence:
            if not self.queue.refused and self.queue.sent[0] is batch:
                self.wants_restart = True
            self.queue.refuse(batch, may_be_written=False)
            return
        except DuplicateSequence:
            raise AssertionError("the broker forgot a batch that was still being sent") from None
        if not failure:
            self.queue.confirm(batch)
            self.confirm.update(self.values[batch])
        elif failure == "never" and not self.is_written(batch):
            batch.may_be_written = False
            self.queue.resolve(batch)
            self.failed.update(self.values[batch])
            self.wants_restart |= self.queue.leaves_gap(batch)
        else:
            self.queue.refuse(batch, may_be_written=True)

    def is_written(self, batch: ProducerBatch) -> bool:
        return self.values[batch][0] in self.partition.values

    @rule(arrived=st.integers(0, 20), late=st.booleans())
    def lose_the_connection(self, arrived: int, late: bool) -> None:
        """Lose the connection: some sent batches arrive without a response, some may arrive later,
        from the old connection.
        """
        for _, data in self.network[:arrived]:
            self.deliver(data)
        if late:
            self.late = [data for _, data in self.network[arrived:]]
        self.network.clear()
        assert not self.queue.connection_lost()

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
            assert self.confirm <= set(self.partition.values)

    @invariant()
    def the_pipeline_is_bounded(self) -> None:
        if hasattr(self, "queue"):
            assert len(self.queue.sent) <= MAX_IN_FLIGHT

    @rule()
    def all_goes_well_for_a_while(self) -> None:
        for _ in range(1000):
            self.send()
            if self.network:
                self.respond("")
            elif not list(self.queue.batches()):
                break
        assert not list(self.queue.batches())
        assert self.partition.values == [n for n in range(self.count) if n not in self.failed]


PartitionQueueMachine.TestCase.settings = settings(
    max_examples=repetitions(60), stateful_step_count=40, deadline=None
)
TestPartitionQueue = pytest.mark.slow(PartitionQueueMachine.TestCase)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def test_sequences_wrap_to_zero_as_kafkas_do(loop: asyncio.AbstractEventLoop) -> None:
    queue = PartitionQueue("t", 0, is_idempotent=True)
    queue.next_sequence = SEQUENCE_MASK - 1
    batch = ProducerBatch("t", 0, 1, 0.0, loop=loop)
    for _ in range(3):
        batch.append(b"", None, (), 0)
    assert queue.number(batch) == SEQUENCE_MASK - 1
    assert queue.next_sequence == 1


def test_renumbering_changes_the_producers_fields_alone(loop: asyncio.AbstractEventLoop) -> None:
    batch = ProducerBatch("t", 0, 1, 0.0, loop=loop)
    batch.append(b"v", b"k", (("h", b"1"),), 5)
    data = encode(batch, Compression.NONE, 1, 2, 3)
    header = check(renumber(data, 7, 8, 9))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 8, 9)
    assert (
        decode_columns(renumber(data, 7, 8, 9))
        == decode_columns(data)
        == ([b"v"], [b"k"], [(("h", b"1"),)], [5])
    )


def test_the_parts_of_a_batch_share_its_sequences_and_its_place(loop: asyncio.AbstractEventLoop) -> None:
    batch = ProducerBatch("t", 0, 1, 0.0, loop=loop)
    for number in range(5):
        batch.append(b"%d" % number, None, (), 0)
    whole = decode_columns(encode(batch, Compression.NONE, 1, 0, SEQUENCE_MASK - 1))
    left, right = batch.part(whole, 0, 2), batch.part(whole, 2, 5)
    assert (left.sequence, right.sequence) == (SEQUENCE_MASK - 1, 0)
    later = right.part((right.values, [None] * 3, [()] * 3, right.timestamps), 1, 3)
    assert (later.serial, later.first, later.sequence) == (1, 3, 1)
