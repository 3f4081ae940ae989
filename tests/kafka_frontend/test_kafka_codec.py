"""The codec compared with kio's: every key, every version, both directions."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from sparrow.frontends.kafka.apis import APIS
from sparrow.frontends.kafka.codec.requests import lift, read_header, read_request
from sparrow.frontends.kafka.codec.responses import write_response
from sparrow.frontends.kafka.codec.schema import wire_fields
from sparrow.frontends.kafka.frame_receiver import MalformedRequest
from tests.kafka_frontend.raw import decode, encode
from tests.kafka_frontend.schemas import messages

VERSIONS = [
    (api.key, version, route.last if route.schema < 0 else route.schema)
    for api in APIS.values()
    for route in api.routes
    for version in range(route.first, route.last + 1)
]
versions = st.sampled_from(VERSIONS)
PRODUCE = 0


@pytest.mark.slow
@given(st.data(), versions)
def test_a_request_of_any_version_reads_as_it_was_written(
    data: st.DataObject, at: tuple[int, int, int]
) -> None:
    key, version, _ = at
    request = data.draw(messages(load_request_schema(key, version)))
    frame = encode(request, 7, "someone")[4:]
    header = read_header(frame)
    assert (header.api_key, header.version, header.correlation_id, header.client_id) == (
        key,
        version,
        7,
        "someone",
    )
    assert_same_request(read_request(frame, header), request)


@pytest.mark.slow
@given(st.data(), versions)
def test_a_request_is_lifted_with_its_values_and_the_defaults_of_the_rest(
    data: st.DataObject, at: tuple[int, int, int]
) -> None:
    key, version, newest = at
    request = data.draw(messages(load_request_schema(key, version)))
    lifted = lift(request, load_request_schema(key, newest))
    assert type(lifted) is load_request_schema(key, newest)
    assert_same(lifted, request)


@pytest.mark.slow
@given(st.data(), versions)
def test_a_response_is_written_as_any_version(data: st.DataObject, at: tuple[int, int, int]) -> None:
    key, version, newest = at
    response = data.draw(messages(load_response_schema(key, newest)))
    frame = b"".join(write_response(key, version, 99, response))
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    correlation_id, body = decode(key, version, frame[4:])
    assert correlation_id == 99
    assert_same(body, response)


@pytest.mark.slow
@given(st.data(), versions, st.integers(0, 200))
def test_a_request_cut_short_is_refused(data: st.DataObject, at: tuple[int, int, int], cut: int) -> None:
    key, version, _ = at
    frame = encode(data.draw(messages(load_request_schema(key, version))))[4:]
    short = frame[: max(0, len(frame) - 1 - cut)]
    with pytest.raises(MalformedRequest):
        read_request(short, read_header(short))


@given(st.binary(max_size=60), versions)
def test_any_bytes_are_a_request_or_refused(body: bytes, at: tuple[int, int, int]) -> None:
    key, version, newest = at
    frame = key.to_bytes(2) + version.to_bytes(2) + body
    try:
        header = read_header(frame)
        request = read_request(frame, header)
        if key != PRODUCE:
            lift(request, load_request_schema(key, newest))
    except MalformedRequest:
        pass


@pytest.mark.slow
@given(
    st.data(),
    versions,
    st.integers(0, 10**6),
    st.sampled_from([b"\xff\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00"]),
)
def test_counts_that_are_not_there_ask_for_no_memory(
    data: st.DataObject, at: tuple[int, int, int], place: int, count: bytes
) -> None:
    key, version, _ = at
    frame = bytearray(encode(data.draw(messages(load_request_schema(key, version))))[4:])
    start = 10 + place % max(1, len(frame) - 10)
    frame[start : start + len(count)] = count
    with contextlib.suppress(MalformedRequest):
        read_request(bytes(frame), read_header(bytes(frame)))


def assert_same_request(read: Any, written: Any) -> None:
    """Compare Produce requests, which have their own classes."""
    if type(written).__api_key__ != PRODUCE:
        assert read == written
        return
    has_ids = type(written).__version__ >= 13
    assert (read.transactional_id, read.acks) == (written.transactional_id, written.acks)
    assert read.timeout_ms == round(written.timeout.total_seconds() * 1000)
    assert [
        (each.topic_id if has_ids else each.name, [(one.index, one.records) for one in each.partition_data])
        for each in read.topic_data
    ] == [
        (each.topic_id if has_ids else each.name, [(one.index, one.records) for one in each.partition_data])
        for each in written.topic_data
    ]


def assert_same(one: Any, other: Any) -> None:
    """Compare the fields that both classes have; other fields of `one` must have their defaults."""
    if isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
        return
    if not hasattr(type(one), "__flexible__"):
        assert one == other
        return
    known = {each.name for each in wire_fields(type(other))}
    for each in wire_fields(type(one)):
        if each.name not in known:
            assert getattr(one, each.name) == each.default
        elif each.kind != "datetime_i64":
            value = getattr(other, each.name)
            is_new_null = value is None and not each.is_nullable
            assert_same(getattr(one, each.name), each.default if is_new_null else value)
