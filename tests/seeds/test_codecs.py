"""Properties of the codecs of seed systems, for any bytes, split in any way."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparrow.base.errors import BadFrame, ProtocolError
from sparrow.protocol.seeds import diy, mbus, messagebroker
from tests.seeds import diy_client, messagebroker_client

MAX_BYTES = 1000

names = st.binary(min_size=1, max_size=255)
data = st.binary(max_size=60)
times = st.integers(-(1 << 63), (1 << 63) - 1)


def equal_diy_frames(topic: bytes, key: bytes, size: int, count: int) -> bytes:
    """Return frames that differ only in time and content."""
    return b"".join(
        diy_client.frame(2, diy_client.fields(topic, key, bytes([number]) * size), 2, number)
        for number in range(count)
    )


def equal_broker_messages(topic: bytes, size: int, count: int) -> bytes:
    return b"".join(messagebroker_client.message(topic, bytes([number]) * size) for number in range(count))


topics = st.sampled_from([b"a", b"b", b"ab"])
diy_frames = st.one_of(
    st.builds(equal_diy_frames, topics, st.binary(max_size=2), st.integers(0, 20), st.integers(1, 30)),
    st.builds(
        lambda topic, key, value, time: diy_client.frame(2, diy_client.fields(topic, key, value), 2, time),
        topics,
        st.binary(max_size=3),
        data,
        times,
    ),
    st.builds(lambda topic, time: diy_client.frame(3, diy_client.fields(topic), 2, time), names, times),
    st.builds(diy_client.frame, st.sampled_from([0, 1, 4, 9, 255]), data),
)
broker_messages = st.one_of(
    st.builds(equal_broker_messages, topics, st.integers(0, 20), st.integers(1, 30)),
    st.builds(
        messagebroker_client.message,
        topics,
        st.one_of(data, st.just(b"x" * (MAX_BYTES + 1))),
        st.sampled_from([b"topic:", b"topic:", b"topic:", b"topi", b""]),
    ),
)
broker_actions = st.one_of(
    st.builds(
        messagebroker_client.subscription,
        st.lists(st.text(max_size=5), max_size=3),
        st.integers(0, 4),
        st.integers(0, 9),
    ),
    st.builds(
        lambda topics: b"\x00\x02" + messagebroker_client.names(topics),
        st.lists(st.text(max_size=5), max_size=3),
    ),
    st.builds(lambda array: struct.pack(">HI", 1, len(array)) + array + b"\x00\x01", st.binary(max_size=8)),
    st.builds(struct.Struct(">H").pack, st.integers(3, 7)),
)


def diy_events(chunks: Sequence[bytes]) -> list[Any]:
    """Return the messages one by one, and the error of a broken frame."""
    decoder = diy.Decoder(MAX_BYTES)
    found: list[Any] = []
    for chunk in chunks:
        decoder.receive_data(chunk)
        try:
            for event in decoder.events():
                if isinstance(event, diy.Publish):
                    columns = zip(event.keys, event.values, event.timestamps_ns, strict=True)
                    found += [(event.topic, *item) for item in columns]
                else:
                    found.append(event)
        except ProtocolError as error:
            found.append(error.text)
            break
    return found


def broker_events(chunks: Sequence[bytes]) -> list[Any]:
    decoder = messagebroker.Decoder(MAX_BYTES)
    found: list[Any] = []
    for chunk in chunks:
        decoder.receive_data(chunk)
        for event in decoder.events():
            if isinstance(event, messagebroker.Publish):
                found += [(event.topic, value) for value in event.values]
            else:
                found.append(event)
        if found and isinstance(found[-1], messagebroker.RequestFault) and found[-1].is_end:
            break
    return found


def split(whole: bytes, positions: Sequence[int]) -> list[bytes]:
    cuts = sorted({position % (len(whole) + 1) for position in positions} | {0, len(whole)})
    return [whole[first:end] for first, end in pairwise(cuts)]


positions = st.lists(st.integers(0, 10_000), max_size=8)


@given(st.lists(diy_frames, max_size=8), st.binary(max_size=20), positions)
def test_any_split_of_a_diy_conversation_gives_the_same_events(
    frames: list[bytes], tail: bytes, cuts: list[int]
) -> None:
    whole = b"".join(frames) + tail
    assert diy_events(split(whole, cuts)) == diy_events([whole])
    assert diy_events([bytes([byte]) for byte in whole]) == diy_events([whole])


@given(st.lists(broker_messages, max_size=8), st.binary(max_size=20), positions)
def test_any_split_of_a_publishers_messages_gives_the_same_events(
    messages: list[bytes], tail: bytes, cuts: list[int]
) -> None:
    whole = b"\x00\x03" + b"".join(messages) + tail
    assert broker_events(split(whole, cuts)) == broker_events([whole])


@given(st.lists(broker_actions, max_size=8), st.binary(max_size=20), positions)
@example([b"\x00\x03", b"\x00\x03"], b"\x00\x00\x00", [4])
def test_any_split_of_a_subscribers_actions_gives_the_same_events(
    actions: list[bytes], tail: bytes, cuts: list[int]
) -> None:
    whole = b"".join(actions) + tail
    assert broker_events(split(whole, cuts)) == broker_events([whole])


@given(st.binary(max_size=300), positions)
def test_garbage_is_read_by_all_and_held_by_none(garbage: bytes, cuts: list[int]) -> None:
    for events in (diy_events, broker_events):
        assert events(split(garbage, cuts)) == events([garbage])
    for first in (b"\x00\x03", b"\x00\x01"):
        assert broker_events(split(first + garbage, cuts)) == broker_events([first + garbage])
    with suppress(BadFrame):
        assert mbus.decode(garbage).topic


@given(names, st.binary(max_size=255), data, times)
def test_frames_for_a_diy_client_equal_its_own(topic: bytes, key: bytes, value: bytes, time: int) -> None:
    written = diy.message(diy.PUBLISH, topic, key, value, timestamp_ns=time)
    if len(topic) + len(key) > 255:
        key = b""
    assert written == diy_client.frame(2, diy_client.fields(topic, key, value), 2, time)
    assert diy_events([written]) == [(topic, key, value, time)]


KEYS = st.sampled_from(["Topic", "topic", "TOPIC"])
VALUES = st.one_of(st.text(max_size=70), st.binary(max_size=300))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(max_size=40),
    st.binary(max_size=40),
)


@given(
    KEYS,
    VALUES.filter(bool),
    st.sampled_from(["Data", "data"]),
    VALUES,
    st.dictionaries(st.text(max_size=40), SCALARS, max_size=5),
)
def test_a_map_of_any_encoder_is_understood(
    topic_key: str, topic: str | bytes, data_key: str, value: str | bytes, more: dict[str, Any]
) -> None:
    more = {name: each for name, each in more.items() if name.lower() not in ("topic", "data")}
    sent = mbus.decode(msgspec.msgpack.encode({**more, topic_key: topic, data_key: value}))
    assert sent == (raw(topic), raw(value))


def raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


@given(st.binary(max_size=40), st.integers(0, 60))
def test_a_map_that_is_cut_is_no_message(value: bytes, position: int) -> None:
    whole = msgspec.msgpack.encode({"Topic": "t", "Data": value})
    with pytest.raises(BadFrame):
        mbus.decode(whole[: position % len(whole)])


LYING = [
    (diy_events, struct.pack(">IBq", 0xFFFFFFFF, 2, 0)),
    (broker_events, b"\x00\x03\x00\x07topic:t\xff\xff\xff\xff"),
    (broker_events, b"\x00\x03\x00\x01t\xff\xff\xff\xff"),
    (broker_events, b"\x00\x01\xff\xff\xff\xff"),
    (broker_events, b"\x00\x02\x00\x0f\xff\xff"),
]


@pytest.mark.parametrize(("events", "start"), LYING)
def test_a_length_that_lies_costs_no_memory(
    events: Callable[[Sequence[bytes]], list[Any]], start: bytes
) -> None:
    chunk = b"\x00" * 65536
    tracemalloc.start()
    try:
        events([start, *([chunk] * 40)])
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()


def test_single_bytes_are_not_parsed_again_and_again() -> None:
    decoder = diy.Decoder(1 << 20)
    frame = diy_client.frame(2, diy_client.fields(b"t", b"", b"x" * 100_000), 2, 0)
    for position in range(len(frame) - 1):  # half a minute if each copied all the bytes
        decoder.receive_data(frame[position : position + 1])
        assert not list(decoder.events())
    assert decoder.bytes_wanted == len(frame)
    decoder.receive_data(frame[-1:])
    assert len(list(decoder.events())) == 1
    assert decoder.bytes_wanted == 0
