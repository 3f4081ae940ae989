"""Frames do not depend on how their bytes arrive, and an announced size alone takes no memory."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.frontends.kafka.frame_receiver import SCRATCH_BYTES, SMALL_READ_BYTES, FrameReceiver

LIMIT = 100 << 20


def receive(receiver: FrameReceiver, data: bytes, most: int) -> int:
    """Write a piece of `data` into the receiver's buffer; return its size."""
    buffer = receiver.buffer()
    count = min(len(buffer), len(data), most)
    buffer[:count] = data[:count]
    receiver.received(count, LIMIT)
    return count


@given(
    st.lists(st.sampled_from([0, 1, 100, 4096, 9_000, 70_000, 300_000]), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from([1, 3, 5_000, 50_000, 1 << 20]), st.booleans()), min_size=1),
)
def test_frames_are_the_same_however_they_arrive_and_whenever_they_may_grow(
    sizes: list[int], pieces: list[tuple[int, bool]]
) -> None:
    found: list[bytes] = []
    receiver = FrameReceiver(memoryview(bytearray(SCRATCH_BYTES)), lambda frame: found.append(bytes(frame)))
    frames = [bytes([n + 1]) * size for n, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    position = turn = 0
    while position < len(stream):
        most, may_grow = pieces[turn % len(pieces)]
        turn += 1
        receiver.may_grow = receiver.may_grow or may_grow
        position += receive(receiver, stream[position:], most if turn < 200 else 1 << 20)
    assert found == frames
    assert receiver.is_between_frames


def test_an_announcement_gets_a_small_buffer_until_its_memory_is_reserved() -> None:
    receiver = FrameReceiver(memoryview(bytearray(SCRATCH_BYTES)), lambda _: None)
    receive(receiver, struct.pack(">i", 200_000) + b"\0\0\0\0", 8)
    assert receiver.unfinished_bytes == 200_000
    assert len(receiver.buffer()) == SMALL_READ_BYTES
    receiver.may_grow = True
    assert len(receiver.buffer()) <= 8 << 10


@pytest.mark.parametrize("arrived", [1_000, 10_000, 100_000])
def test_buffer_is_at_most_eight_times_as_large_as_the_received_bytes(arrived: int) -> None:
    receiver = FrameReceiver(memoryview(bytearray(SCRATCH_BYTES)), lambda _: None)
    receive(receiver, struct.pack(">i", 2_000_000), 4)
    receiver.may_grow = True
    rest = arrived
    while rest:
        rest -= receive(receiver, bytes(rest), 1_000)
    assert receiver.received_bytes == arrived
    assert len(receiver.buffer()) <= max(8 << 10, 8 * arrived)
