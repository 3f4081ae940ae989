from __future__ import annotations

from sparrow.broker.broker import Broker
from tests.broker.batches import batch
from tests.http_admin.calls import call, done
from tests.http_frontend.conftest import Http


async def filled(broker: Broker, count: int, topic: str = "orders") -> None:
    await broker.records.publish(topic, 0, batch(*[b"x"] * count))


async def test_a_topic_is_made_described_listed_and_deleted(http: Http) -> None:
    made = await done(
        http, "POST", "/v1/topics", {"name": "orders", "partitions": 3, "config": {"retention.ms": 5000}}, 201
    )

    assert (made["name"], made["partition_count"], len(made["partitions"])) == ("orders", 3, 3)
    assert next(e for e in made["config"] if e["name"] == "retention.ms")["value"] == "5000"
    assert await done(http, "GET", "/v1/topics/orders") == made
    listed = {"name": "orders", "id": made["id"], "partition_count": 3}
    assert await done(http, "GET", "/v1/topics?pattern=ord*") == {"topics": [listed]}
    assert await done(http, "GET", "/v1/topics?pattern=x*") == {"topics": []}
    await done(http, "DELETE", "/v1/topics/orders", status=204)
    assert (await call(http, "GET", "/v1/topics/orders")).code == "UNKNOWN_TOPIC"


async def test_a_topic_that_is_only_validated_is_not_made(http: Http) -> None:
    await done(http, "POST", "/v1/topics", {"name": "orders", "validate_only": True})

    assert await done(http, "GET", "/v1/topics") == {"topics": []}


async def test_a_topic_that_exists_is_a_conflict(http: Http) -> None:
    await http.broker.topics.create("orders")

    response = await call(http, "POST", "/v1/topics", {"name": "orders"})

    assert (response.status, response.code) == (409, "TOPIC_EXISTS")


async def test_settings_are_set_and_unset(http: Http) -> None:
    await http.broker.topics.create("orders", config={"retention.bytes": "77"})

    changed = await done(
        http, "PATCH", "/v1/topics/orders", {"set": {"retention.ms": "9000"}, "unset": ["retention.bytes"]}
    )

    own = {each["name"]: each["value"] for each in changed["config"] if each["source"] == "topic"}
    assert own == {"retention.ms": "9000"}


async def test_a_setting_of_any_json_type_is_taken_as_kafka_writes_it(http: Http) -> None:
    for name, value, written in [
        ("min.cleanable.dirty.ratio", 0.25, "0.25"),
        ("retention.ms", 7000, "7000"),
        ("preallocate", True, "true"),
        ("cleanup.policy", "compact", "compact"),
    ]:
        body = {"name": "t", "config": {name: value}, "validate_only": True}
        shown = await done(http, "POST", "/v1/topics", body)
        assert next(e["value"] for e in shown["config"] if e["name"] == name) == written


async def test_a_topic_grows(http: Http) -> None:
    await http.broker.topics.create("orders")

    grown = await done(http, "POST", "/v1/topics/orders/partitions", {"total": 4})

    assert grown["partition_count"] == 4
    assert (
        await call(http, "POST", "/v1/topics/orders/partitions", {"total": 2})
    ).code == "INVALID_PARTITIONS"


async def test_a_topic_is_truncated_before_an_offset_and_as_a_whole(http: Http) -> None:
    await http.broker.topics.create("orders", 2)
    await filled(http.broker, 10)

    assert await done(http, "POST", "/v1/topics/orders/truncate", {"before": {"0": 4}}) == {
        "starts": {"0": 4}
    }
    whole = await done(http, "POST", "/v1/topics/orders/truncate", {"before": {"0": -1, "1": -1}})

    assert whole == {"starts": {"0": 10, "1": 0}}
    response = await call(http, "POST", "/v1/topics/orders/truncate", {"before": {"0": 11}})
    assert (response.status, response.code) == (400, "OFFSET_OUT_OF_RANGE")


