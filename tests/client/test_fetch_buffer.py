"""The fetch buffer against a list: each record is handed out once, in order, and no offset runs
ahead.
"""

from __future__ import annotations

from copy import copy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparrow.client.fetch_buffer import FetchBuffer
from sparrow.records.builder import build_batch
from sparrow.records.record import Record
from tests.repetitions import repetitions

KEYS = [("a", 0), ("a", 1), ("b", 0)]


def batch_at(offset: int, count: int) -> bytes:
    return build_batch([b"%d" % (offset + i) for i in range(count)], base_offset=offset)


class FetchBufferMachine(RuleBasedStateMachine):
    """A broker that delivers in order, a user that reads in every way, and lost connections."""

    @initialize()
    def begin(self) -> None:
        self.buffer = FetchBuffer()
        self.sent: dict[tuple[str, int], int] = {}
        self.taken: dict[tuple[str, int], list[int]] = {key: [] for key in KEYS}
        self.in_hand: list[Record] = []
        for key in KEYS:
            self.buffer.assign(*key, 0)
            self.sent[key] = 0

    @rule(
        key=st.sampled_from(KEYS),
        counts=st.lists(st.integers(1, 5), min_size=1, max_size=3),
        back=st.integers(0, 3),
    )
    def deliver(self, key: tuple[str, int], counts: list[int], back: int) -> None:
        """Deliver several batches in one DELIVER; the first may begin before the offset that is
        due.
        """
        if key not in self.sent:
            return
        offset = self.sent[key]
        position = max(0, offset - back)
        counts[0] += offset - position
        data = b""
        for count in counts:
            data += batch_at(position, count)
            position += count
        self.buffer.deliver(key, offset, position, memoryview(data))
        self.sent[key] = position

    def hand(self, records: list[Record]) -> None:
        self.in_hand = records
        for record in records:
            self.taken[record.topic, record.partition].append(record.offset)

    @rule(count=st.integers(1, 7))
    def iterate(self, count: int) -> None:
        for _ in range(count):
            self.buffer.step()
            if not self.buffer.refill():
                self.in_hand = []
                return
            record = next(iter(self.buffer.rest))
            self.buffer.last = record
            self.hand([record])

    @rule()
    def take_batch(self) -> None:
        self.buffer.step()
        self.hand(self.buffer.take_batch())

    @rule(count=st.integers(1, 12))
    def pull(self, count: int) -> None:
        self.buffer.step()
        records = self.buffer.take(count)
        assert len(records) <= count
        self.hand(records)

    @rule()
    def lose_the_connection_and_go_on(self) -> None:
        positions = self.buffer.interrupt()
        for (topic, partition), offset in positions.items():
            self.buffer.resume(topic, partition, offset)
            self.sent[topic, partition] = offset

    @rule(key=st.sampled_from(KEYS))
    @precondition(lambda self: len(self.sent) > 1)
    def revoke(self, key: tuple[str, int]) -> None:
        if self.sent.pop(key, None) is not None:
            self.buffer.stop([key])
            self.buffer.forget([key])
            self.in_hand = [r for r in self.in_hand if (r.topic, r.partition) != key]
            assert all((r.topic, r.partition) != key for r in copy(self.buffer.rest))

    @rule(key=st.sampled_from(KEYS))
    def assign_again(self, key: tuple[str, int]) -> None:
        if key not in self.sent:
            self.buffer.assign(*key, len(self.taken[key]))
            self.sent[key] = len(self.taken[key])

    @invariant()
    def each_record_is_handed_out_once_and_in_order(self) -> None:
        for offsets in getattr(self, "taken", {}).values():
            assert offsets == list(range(len(offsets)))

    @invariant()
    def offsets_say_what_was_handed_out_and_what_is_in_hand(self) -> None:
        if not hasattr(self, "buffer"):
            return
        handed = self.buffer.to_commit(only_processed=False)
        processed = self.buffer.to_commit(only_processed=True)
        for key in self.sent:
            assert handed.get(key, self.buffer.cursors[key].committed) <= len(self.taken[key])
            first_in_hand = [r.offset for r in self.in_hand if (r.topic, r.partition) == key]
            if first_in_hand:
                assert processed.get(key, 0) <= first_in_hand[0]
                assert self.buffer.holds([key])

    @rule()
    def commit(self) -> None:
        offsets = self.buffer.to_commit(only_processed=False)
        self.buffer.committed(offsets)
        assert self.buffer.to_commit(only_processed=False) == {}


FetchBufferMachine.TestCase.settings = settings(
    max_examples=repetitions(60), stateful_step_count=40, deadline=None
)
TestFetchBuffer = pytest.mark.slow(FetchBufferMachine.TestCase)


def test_a_small_view_of_a_large_chunk_is_copied_so_that_the_chunk_can_go() -> None:
    buffer = FetchBuffer()
    buffer.assign("a", 0, 0)
    batch = batch_at(0, 3)
    chunk = bytearray(batch + bytes(100_000))
    buffer.deliver(("a", 0), 0, 3, memoryview(chunk)[: len(batch)])
    chunk[:] = bytes(len(chunk))
    assert [r.offset for r in buffer.take_batch()] == [0, 1, 2]


def test_records_of_an_unassigned_partition_are_dropped_and_their_credit_returned() -> None:
    buffer = FetchBuffer()
    buffer.deliver(("a", 0), 0, 3, memoryview(batch_at(0, 3)))
    assert not buffer.has_more
    assert buffer.unreturned_bytes == len(batch_at(0, 3))
