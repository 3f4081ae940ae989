"""Request bodies and headers, decoded with other libraries."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from sparrow.broker.webhooks.endpoint import FORMATS, Secret, make_secret
from sparrow.frontends.webhook.formats import render
from sparrow.frontends.webhook.payload import MAX_HEADER_BYTES, Payload, WebhookDelivery
from sparrow.frontends.webhook.signer import Signer, id_of
from sparrow.records.record import Record

NOW_MS = 1_700_000_000_123
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def record(
    value: bytes | None = b"hello", key: bytes | None = None, *headers: tuple[str, bytes | None]
) -> Record:
    return Record("orders", 3, 1 << 40, NOW_MS, key, value, headers)


def rendered(found: Record, form: str = "raw", subscriber: str = "hook") -> Payload:
    return render(WebhookDelivery(found, "jobs", subscriber, 2, id_of(found, "jobs")), form)


def headers(payload: Payload) -> dict[str, str]:
    return {name.lower(): value for name, value in payload.headers}


def event(payload: Payload) -> Any:
    return from_http_event(
        HTTPMessage({"content-type": payload.content_type, **headers(payload)}, payload.body)
    )


# ── raw ───────────────────────────────────────────────────────────────────────────────────────────


def test_raw_is_the_value_with_all_about_it_in_headers() -> None:
    found = record(
        b"\x00\xff", b"k", ("content-type", b"image/png"), ("colour", b"red"), ("traceparent", TRACE)
    )
    payload = rendered(found)
    assert (payload.content_type, payload.body) == ("image/png", b"\x00\xff")
    assert headers(payload) == {
        "sparrow-queue": "jobs",
        "sparrow-subscriber": "hook",
        "sparrow-topic": "orders",
        "sparrow-partition": "3",
        "sparrow-offset": str(1 << 40),
        "sparrow-timestamp-ms": str(NOW_MS),
        "sparrow-delivery-count": "2",
        "sparrow-key": "k",
        "sparrow-header-content-type": "image/png",
        "sparrow-header-colour": "red",
        "sparrow-header-traceparent": TRACE.decode(),
        "traceparent": TRACE.decode(),
    }


def test_where_http_would_lose_something_all_headers_are_json() -> None:
    found = record(
        b"x", b"\xff", ("a", "é".encode()), ("b", b"x\r\ny: z"), ("c d", b"x"), ("e", None), ("f", b" x")
    )
    got = headers(rendered(found))
    assert b64decode(got["sparrow-key-base64"]) == b"\xff"
    assert json.loads(got["sparrow-headers"]) == [
        ["a", "é"],
        ["b", "x\r\ny: z"],
        ["c d", "x"],
        ["e", None],
        ["f", " x"],
    ]
    assert got["sparrow-headers"].isascii()
    assert not any(name.startswith("sparrow-header-") for name in got)


def test_more_headers_than_a_server_takes_are_left_out_and_counted() -> None:
    got = headers(rendered(record(b"x", b"k" * 5000, *[(f"h{number}", b"v") for number in range(70)])))
    assert got["sparrow-headers-omitted"] == "70"
    assert got["sparrow-key-omitted"] == "5000"


def test_a_record_without_a_value_says_so() -> None:
    assert headers(rendered(record(None)))["sparrow-null"] == "true"
    assert "sparrow-null" not in headers(rendered(record(b"")))


@pytest.mark.parametrize("value", [b"text", b"a/b\r\nx: y", b"", "é/é".encode(), b"a/b" + b"c" * 999])
def test_a_content_type_that_is_none_is_not_sent_as_one(value: bytes) -> None:
    assert rendered(record(b"x", None, ("content-type", value))).content_type == "application/octet-stream"


def test_a_name_that_is_not_plain_is_percent_encoded() -> None:
    payload = render(WebhookDelivery(record(), "jöbs é", "ho ok", 1, "id"), "raw")
    assert headers(payload)["sparrow-queue"] == "j%C3%B6bs%20%C3%A9"
    assert headers(payload)["sparrow-subscriber"] == "ho ok"


ANY_RECORD = st.builds(
    Record,
    st.just("orders"),
    st.just(0),
    st.integers(0, 1 << 62),
    st.integers(-1, 1 << 62),
    st.none() | st.binary(max_size=9000),
    st.none() | st.binary(max_size=300) | st.just(b'{"a": 1}'),
    st.lists(
        st.tuples(
            st.text(max_size=20) | st.sampled_from(["content-type", "message-id", "ce_id", "ce_type",
            "traceparent", "parent-id"]),
            st.none() | st.binary(max_size=3000) | st.sampled_from([b"application/json", b"1.0",
            b"text/plain", b"a b"]),
        ),
        max_size=80,
    ).map(tuple),
)  # fmt: skip


@given(ANY_RECORD, st.sampled_from(FORMATS))
def test_any_record_becomes_a_request_with_headers_that_http_can_carry(found: Record, form: str) -> None:
    payload = rendered(found, form)
    total = 0
    for name, value in [("content-type", payload.content_type), *payload.headers]:
        assert name.isascii()
        assert name.isprintable()
        assert " " not in name
        assert value.isascii()
        assert not set(value) & set("\r\n\0")
        total += len(value)
    assert total < MAX_HEADER_BYTES + 4000
    if form in ("json", "cloudevents", "syncbrok"):
        json.loads(payload.body)
    if form.startswith("cloudevents"):
        assert event(payload).get_specversion() == "1.0"


# ── json, syncbrok ────────────────────────────────────────────────────────────────────────────────


def test_json_has_the_record_as_an_object_and_its_delivery() -> None:
    found = record(b"\xff", "ké".encode(), ("a", b"b"), ("n", None), ("x", b"\xfe"))
    assert json.loads(rendered(found, "json").body) == {
        "topic": "orders",
        "partition": 3,
        "offset": 1 << 40,
        "timestamp_ms": NOW_MS,
        "key": "ké",
        "value_base64": "/w==",
        "headers": [["a", "b"], ["n", None], ["x", {"base64": "/g=="}]],
        "queue": "jobs",
        "subscriber": "hook",
        "delivery_count": 2,
    }


def test_syncbrok_gets_id_and_content_and_nothing_else() -> None:
    own_id = b"0193b6a2-6a3e-7c1f-9f0a-2d6f6f0b8a11"
    payload = rendered(record(b"hello", None, ("message-id", own_id)), "syncbrok")
    assert payload == Payload("application/json", b'{"id":"%b","content":"aGVsbG8="}' % own_id, [])


def test_syncbrok_gets_a_stable_uuid_for_other_ids() -> None:
    def given(*headers: tuple[str, bytes | None]) -> str:
        return str(json.loads(rendered(record(b"hello", None, *headers), "syncbrok").body)["id"])

    ids = [given(), given(("message-id", b"abc")), given(("message-id", b"abd"))]
    assert [str(UUID(each)) for each in ids] == ids
    assert len(set(ids)) == 3
    assert given() == ids[0]


# ── CloudEvents ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["cloudevents", "cloudevents-binary"])
def test_a_record_is_a_cloud_event(form: str) -> None:
    found = record(
        b'{"a": 1}',
        b"customer 7",
        ("content-type", b"application/json"),
        ("parent-id", b"p1"),
        ("parent-id", b"p2"),
    )
    got = event(rendered(found, form))
    assert got.get_id() == "jobs/orders/3/1099511627776"
    assert (got.get_source(), got.get_type()) == ("/topics/orders", "sparrow.message")
    assert got.get_subject() == got.get_extension("partitionkey") == "customer 7"
    assert got.get_time() == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert got.get_datacontenttype() == "application/json"
    assert got.get_data() == {"a": 1}
    assert got.get_extension("sparrowqueue") == "jobs"
    assert got.get_extension("sparrowoffset") == str(1 << 40)
    assert got.get_extension("sparrowparents") == "p1,p2"


@pytest.mark.parametrize("form", ["cloudevents", "cloudevents-binary"])
def test_a_record_that_is_a_cloud_event_keeps_its_attributes(form: str) -> None:
    own = [
        ("ce_id", b"7"),
        ("ce_source", b"/me"),
        ("ce_type", b"made"),
        ("ce_specversion", b"1.0"),
        ("ce_shoe", "größe".encode()),
    ]
    got = event(rendered(record(b"x", None, *own, ("content-type", b"text/plain")), form))
    assert (got.get_id(), got.get_source(), got.get_type()) == ("7", "/me", "made")
    assert got.get_extension("shoe") == "größe"
    assert got.get_datacontenttype() == "text/plain"


@pytest.mark.parametrize(
    ("value", "content_type", "member", "data"),
    [
        (b"plain", None, "data", "plain"),
        (b"\xff", None, "data_base64", "/w=="),
        (b"\xff", b"text/plain", "data_base64", "/w=="),
        (b"{broken", b"application/json", "data_base64", "e2Jyb2tlbg=="),
        (b"12345678901234567890123", b"application/x+json", "data", 12345678901234567890123),
        (b"\x01", b"image/png", "data_base64", "AQ=="),
        (None, None, "nothing", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "own",
    [
        (),
        (
            ("ce_id", b"7"),
            ("ce_source", b"/"),
            ("ce_type", b"t"),
            ("ce_specversion", b"1.0"),
            ("ce_data", b"no"),
        ),
    ],
)
def test_data_is_json_text_or_base64(
    value: bytes | None,
    content_type: bytes | None,
    member: str,
    data: Any,
    own: tuple[tuple[str, bytes], ...],
) -> None:
    found = record(value, None, *own, *([("content-type", content_type)] if content_type else []))
    body = json.loads(rendered(found, "cloudevents").body)
    assert body.get(member) == data
    assert len({"data", "data_base64"} & set(body)) == (value is not None)


# ── signatures ────────────────────────────────────────────────────────────────────────────────────


@given(st.text(max_size=200), st.integers(1, 5))
def test_signatures_are_those_of_standard_webhooks(text: str, count: int) -> None:
    body = text.encode()
    secrets = [make_secret(bytes([n] * 32)) for n in range(count)]
    now_ms = round(datetime.now(UTC).timestamp() * 1000)
    signed = dict(Signer([Secret(each) for each in secrets]).headers("msg_1", body, now_ms))
    for each in secrets:
        Webhook(each).verify(body, signed, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(make_secret(b"x" * 32)).verify(body, signed, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(secrets[0]).verify(body + b"!", signed, json_parse=False)


@given(st.text("ab.%1", min_size=1, max_size=20), st.text("ab.%1", min_size=1, max_size=20))
def test_signed_bytes_have_one_meaning_only(one: str, other: str) -> None:
    # Publishers choose ids: "x.1700000000.{}" must not pass for a body or a time of another
    # message.
    signer = Signer([Secret(make_secret(b"s" * 32))])
    ids = [dict(signer.headers(each, b"", NOW_MS))["webhook-id"] for each in (one, other)]
    assert not any("." in each for each in ids)
    assert (ids[0] == ids[1]) == (one == other)
    if not {".", "%"} & set(one):
        assert ids[0] == one


def test_an_old_secret_signs_until_its_time_is_over() -> None:
    old, new = make_secret(b"o" * 32), make_secret(b"n" * 32)
    signer = Signer([Secret(new), Secret(old, NOW_MS + 1)])
    assert dict(signer.headers("id", b"", NOW_MS))["webhook-signature"].count("v1,") == 2
    assert dict(signer.headers("id", b"", NOW_MS + 1))["webhook-signature"].count("v1,") == 1
    assert "webhook-signature" not in dict(Signer([]).headers("id", b"", NOW_MS))


def test_the_id_is_the_messages_own_or_its_position() -> None:
    assert id_of(record(b"", None, ("message-id", b"a.b-1")), "jobs") == "a.b-1"
    for odd in (b"", b"a b", b"a\n", "é".encode(), b"x" * 999, None):
        assert id_of(record(b"", None, ("message-id", odd)), "jobs") == f"jobs/orders/3/{1 << 40}"
