"""Search in messages: order, conditions, limits, and where the next request goes on."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import urlencode

import confluent_kafka
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparrow.broker.config import BrokerConfig
from sparrow.testing.running_broker import RunningBroker
from tests.broker.batches import batch
from tests.console.site import Api
from tests.http_frontend.conftest import Http, MakeHttp, make_http
from tests.repetitions import repetitions

__all__ = ["make_http"]
MANY = [b"%d" % number for number in range(5_000)]
KIND = {"content_type": "application/vnd.sparrow.messages+json"}


async def fill(http: Http, topic: str, messages: list[dict[str, Any]], partition: int) -> None:
    body = json.dumps({"messages": messages}).encode()
    done = await http.post(f"/v1/topics/{topic}/messages?partition={partition}", body, **KIND)
    assert done.status == 200, done.json


async def search(http: Http, topic: str, **query: Any) -> dict[str, Any]:
    found = await http.get(f"/v1/topics/{topic}/search?{urlencode(query)}")
    assert found.status == 200, found.json
    return dict(found.json)


async def everything(http: Http, topic: str, **query: Any) -> list[tuple[int, int]]:
    """Return (partition, offset) of all pages, in their order."""
    found: list[tuple[int, int]] = []
    page = await search(http, topic, **query)
    while True:
        found += [(each["partition"], each["offset"]) for each in page["messages"]]
        if not page["left"]:
            return found
        page = await search(http, topic, **{**query, "from": page["next"]})


@settings(max_examples=repetitions(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30)), min_size=1, max_size=40),
    limit=st.integers(1, 7),
    order=st.sampled_from(["newest", "oldest"]),
    has_key=st.booleans(),
)
async def test_pages_have_every_matching_message_once_in_order(
    make_http: MakeHttp, times: list[tuple[int, int]], limit: int, order: str, has_key: bool
) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=3))
    kept: list[tuple[int, int, int]] = []
    offsets = [0, 0, 0]
    times = sorted(times, key=lambda each: each[1])  # as publishers write them
    for number, (partition, at) in enumerate(times):
        key = "odd" if number % 2 else "even"
        message = {"key": key, "value": str(number), "timestamp_ms": at}
        await fill(http, "t", [message], partition) if number else await first(http, message, partition)
        if not has_key or key == "odd":
            kept.append((at, partition, offsets[partition]))
        offsets[partition] += 1
    found = await everything(
        http, "t", limit=limit, order=order, max_ms=10_000, **({"key": "odd"} if has_key else {})
    )
    expected = sorted(kept, reverse=order == "newest")
    assert sorted(found) == sorted((partition, offset) for _, partition, offset in expected)
    at_of = {(partition, offset): at for at, partition, offset in kept}
    shown = [at_of[each] for each in found]
    assert shown == sorted(shown, reverse=order == "newest")


async def first(http: Http, message: dict[str, Any], partition: int) -> None:
    await http.post("/v1/topics", b'{"name": "t", "partitions": 3}', content_type="application/json")
    await fill(http, "t", [message], partition)


async def test_conditions_meet_in_key_value_and_headers(make_http: MakeHttp) -> None:
    http = await make_http()
    await http.post("/v1/topics", b'{"name": "t", "partitions": 1}', content_type="application/json")
    messages: list[dict[str, Any]] = [
        {"key": "a", "value": "apple"},
        {"key": "b", "value": "apple pie", "headers": [["kind", "cake"]]},
        {"key": "apple", "value": None},
        {"value_base64": "AAFhcHBsZQ==", "headers": [["kind", None]]},
        {"value": "pear", "headers": [["note", "an apple"], ["kind", "fruit"]]},
    ]
    await fill(http, "t", messages, 0)

    async def offsets(**query: str) -> list[int]:
        return [each["offset"] for each in (await search(http, "t", order="oldest", **query))["messages"]]

    assert await offsets() == [0, 1, 2, 3, 4]
    assert await offsets(contains="apple") == [0, 1, 2, 3, 4]
    assert await offsets(contains="apple pie") == [1]
    assert await offsets(key="a") == [0]
    assert await offsets(key="") == []
    assert await offsets(header="kind") == [1, 3, 4]
    assert await offsets(header="kind=cake") == [1]
    assert await offsets(header="kind=cake", key="a") == []


async def test_long_values_are_cut_between_characters(make_http: MakeHttp) -> None:
    http = await make_http()
    await http.post("/v1/topics", b'{"name": "t", "partitions": 1}', content_type="application/json")
    await fill(http, "t", [{"value": "ä" * 100}, {"value": "short"}], 0)
    cut, whole = (await search(http, "t", order="oldest", max_value_bytes=11))["messages"]
    assert (cut["value"], cut["value_bytes"], cut["is_cut"]) == ("ä" * 5, 200, True)
    assert (whole["value"], whole["value_bytes"], whole["is_cut"]) == ("short", 5, False)


async def test_a_search_ends_after_its_bytes_and_goes_on(make_http: MakeHttp) -> None:
    http = await make_http()
    await http.post("/v1/topics", b'{"name": "t", "partitions": 1}', content_type="application/json")
    for _ in range(8):
        await fill(http, "t", [{"value": "x" * 500_000}], 0)
    page = await search(http, "t", contains="needle", max_read_bytes=1_000_000, max_ms=10_000)
    assert page["messages"] == []
    assert 0 < page["left"] < page["total"] == 8
    on = await search(http, "t", contains="needle", max_ms=10_000, **{"from": page["next"]})
    assert on["left"] == 0


@pytest.mark.slow
def test_aborted_records_and_compressed_ones(broker: RunningBroker) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.kafka, "transactional.id": "t1", "compression.type": "zstd"}
    )
    producer.init_transactions(30)
    for value, ends in (
        (b"aborted", producer.abort_transaction),
        (b"kept " * 100, producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce("transactional", value, key=b"k", partition=0)
        producer.flush(30)
        ends(30)
    api = Api(broker)
    shown = api.get("/v1/topics/transactional/search")["messages"]
    committed = api.get("/v1/topics/transactional/search?isolation=committed")["messages"]
    assert [each["value"] for each in shown] == ["kept " * 100, "aborted"]
    assert [each["value"] for each in committed] == ["kept " * 100]


@pytest.mark.slow
async def test_the_newest_of_a_million_messages_come_at_once(make_http: MakeHttp) -> None:
    http = await make_http()
    await http.broker.topics.create("t", partitions=1)
    for _ in range(200):
        await http.broker.records.publish("t", 0, batch(*MANY))
    began = time.perf_counter()
    page = await search(http, "t", limit=50)
    took_s = time.perf_counter() - began
    assert [each["offset"] for each in page["messages"]] == list(range(999_999, 999_949, -1))
    assert page["total"] == 1_000_000
    began = time.perf_counter()
    nothing = await search(http, "t", contains="nowhere", max_ms=300)
    assert nothing["left"] > 0
    # far more than it takes, far less than reading all of it
    assert (took_s < 2, time.perf_counter() - began < 5) == (True, True)
