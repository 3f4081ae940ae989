"""Publishing by HTTP: the forms of a body, their messages, and what is refused before anything is
stored.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest

from sparrow.base.clock import ManualClock
from sparrow.broker.config import BrokerConfig
from sparrow.broker.quotas.rules import QuotaChange
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.records.batch import split
from sparrow.records.partitioner import partition_for_key
from sparrow.records.record import Record, decode
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_frontend.raw import Raw, request

PUBLISH = "/v1/topics/orders/messages"
NOW_MS = 1_000_000


async def records(http: Http, topic: str = "orders", partition: int = 0) -> list[Record]:
    """Return the records of the log, read without the frontend."""
    (fetched,) = await http.broker.records.fetch(
        [FetchRequest(topic, partition, 0, 64 << 20)], max_bytes=64 << 20
    )
    data = fetched.chunk.data if fetched.chunk else b""
    return [record for _, batch in split(data) for record in decode(batch, topic, partition)]


def many(*messages: dict[str, Any]) -> bytes:
    return json.dumps({"messages": messages}).encode()


async def post_many(http: Http, *messages: dict[str, Any], query: str = "") -> Any:
    return await http.post(PUBLISH + query, many(*messages), content_type="application/json")


# ── one message ───────────────────────────────────────────────────────────────────────────────────


async def test_a_raw_body_is_the_value_of_one_message(http: Http) -> None:
    response = await http.post(PUBLISH, b"\x00\xff raw", content_type="image/x-thing; a=b")
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    (record,) = await records(http)
    assert response.json == {"partition": 0, "offset": 0, "timestamp_ms": record.timestamp}
    assert (record.key, record.value) == (None, b"\x00\xff raw")
    assert record.headers == (("content-type", b"image/x-thing; a=b"),)


MEMBERS = (
    "key key_base64 value_base64 headers timestamp_ms priority delay_ms deliver_at_ms ttl_ms expires_at_ms"
    " message_id parents topic partition offset"
)


async def test_members_that_are_null_say_nothing(http: Http) -> None:
    assert (await post_many(http, {"value": "x", **dict.fromkeys(MEMBERS.split())})).status == 200
    (record,) = await records(http)
    assert (record.key, record.value, list(record.headers)) == (None, b"x", [])


@pytest.mark.parametrize("kind", [None, "application/octet-stream", "application/x-www-form-urlencoded"])
async def test_content_types_that_say_nothing_are_not_kept(http: Http, kind: str | None) -> None:
    await http.post(PUBLISH, b"a", **({} if kind is None else {"content_type": kind}))
    assert (await records(http))[0].headers == ()


async def test_headers_of_the_request_become_key_headers_and_time(http: Http) -> None:
    await http.post(
        PUBLISH,
        b"v",
        sparrow_key="customer",
        sparrow_header_Colour="blue",
        sparrow_header_empty="",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tracestate="a=b",
        sparrow_timestamp_ms="1700000000000",
    )
    (record,) = await records(http)
    assert (record.key, record.value, record.timestamp) == (b"customer", b"v", 1700000000000)
    assert dict(record.headers) == {
        "colour": b"blue",
        "empty": b"",
        "traceparent": b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": b"a=b",
    }


async def test_sparrow_headers_has_names_and_values_that_http_cannot_carry(http: Http) -> None:
    pairs = [["Großer Name", "ü"], ["x", None], ["x", {"base64": b64encode(b"\xff\x00").decode()}]]
    await http.post(PUBLISH, b"v", content_type="text/plain", sparrow_headers=json.dumps(pairs))
    (record,) = await records(http)
    assert record.headers == (("Großer Name", "ü".encode()), ("x", None), ("x", b"\xff\x00"))


async def test_a_tombstone_has_no_value(http: Http) -> None:
    assert (await http.post(PUBLISH, b"", sparrow_key="k", sparrow_null="true")).status == 200
    assert (await http.post(PUBLISH, b"", sparrow_key="k")).status == 200
    assert [record.value for record in await records(http)] == [None, b""]
    assert (await http.post(PUBLISH, b"a", sparrow_null="true")).code == "INVALID_ARGUMENT"


async def test_queue_options_become_well_known_headers(make_http: MakeHttp) -> None:
    http = await make_http(clock=ManualClock(wall_ms=NOW_MS))
    await http.post(
        PUBLISH,
        b"v",
        sparrow_priority="9",
        sparrow_delay_ms="5000",
        sparrow_ttl_ms="60000",
        sparrow_message_id="m1",
        sparrow_parent_ids="a, b",
    )
    await post_many(
        http,
        {
            "value": "v",
            "priority": 9,
            "deliver_at_ms": NOW_MS + 5000,
            "expires_at_ms": NOW_MS + 60000,
            "message_id": "m1",
            "parents": ["a", "b"],
        },
    )
    by_headers, by_json = await records(http)
    assert by_headers.headers == by_json.headers
    assert sorted(by_json.headers) == [
        ("deliver-at", b"%d" % (NOW_MS + 5000)),
        ("expires-at", b"%d" % (NOW_MS + 60000)),
        ("message-id", b"m1"),
        ("parent-id", b"a"),
        ("parent-id", b"b"),
        ("priority", b"9"),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {"sparrow_priority": "10"},
        {"sparrow_priority": "high"},
        {"sparrow_delay_ms": "-1"},
        {"sparrow_delay_ms": "9" * 19},
        {"sparrow_delay_ms": "9" * 5000},
        {"sparrow_ttl_ms": "0"},
        {"sparrow_delay_ms": "1", "sparrow_deliver_at_ms": "1"},
        {"sparrow_delay_ms": "5000", "sparrow_ttl_ms": "1000"},
        {"sparrow_message_id": ""},
        {"sparrow_parent_ids": "a,,b"},
        {"sparrow_priority": "1", "sparrow_header_priority": "1"},
        {"sparrow_timestamp_ms": "now"},
        {"sparrow_timestamp_ms": "-2"},
        {"sparrow_key": "a", "sparrow_key_base64": "YQ=="},
        {"sparrow_key_base64": "%"},
        {"sparrow_headers": "{"},
        {"sparrow_headers": '[["a", 1]]'},
        {"sparrow_headers": '[["a", {"base64": "%"}]]'},
        {"sparrow_headers": "[" * 50_000},
        {"sparrow_headers": "[]", "sparrow_header_a": "b"},
        {"sparrow_colour": "blue"},
        {"content_encoding": "gzip"},
        {"idempotency_key": ""},
    ],
    ids=lambda headers: str(headers)[:60],
)
async def test_headers_that_cannot_be_are_refused(http: Http, headers: dict[str, str]) -> None:
    response = await http.post(PUBLISH, b"v", **headers)
    assert response.status == (415 if "content_encoding" in headers else 400)
    assert response.json["detail"]
    assert http.broker.parts.topic_registry.find("orders") is None


# ── many messages ─────────────────────────────────────────────────────────────────────────────────


async def test_many_messages_as_json_are_answered_one_by_one(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=4))
    messages: list[dict[str, Any]] = [{"key": f"k{n}", "value": f"v{n}"} for n in range(20)]
    response = await post_many(http, *messages)
    assert response.status == 200
    places = response.json["messages"]
    stored = {p: await records(http, partition=p) for p in range(4)}
    for message, place in zip(messages, places, strict=True):
        record = stored[place["partition"]][place["offset"]]
        assert (record.key, record.value) == (message["key"].encode(), message["value"].encode())
        assert place["partition"] == partition_for_key(message["key"].encode(), 4)
        assert place["timestamp_ms"] == record.timestamp


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/vnd.sparrow.messages+x-ndjson; a=b"])
async def test_ndjson_has_a_message_on_each_line(http: Http, kind: str) -> None:
    body = b'{"value":"a"}\n\n  {"value_base64":"/w==","headers":{"x":"y"}}\r\n{"key":"k"}'
    response = await http.post(PUBLISH, body, content_type=kind)
    assert [each["offset"] for each in response.json["messages"]] == [0, 1, 2]
    assert [(r.key, r.value, r.headers) for r in await records(http)] == [
        (None, b"a", ()),
        (None, b"\xff", (("x", b"y"),)),
        (b"k", None, ()),
    ]


@pytest.mark.parametrize("body", [b'{"a": 1}', b"[1, 2]", b'"text"', b'{"messages": {}}', b" 17 "])
async def test_other_json_is_one_message_as_it_is(http: Http, body: bytes) -> None:
    response = await http.post(PUBLISH, body, content_type="application/json")
    assert response.json["offset"] == 0
    assert [record.value for record in await records(http)] == [body]


async def test_raw_takes_any_body_as_one_message(http: Http) -> None:
    body = many({"value": "a"})
    response = await http.post(f"{PUBLISH}?raw=true", body, content_type="application/json")
    assert response.json["offset"] == 0
    await http.post(f"{PUBLISH}?raw=true", b"{broken", content_type="application/json")
    assert [record.value for record in await records(http)] == [body, b"{broken"]


async def test_read_messages_can_be_published_unchanged(http: Http) -> None:
    await post_many(http, {"value_base64": "AP8=", "key": "k", "headers": [["a", None], ["a", "b"]]})
    page = await http.get(PUBLISH)
    await http.post("/v1/topics/copy/messages", page.body, content_type="application/json")
    lines = await http.ask("GET", PUBLISH, headers={"Accept": "application/x-ndjson"})
    await http.post("/v1/topics/copy/messages", lines.body, content_type="application/x-ndjson")
    (original,) = await records(http)
    for copy in await records(http, "copy"):
        assert (copy.key, copy.value, copy.headers, copy.timestamp) == (
            original.key,
            original.value,
            original.headers,
            original.timestamp,
        )


async def test_an_empty_list_stores_nothing(http: Http) -> None:
    response = await post_many(http)
    assert (response.status, response.json) == (200, {"messages": []})


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{broken"),
        ("application/json", b""),
        ("application/json", b'{"messages":["\xff"]}'),
        ("application/json", b'{"messages":["\\ud800"]}'),
        ("application/json", b'{"messages":[{"value":"\\ud800"}]}'),
        ("application/json", b'{"messages":[{"value":1}]}'),
        ("application/json", b'{"messages":[{"valeu":"a"}]}'),
        ("application/json", b'{"messages":[{}], "more": 1}'),
        ("application/json", b'{"messages":[{"value":"a","value_base64":"YQ=="}]}'),
        ("application/json", b'{"messages":[{"value_base64":"%"}]}'),
        ("application/json", b'{"messages":[{"timestamp_ms":9223372036854775808}]}'),
        ("application/json", b'{"messages":[{"timestamp_ms":-5}]}'),
        ("application/json", b'{"messages":[{"priority":10}]}'),
        ("application/json", b'{"messages":[{"parents":["",""]}]}'),
        ("application/json", b'{"messages":[{"delay_ms":1e300}]}'),
        ("application/json", b'{"messages":' + b"[" * 100_000),
        ("application/json", b"[" * 1_000_000),
        ("application/vnd.sparrow.messages+json", b"[]"),
        ("application/vnd.sparrow.messages+json", b"{}"),
        ("application/x-ndjson", b'{"value":"a"}\nnonsense'),
        ("application/x-ndjson", b'{"value":"a"}\n[]'),
        ("application/x-ndjson", b'{"value":"a"}{"value":"b"}'),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_one_wrong_message_refuses_the_request(http: Http, kind: str, body: bytes) -> None:
    response = await http.post(PUBLISH, body, content_type=kind)
    assert response.status == 400
    assert response.json["detail"]
    assert http.broker.parts.topic_registry.find("orders") is None


async def test_too_many_messages_are_refused(make_http: MakeHttp) -> None:
    http = await make_http(max_messages=10)
    assert (await post_many(http, *[{}] * 10)).status == 200
    assert (await post_many(http, *[{}] * 11)).code == "BODY_TOO_LARGE"
    lines = b'{"value":"a"}\n' * 11
    assert (await http.post(PUBLISH, lines, content_type="application/x-ndjson")).code == "BODY_TOO_LARGE"


async def test_a_swarm_of_tiny_objects_is_refused_before_it_is_decoded(http: Http) -> None:
    swarm = b'{"messages":[' + b"{}," * 1_000_000 + b"{}]}"
    assert (await http.post(PUBLISH, swarm, content_type="application/json")).code == "BODY_TOO_LARGE"
    texts = b'{"messages":[{"value":"' + b"{" * 200_000 + b'","parents":[' + b'"",' * 2_000_000 + b'""]}]}'
    assert (await http.post(PUBLISH, texts, content_type="application/json")).code == "BODY_TOO_LARGE"
    headers = b'{"messages":[{"headers":[' + b'["",""],' * 500_000 + b'["",""]]}]}'
    assert (await http.post(PUBLISH, headers, content_type="application/json")).code == "BODY_TOO_LARGE"
    braces = many({"value": "{" * 200_000 + '"\\'})
    assert (await http.post(PUBLISH, braces, content_type="application/json")).status == 200


async def test_some_that_fail_do_not_hinder_the_others(http: Http) -> None:
    await http.broker.topics.create("orders", config={"max.message.bytes": "1000"})
    response = await post_many(http, {"value": "a"}, {"value": "x" * 2000}, {"value": "b"})
    assert response.status == 207
    first, failed, last = response.json["messages"]
    assert (first["offset"], last["offset"]) == (0, 1)
    assert (failed["error"]["code"], failed["error"]["status"]) == ("RECORD_TOO_LARGE", 413)
    assert [record.value for record in await records(http)] == [b"a", b"b"]


async def test_if_all_fail_for_one_cause_the_response_is_the_problem(http: Http) -> None:
    await http.broker.topics.create("orders", config={"cleanup.policy": "compact"})
    response = await post_many(http, {"value": "a"}, {"value": "b"})
    assert (response.status, response.code) == (400, "INVALID_RECORD")
    assert (await http.post(PUBLISH, b"x" * 2_000_000, sparrow_key="k")).code == "RECORD_TOO_LARGE"


# ── parameters ────────────────────────────────────────────────────────────────────────────────────


async def test_a_partition_may_be_named(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=3))
    for partition in range(3):
        response = await http.post(f"{PUBLISH}?partition={partition}", b"a", sparrow_key="same")
        assert response.json["partition"] == partition
    assert (await http.post(f"{PUBLISH}?partition=3", b"a")).code == "UNKNOWN_PARTITION"


@pytest.mark.parametrize(("acks", "status"), [("all", 200), ("leader", 200), ("none", 202)])
async def test_acks_say_when_the_response_comes(http: Http, acks: str, status: int) -> None:
    response = await http.post(f"{PUBLISH}?acks={acks}", b"a")
    assert (response.status, response.json["offset"]) == (status, 0)


@pytest.mark.parametrize(
    "query",
    ["acks=some", "partition=-1", "partition=x", "partition=1&partition=1", "raw=maybe", "ack=all", "%ff=1"],
)
async def test_parameters_that_cannot_be_are_refused(http: Http, query: str) -> None:
    assert (await http.post(f"{PUBLISH}?{query}", b"a")).code == "INVALID_ARGUMENT"


async def test_a_topic_is_not_made_where_topics_are_not(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(auto_create_topics=False))
    response = await http.post(PUBLISH, b"a")
    assert (response.status, response.code) == (404, "UNKNOWN_TOPIC")
    assert response.json["instance"] == PUBLISH


async def test_a_key_makes_a_repeated_request_store_nothing_new(http: Http) -> None:
    first = await http.post(PUBLISH, b"a", idempotency_key="k-1")
    again = await http.post(PUBLISH, b"a", idempotency_key="k-1")
    assert (again.body, again.headers["idempotent-replay"]) == (first.body, "true")
    assert "idempotent-replay" not in first.headers
    assert len(await records(http)) == 1
    other = await http.post(PUBLISH, b"b", idempotency_key="k-1")
    assert (other.status, other.code) == (422, "IDEMPOTENCY_KEY_REUSED")


async def limited(http: Http) -> None:
    """Return a broker with a quota of a byte per second, which is used up."""
    change = QuotaChange((("user", None),), (("producer_byte_rate", 1.0),))
    assert await http.broker.quotas.alter([change]) == [None]
    assert (await http.post(PUBLISH, b"x" * 1000)).status == 200


async def test_publishing_is_throttled_before_anything_is_stored(http: Http) -> None:
    await limited(http)
    waiting = asyncio.ensure_future(http.post(PUBLISH, b"x"))
    await http.get("/healthz")
    assert (waiting.done(), len(await records(http))) == (False, 1)
    await http.frontend.drain(1)
    assert (await waiting).status == 200
    assert len(await records(http)) == 2


async def test_a_client_that_hangs_up_while_it_is_throttled_has_published_nothing(http: Http) -> None:
    await limited(http)
    async with Raw(http.port) as raw:
        raw.send(request("POST", PUBLISH, b"x"))
        await http.get("/healthz")
    async with asyncio.timeout(10):
        while http.frontend.connections:
            await asyncio.sleep(0.001)
    await http.frontend.drain(1)
    assert len(await records(http)) == 1
