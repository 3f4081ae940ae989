"""Frames: cutting a stream, limits, and refusals before a frame has arrived."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import BadFrame, FrameTooLarge
from sparrow.protocol.native.frames import (
    FLAG_BATCHES,
    HEADER_BYTES,
    Frame,
    FrameDecoder,
    encode_frame,
    split_payload,
)
from tests.protocol.wire import split_at

_frames = st.lists(
    st.tuples(
        st.integers(0, 255),
        st.integers(0, 2**32 - 1),
        st.binary(max_size=40),
        st.none() | st.lists(st.binary(max_size=3000), max_size=3),
    ),
    max_size=8,
)


def _bytes(kind: int, channel: int, head: bytes, batches: list[bytes] | None) -> bytes:
    return b"".join(encode_frame(kind, channel, head, batches, 1 << 30))


def _frames_of(decoder: FrameDecoder, data: bytes) -> list[Frame]:
    frames: list[Frame] = []

    def take(kind: int, flags: int, channel: int, payload: memoryview) -> bool:
        frames.append((kind, flags, channel, payload))
        return True

    decoder.receive_data(data, take)
    return frames


def _decoded(decoder: FrameDecoder, chunks: list[bytes]) -> list[tuple[int, int, int, bytes]]:
    return [(k, f, c, bytes(p)) for chunk in chunks for k, f, c, p in _frames_of(decoder, chunk)]


@given(_frames, st.lists(st.integers(0, 1 << 20), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_frames(
    frames: list[tuple[int, int, bytes, list[bytes] | None]], cuts: list[int]
) -> None:
    data = b"".join(_bytes(*frame) for frame in frames)
    decoder = FrameDecoder()
    decoded = _decoded(decoder, split_at(data, cuts))
    assert decoded == _decoded(FrameDecoder(), [data])
    assert [(k, c) for k, _, c, _ in decoded] == [(k, c) for k, c, _, _ in frames]
    for (_, flags, _, payload), (_, _, head, batches) in zip(decoded, frames, strict=True):
        assert flags == (0 if batches is None else FLAG_BATCHES)
        if batches is None:
            assert payload == head
        else:
            got_head, got_batches = split_payload(memoryview(payload))
            assert (bytes(got_head), bytes(got_batches)) == (head, b"".join(batches))
    assert (decoder.bytes_wanted, decoder.buffered_bytes) == (0, 0)


@given(_frames.filter(bool))
def test_one_byte_at_a_time_gives_the_same_frames(
    frames: list[tuple[int, int, bytes, list[bytes] | None]],
) -> None:
    data = b"".join(_bytes(*frame) for frame in frames)[:2000]
    assert _decoded(FrameDecoder(), [bytes([b]) for b in data]) == _decoded(FrameDecoder(), [data])


def test_whole_frames_are_views_of_their_chunk() -> None:
    chunk = _bytes(0x22, 1, b"h", [bytes(5000)]) * 3
    assert all(payload.obj is chunk for _, _, _, payload in _frames_of(FrameDecoder(), chunk))


def test_a_large_batch_is_not_copied_when_encoded() -> None:
    batch = memoryview(bytes(5000))
    assert encode_frame(0x35, 2, b"h", batch, 1 << 20)[1] is batch


def test_the_announced_size_is_known_from_four_bytes_on() -> None:
    decoder = FrameDecoder()
    data = _bytes(0x10, 0, bytes(90), None)
    assert not _frames_of(decoder, data[:3])
    assert (decoder.bytes_wanted, decoder.buffered_bytes) == (0, 3)
    assert not _frames_of(decoder, data[3:4])
    assert (decoder.bytes_wanted, decoder.buffered_bytes) == (HEADER_BYTES + 90, 4)
    assert len(_frames_of(decoder, data[4:])) == 1
    assert (decoder.bytes_wanted, decoder.buffered_bytes) == (0, 0)


@pytest.mark.parametrize("split", [0, 1, 3])
def test_a_length_over_the_limit_is_refused_as_soon_as_it_is_there(split: int) -> None:
    decoder = FrameDecoder(1000)
    length = (1001).to_bytes(4, "big")
    _frames_of(decoder, length[:split])
    with pytest.raises(FrameTooLarge, match="1001 bytes, the limit here is 1000"):
        _frames_of(decoder, length[split:])


def test_a_length_at_the_limit_is_taken() -> None:
    data = _bytes(0x10, 0, bytes(994), None)
    assert len(_decoded(FrameDecoder(1000), [data])) == 1


@pytest.mark.parametrize("length", [0, 5])
def test_a_length_too_small_for_a_header_is_refused(length: int) -> None:
    with pytest.raises(BadFrame, match="alone take 6"):
        _frames_of(FrameDecoder(), length.to_bytes(4, "big") + bytes(20))


def test_the_limit_may_grow_between_two_frames() -> None:
    decoder = FrameDecoder(100)
    kinds = []

    def take(kind: int, flags: int, channel: int, payload: memoryview) -> bool:
        kinds.append(kind)
        decoder.max_frame_bytes = 1000
        return True

    decoder.receive_data(_bytes(1, 0, b"", None) + _bytes(2, 0, bytes(500), None), take)
    assert kinds == [1, 2]


def test_no_frame_is_passed_on_after_the_one_with_which_they_end() -> None:
    kinds = []
    FrameDecoder().receive_data(
        _bytes(1, 0, b"", None) + _bytes(2, 0, b"", None),
        lambda kind, flags, channel, payload: bool(kinds.append(kind)),
    )
    assert kinds == [1]


def test_encoding_over_the_limit_is_refused() -> None:
    encode_frame(1, 0, bytes(94), None, 100)
    with pytest.raises(FrameTooLarge, match="101 bytes"):
        encode_frame(1, 0, bytes(95), None, 100)
    with pytest.raises(FrameTooLarge):
        encode_frame(1, 0, bytes(40), [bytes(40), bytes(40)], 100)


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff12345"])
def test_a_head_that_goes_beyond_its_frame_is_refused(payload: bytes) -> None:
    with pytest.raises(BadFrame, match="too few for the head"):
        split_payload(memoryview(payload))


def test_memory_of_a_frame_in_tiny_chunks_is_about_the_frame() -> None:
    decoder = FrameDecoder()
    data = _bytes(0x10, 0, bytes(200_000), None)
    for at in range(0, len(data) - 2, 2):
        assert not _frames_of(decoder, data[at : at + 2])
    assert sum(sys.getsizeof(piece) for piece in decoder._pieces) < 1.2 * len(data)
