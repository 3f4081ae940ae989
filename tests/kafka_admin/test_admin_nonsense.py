"""Any well-formed administrative request gets a response in its own version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema

import sparrow.testing
from sparrow.frontends.kafka.apis import APIS
from tests.kafka_admin.test_admin_versions import CHECKS
from tests.kafka_frontend.raw import RawClient
from tests.kafka_frontend.schemas import messages
from tests.repetitions import repetitions

REQUESTS = [(key, version) for key in CHECKS for version in range(APIS[key].first, APIS[key].last + 1)]


@pytest.fixture(scope="module")
def connection() -> Iterator[RawClient]:
    with sparrow.testing.broker(max_partitions=50) as broker, RawClient(broker.kafka) as client:
        yield client


@st.composite
def requests(draw: st.DrawFn) -> Any:
    key, version = draw(st.sampled_from(REQUESTS))
    return draw(messages(load_request_schema(key, version)))


@settings(
    max_examples=repetitions(150), deadline=None, suppress_health_check=list(HealthCheck), database=None
)
@given(requests())
def test_nonsense_is_answered(connection: RawClient, request: Any) -> None:
    connection.call(request)
