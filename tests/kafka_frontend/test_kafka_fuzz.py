"""Requests that no client would send: every key, every version, any values. The broker responds or
closes the connection, and keeps running.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema

import sparrow.testing
from sparrow.frontends.kafka.apis import APIS
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient, decode, encode, request
from tests.kafka_frontend.requests import make_topic
from tests.kafka_frontend.schemas import KNOWN_IDS, messages
from tests.repetitions import repetitions

VERSIONS = [(key, version) for key, api in APIS.items() for version in range(api.first, api.last + 1)]


@pytest.fixture(scope="module")
def victim() -> Iterator[RunningBroker]:
    """Start a separate broker, as the requests delete, configure and fence everything they name."""
    with sparrow.testing.broker(process=True) as running:
        with RawClient(running.kafka) as raw:
            KNOWN_IDS[:] = [make_topic(raw, "t")]
        yield running
        with RawClient(running.kafka) as raw:
            assert raw.call(request(18, 0)).api_keys
        with open(running._host.log_path, encoding="utf-8") as log:
            assert "Traceback" not in log.read(), "a request met a bug"


@pytest.mark.slow
@settings(
    max_examples=repetitions(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data(), st.sampled_from(VERSIONS))
def test_any_request_is_answered_or_ends_the_connection(
    victim: RunningBroker, data: st.DataObject, at: tuple[int, int]
) -> None:
    key, version = at
    sent = data.draw(messages(load_request_schema(key, version)))
    with RawClient(victim.kafka) as raw:
        raw.send_bytes(encode(sent, 3))
        raw.send_bytes(encode(request(18, 0), 4))
        responses = _responses(raw)
    for frame in responses[:-1]:
        assert decode(key, version, frame)[0] == 3
    if responses:
        assert int.from_bytes(responses[-1][:4]) in {3, 4}


def _responses(raw: RawClient) -> list[bytes]:
    """Return all responses until that of the second request, or the end."""
    found: list[bytes] = []
    try:
        while not found or int.from_bytes(found[-1][:4]) != 4:
            found.append(raw.receive_frame())
    except ConnectionError:
        pass
    return found


@pytest.mark.slow
@settings(
    max_examples=repetitions(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data(), st.sampled_from(VERSIONS))
def test_any_request_with_flipped_bytes_does_no_harm(
    victim: RunningBroker, data: st.DataObject, at: tuple[int, int]
) -> None:
    key, version = at
    frame = bytearray(encode(data.draw(messages(load_request_schema(key, version)))))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(8, len(frame) - 1))
        frame[place] ^= data.draw(st.integers(1, 255))
    with RawClient(victim.kafka) as raw:
        raw.send_bytes(bytes(frame))
        raw.send_bytes(encode(request(18, 0), 4))
        _answers_of_damaged(raw)


def _answers_of_damaged(raw: RawClient) -> None:
    try:
        while int.from_bytes(raw.receive_frame()[:4]) != 4:
            pass
    except ConnectionError:
        pass
