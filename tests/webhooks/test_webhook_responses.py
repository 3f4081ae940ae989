"""Meaning of the responses of endpoints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.frontends.webhook.responses import (
    MAX_RETRY_AFTER_S,
    EndpointResponse,
    judge,
    parse_retry_after_s,
)

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_2xx_accepts(status: int) -> None:
    assert judge(EndpointResponse(status, b"whatever"), "2xx", NOW_MS).is_accepted


@pytest.mark.parametrize("status", [100, 199, 300, 301, 304, 400, 404, 410, 429, 500, 503, 599])
def test_nothing_else_accepts(status: int) -> None:
    outcome = judge(EndpointResponse(status, b"true"), "body-true", NOW_MS)
    assert not outcome.is_accepted
    assert outcome.is_gone == (status == 410)
    assert str(status) in outcome.text


@pytest.mark.parametrize(
    ("body", "accepted"),
    [(b"true", True), (b" true\n", True), (b"false", False), (b"", False), (b"TRUE", False)],
)
def test_where_the_body_decides_it_must_be_true(body: bytes, accepted: bool) -> None:
    outcome = judge(EndpointResponse(200, body), "body-true", NOW_MS)
    assert outcome.is_accepted == accepted
    assert judge(EndpointResponse(200, body), "2xx", NOW_MS).is_accepted


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0), ("120", 120), (" 5 ", 5), ("999999", MAX_RETRY_AFTER_S), ("9" * 400, MAX_RETRY_AFTER_S),
        ("-1", 0), ("1.5", 0), ("soon", 0),
        ("", 0), ("٣", 0), ("Tue, 14 Nov 2023 22:14:20 GMT", 60), ("Tue, 14 Nov 2023 22:14:20 -0000", 60),
        (("Tue, 14 Nov 2022 22:14:20 "
         "GMT"), 0), ("Tue, 14 Nov 2093 22:14:20 GMT", MAX_RETRY_AFTER_S), ("Tue, 99 Nov 2023 22:14:20 GMT",
         0),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float) -> None:
    assert parse_retry_after_s(value, NOW_MS) == seconds


@given(st.text(max_size=40))
def test_any_retry_after_is_a_time_within_the_limit(value: str) -> None:
    assert 0 <= parse_retry_after_s(value, NOW_MS) <= MAX_RETRY_AFTER_S


@given(st.integers(100, 999), st.binary(max_size=400))
def test_any_answer_is_reported_in_one_short_printable_line(status: int, body: bytes) -> None:
    text = judge(EndpointResponse(status, body), "2xx", NOW_MS).text
    assert text.isprintable()
    assert len(text) < 300


def test_a_retry_after_of_an_accepted_delivery_holds_nothing() -> None:
    assert judge(EndpointResponse(200, b"", "60"), "2xx", NOW_MS).retry_after_s == 0
    assert judge(EndpointResponse(503, b"", "60"), "2xx", NOW_MS).retry_after_s == 60
