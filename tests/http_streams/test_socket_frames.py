"""Frames of the WebSocket protocol as text: each is parsed as written, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import UnknownTopic
from sparrow.frontends.http.sockets import client_frames as m
from sparrow.frontends.http.sockets import server_frames

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = [
    "subscription",
    "credit",
    "topic",
    "queue",
    "from",
    "records",
    "leases",
    "offsets",
    "messages",
    "delay_ms",
]
TYPES = [
    "hello",
    "publish",
    "subscribe",
    "credit",
    "ack",
    "nack",
    "commit",
    "unsubscribe",
    "ping",
    "nonsense",
]
FRAMES = st.builds(
    lambda kind, members: {"type": kind, **members},
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from([*NAMES, "id"]), JSON, max_size=4),
)


def read(text: str) -> m.AnyFrame | m.WrongFrame:
    try:
        return m.parse_frame(text)
    except m.WrongFrame as wrong:
        return wrong


@given(st.text())
def test_any_text_is_a_frame_or_refused_with_a_sentence(text: str) -> None:
    found = read(text)
    assert not isinstance(found, m.WrongFrame) or "docs/http.md" in found.text


@given(FRAMES)
def test_any_object_is_a_frame_or_refused_with_its_id(frame: dict[str, Any]) -> None:
    found = read(json.dumps(frame))
    given_id = frame.get("id")
    if isinstance(found, m.WrongFrame):
        assert found.id is None or found.id == given_id
        json.loads(server_frames.refusal(found, id=found.id, subscription=found.subscription))
    else:
        assert found.id == given_id
        assert type(found).__struct_config__.tag == frame["type"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '"ping"',
        "{}",
        '{"type":"ping"',
        '{"type":"ping"} x',
        '{"type":"ping","credits":1}',
        '{"type":"PING"}',
        '{"type":7}',
        '{"type":"ping","id":{}}',
        '{"type":"ping","id":1.5}',
        '{"type":"credit","subscription":"s","records":-1}',
        '{"type":"credit","subscription":"s","records":9007199254740992}',
        '{"type":"credit","subscription":"","records":1}',
        '{"type":"ack","subscription":"s","leases":[]}',
        '{"type":"ack","subscription":"s","leases":"abc"}',
        '{"type":"subscribe","subscription":"s","partition":-1}',
        '{"type":"subscribe","subscription":"s","topic":"\\ud800"}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_invalid_frame_is_refused(text: str) -> None:
    assert isinstance(read(text), m.WrongFrame)


def test_a_frame_that_is_wrong_is_answered_with_its_id_and_subscription() -> None:
    wrong = read('{"type":"credit","id":"c7","subscription":"s","records":"many"}')
    assert isinstance(wrong, m.WrongFrame)
    assert (
        json.loads(server_frames.refusal(wrong, id=wrong.id, subscription=wrong.subscription))["id"] == "c7"
    )


def test_a_refusal_has_the_problem_of_the_error() -> None:
    frame = json.loads(server_frames.refusal(UnknownTopic("There is no topic 'x'."), id=3))
    assert (frame["type"], frame["id"], frame["error"]["status"]) == ("error", 3, 404)
    assert frame["error"]["code"] == "UNKNOWN_TOPIC"


@given(st.lists(JSON, min_size=1, max_size=5), st.text(min_size=1, max_size=10))
def test_records_are_put_into_a_frame_without_being_read(records: list[Any], name: str) -> None:
    prefix = server_frames.messages_prefix(name)
    frame = json.loads(server_frames.messages(prefix, [json.dumps(each).encode() for each in records]))
    assert frame == {"type": "messages", "subscription": name, "messages": records}
