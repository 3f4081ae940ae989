"""msbq's codec, for any bytes, split in any way."""

from __future__ import annotations

import base64
import itertools
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.protocol.seeds.msbq import (
    EndpointMessage,
    Event,
    MessageFrames,
    QueueAssertion,
    Receiver,
    Refusal,
    error_frame,
    quoted,
    quoted_body,
)

LIMIT = 1_000
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
)
fields = st.sampled_from(
    ["MessageType", "messagetype", "Name", "Type", "Durable", "StreamID", "Route", "body", "Body"]
)
contents = st.one_of(
    st.binary(max_size=60),
    st.dictionaries(fields, json_values | st.sampled_from(["Queue", "EPMessage", "Consumer"])).map(
        lambda value: json.dumps(value).encode()
    ),
)


def framed(content: bytes) -> bytes:
    return struct.pack("<I", len(content)) + content


def events_of(chunks: list[bytes]) -> list[Event]:
    receiver = Receiver(LIMIT)
    events = []
    for chunk in chunks:
        receiver.receive_data(chunk)
        events += receiver.events()
        assert receiver.bytes_wanted <= receiver.max_frame_bytes + 4
    return events


def shown(events: list[Event]) -> list[str]:
    return [
        f"{event.error.text} {event.stream}" if isinstance(event, Refusal) else repr(event)
        for event in events
    ]


def cut(data: bytes, positions: list[int]) -> list[bytes]:
    edges = [0, *sorted(position % (len(data) + 1) for position in positions), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.slow
@given(
    st.lists(contents.map(framed) | st.binary(max_size=30), max_size=8).map(b"".join),
    st.lists(st.integers(0, 5000)),
)
def test_any_bytes_cut_anywhere_give_the_same_events(data: bytes, positions: list[int]) -> None:
    assert shown(events_of(cut(data, positions))) == shown(events_of([data]))


@given(names, names, st.binary(max_size=200) | st.none(), names)
def test_a_message_is_read_as_it_was_written(route: str, kind: str, body: bytes | None, stream: str) -> None:
    written = MessageFrames(route, stream).frame(quoted(kind), quoted_body(body))
    assert events_of([written]) == [EndpointMessage(route, kind, body, stream)]
    encoded = None if body is None else base64.b64encode(body).decode()
    content = {"MessageType": "EPMessage", "Route": route, "Type": kind, "Body": encoded, "StreamID": stream}
    assert list(json.loads(written[4:]).items()) == list(content.items())
    as_other_cases = json.dumps({name.swapcase(): value for name, value in content.items()}).encode()
    assert events_of([framed(as_other_cases)]) == [EndpointMessage(route, kind, body, stream)]


@given(names, st.booleans(), names)
def test_an_assertion_is_read(name: str, is_durable: bool, stream: str) -> None:
    content = {"MessageType": "Queue", "Name": name, "Type": "P2P", "Durable": is_durable, "StreamID": stream}
    assert events_of([framed(json.dumps(content).encode())]) == [
        QueueAssertion(name, "P2P", is_durable, stream)
    ]


@given(st.text(), names)
def test_an_error_is_json_whatever_its_text(text: str, stream: str) -> None:
    frame = error_frame(text, stream)
    assert len(frame) == 4 + struct.unpack_from("<I", frame)[0]
    content = json.loads(frame[4:])
    assert base64.b64decode(content["Body"]) == text.encode(errors="replace")
    assert content["StreamID"] == stream


def test_a_length_over_the_limit_is_the_last_that_is_read() -> None:
    receiver = Receiver(LIMIT)
    good = framed(b'{"MessageType":"EPMessage","Route":"q"}')
    receiver.receive_data(good + struct.pack("<I", receiver.max_frame_bytes + 1) + b"x" * 10_000 + good)
    first, last = receiver.events()
    assert isinstance(first, EndpointMessage)
    assert isinstance(last, Refusal)
    assert last.is_last
    receiver.receive_data(good)
    assert receiver.events() == []
    assert receiver.bytes_wanted == 0


def test_the_largest_body_fits_with_the_longest_names() -> None:
    receiver = Receiver(LIMIT)
    content = {
        "MessageType": "EPMessage",
        "Route": "ü" * 249,
        "Type": "\x01" * 249,
        "Body": base64.b64encode(b"x" * LIMIT).decode(),
        "StreamID": "\u2028" * 200,
    }
    receiver.receive_data(framed(json.dumps(content).encode()))
    (event,) = receiver.events()
    assert isinstance(event, EndpointMessage)


@given(st.integers(0, 20))
def test_nothing_is_under_way_once_a_frame_that_came_in_pieces_is_whole(cut: int) -> None:
    receiver = Receiver(LIMIT)
    frame = framed(b'{"MessageType":"Consumer"}')
    receiver.receive_data(frame[:cut])
    receiver.receive_data(frame[cut:])
    assert receiver.bytes_wanted == 0