async def test_start_positions_are_looked_up(http: Http) -> None:
    await http.broker.topics.create("orders", 2)
    await filled(http.broker, 3)

    ends = await done(http, "GET", "/v1/topics/orders/offsets?at=end")
    late = await done(http, "GET", f"/v1/topics/orders/offsets?at=timestamp:{1 << 60}&partition=0")

    assert [(each["partition"], each["offset"]) for each in ends["offsets"]] == [(0, 3), (1, 0)]
    assert late == {"offsets": [{"partition": 0, "offset": -1, "timestamp_ms": -1}]}


NO_PLACES = ["5", "middle", "timestamp:", "timestamp:-1", "timestamp:" + "9" * 30, "end:1", ""]


async def test_an_invalid_start_position_is_refused(http: Http) -> None:
    await http.broker.topics.create("orders")

    for at in NO_PLACES:
        assert (await call(http, "GET", f"/v1/topics/orders/offsets?at={at}")).status == 400


NO_TOPICS = [
    {},
    [],
    {"name": ""},
    {"name": 7},
    {"name": "a/b"},
    {"name": "a\x00b"},
    {"name": "\ud800"},
    {"name": "x" * 5000},
    {"name": "t", "partitions": 2**63},
    {"name": "t", "partitions": "3"},
    {"name": "t", "partitions": 0},
    {"name": "t", "partitions": 999_999},
    {"name": "t", "config": {"retention.ms": [1]}},
    {"name": "t", "config": {"no.such.setting": "1"}},
    {"name": "t", "config": {str(i): "1" for i in range(2000)}},
    {"name": "t", "misspelt": 1},
]


async def test_invalid_topic_is_refused(http: Http) -> None:
    for body in NO_TOPICS:
        response = await call(http, "POST", "/v1/topics", body)

        assert response.status == 400, (body, response)
        assert response.code
        assert len(response.json["detail"]) < 10_000
        assert await done(http, "GET", "/v1/topics") == {"topics": []}


NO_JSON = [
    b"",
    b"{",
    b"\xff\xfe",
    b'{"name": "t", "partitions": NaN}',
    b"[" * 100_000,
    b'{"name": "t", "partitions": ' + b"9" * 5000 + b"}",
]


async def test_invalid_json_is_refused(http: Http) -> None:
    for body in NO_JSON:
        response = await http.ask("POST", "/v1/topics", body, {"Content-Type": "application/json"})

        assert response.status == 400, (body, response)
        assert response.code


async def test_a_body_that_is_not_said_to_be_json_or_is_too_large_is_refused(http: Http) -> None:
    for kind in ("", "text/plain", "application/x-www-form-urlencoded", "x" * 500, "application/jsonx"):
        response = await http.ask("POST", "/v1/topics", b'{"name": "t"}', {"Content-Type": kind})
        assert (response.status, response.code) == (415, "UNSUPPORTED_MEDIA_TYPE"), kind
    for kind in ("application/json", "Application/JSON; charset=utf-8", "application/vnd.me+json"):
        response = await http.ask(
            "POST", "/v1/topics", b'{"name": "t", "validate_only": true}', {"Content-Type": kind}
        )
        assert response.status == 200, (kind, response)
    large = b'{"name": "' + b"x" * (2 << 20) + b'"}'
    response = await http.ask("POST", "/v1/topics", large, {"Content-Type": "application/json"})
    assert (response.status, response.code) == (413, "BODY_TOO_LARGE")


async def test_a_parameter_that_is_not_known_or_stands_twice_is_refused(http: Http) -> None:
    for path in ("topics?patern=a", "topics?pattern=a&pattern=b", "groups?x", "broker?=1", "queues/q?full=1"):
        response = await call(http, "GET", f"/v1/{path}")
        assert (response.status, response.code) == (400, "INVALID_ARGUMENT"), path
    assert (await call(http, "POST", "/v1/topics?dry=1", {"name": "t"})).status == 400
    assert await done(http, "GET", "/v1/topics?") == {"topics": []}
