"""Reading by HTTP: start position, limits, waiting, and the position of the next page."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.config import BrokerConfig
from sparrow.broker.quotas.rules import QuotaChange
from sparrow.frontends.http import responses
from sparrow.frontends.publisher import Message
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_frontend.raw import Raw, request

READ = "/v1/topics/orders/messages"


async def publish(http: Http, *values: str, partition: int = 0, time_ms: int = -1) -> None:
    messages = [Message(value.encode(), timestamp_ms=time_ms) for value in values]
    await http.frontend.publisher.publish("orders", messages, partition=partition, principal=ANONYMOUS)


def values(page: Any) -> list[str]:
    return [each["value"] for each in page.json["messages"]]


async def test_a_page_has_the_records_and_where_to_go_on(http: Http) -> None:
    await publish(http, "a", "b", time_ms=17)
    page = await http.get(READ)
    assert page.headers["cache-control"] == "no-store"
    assert page.json == {
        "messages": [
            {
                "topic": "orders",
                "partition": 0,
                "offset": offset,
                "timestamp_ms": 17,
                "key": None,
                "value": value,
                "headers": [],
            }
            for offset, value in enumerate("ab")
        ],
        "next": {"0": 2},
    }
    assert page.headers["sparrow-next"] == "0:2"


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("beginning", ["a", "b", "c"]),
        ("end", []),
        ("1", ["b", "c"]),
        ("3", []),
        ("timestamp:20", ["b", "c"]),
        ("timestamp:99", []),
        ("0:2", ["c"]),
        ("7:1", ["a", "b", "c"]),
    ],
)
async def test_reading_begins_at_the_start_position(http: Http, start: str, wanted: list[str]) -> None:
    for number, value in enumerate("abc", 1):
        await publish(http, value, time_ms=number * 10)
    assert values(await http.get(f"{READ}?from={start}")) == wanted


async def test_polling_on_sees_every_message_once(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=3))
    sent = [f"{partition}-{number}" for partition in range(3) for number in range(40)]
    for value in sent:
        await publish(http, value, partition=int(value[0]))
    found: list[str] = []
    place = "beginning"
    while True:
        page = await http.get(f"{READ}?limit=7&from={place}")
        if not page.json["messages"]:
            break
        assert len(page.json["messages"]) <= 7
        found += values(page)
        place = page.headers["sparrow-next"]
    assert sorted(found) == sorted(sent)
    for partition in "012":
        assert [v for v in found if v[0] == partition] == [v for v in sent if v[0] == partition]


async def test_a_full_partition_does_not_hide_the_others(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=2))
    await publish(http, *["many"] * 50, partition=0)
    await publish(http, "one", partition=1)
    seen = {value for _ in range(2) for value in values(await http.get(f"{READ}?limit=5"))}
    assert seen == {"many", "one"}


async def test_one_partition_may_be_read_alone(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=2))
    for partition in range(2):
        await publish(http, f"p{partition}", partition=partition)
    page = await http.get(f"{READ}?partition=1")
    assert (values(page), page.json["next"]) == (["p1"], {"1": 1})
    assert (await http.get(f"{READ}?partition=2")).code == "UNKNOWN_PARTITION"


async def test_lines_of_json_on_request(http: Http) -> None:
    await publish(http, "a", "b")
    page = await http.ask("GET", READ, headers={"Accept": "text/html, application/x-ndjson"})
    assert page.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["value"] for line in page.body.splitlines()] == ["a", "b"]
    assert page.headers["sparrow-next"] == "0:2"


async def test_a_wait_ends_with_the_first_message(http: Http) -> None:
    await publish(http, "old")
    waiting = asyncio.ensure_future(http.get(f"{READ}?from=end&wait_ms=30000"))
    partition = http.broker.parts.topic_registry.get("orders").partitions[0]
    async with asyncio.timeout(10):
        while not partition._waiters:
            await asyncio.sleep(0.005)
    await publish(http, "new")
    assert values(await waiting) == ["new"]


async def test_max_bytes_bounds_a_page_but_gives_a_batch_at_least(http: Http) -> None:
    for _ in range(10):
        await publish(http, "x" * 1000)
    assert len(values(await http.get(f"{READ}?max_bytes=1"))) == 1
    assert len(values(await http.get(f"{READ}?max_bytes=3500"))) == 3


async def test_an_offset_that_does_not_exist_is_refused(http: Http) -> None:
    await publish(http, *"abc")
    await http.broker.topics.delete_records("orders", {0: 2})
    for place in ("1", "4", "0:1"):
        response = await http.get(f"{READ}?from={place}")
        assert (response.status, response.code) == (400, "OFFSET_OUT_OF_RANGE")
    assert values(await http.get(READ)) == ["c"]


@pytest.mark.parametrize(
    "query",
    [
        "from=",
        "from=-1",
        "from=yesterday",
        "from=timestamp:",
        "from=0:1,0:2",
        "from=0:99999999999999999999",
        "from=9" + "9" * 30,
        "limit=0",
        "limit=100001",
        "wait_ms=60001",
        "max_bytes=0",
        "max_bytes=99999999999",
        "encoding=hex",
        "isolation=none",
        "partition=2147483648",
        "form=end",
    ],
)
async def test_parameters_that_cannot_be_are_refused(http: Http, query: str) -> None:
    await publish(http, "a")
    response = await http.get(f"{READ}?{query}")
    assert (response.status, response.code) == (400, "INVALID_ARGUMENT")


async def test_one_message_comes_as_it_is(http: Http) -> None:
    await http.post(READ, b"<script>", content_type="text/html", sparrow_key="k")
    response = await http.get(f"{READ}/0/0")
    assert (response.status, response.body) == (200, b"<script>")
    headers = response.headers
    assert (headers["content-type"], headers["sparrow-key"], headers["sparrow-offset"]) == (
        "text/html",
        "k",
        "0",
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "sandbox; default-src 'none'; frame-ancestors 'none'"


@pytest.mark.parametrize(
    ("place", "status"),
    [("0/1", 404), ("1/0", 404), ("0/x", 400), ("-1/0", 400), ("0/99999999999999999999", 400)],
)
async def test_a_message_that_is_not_there_is_a_problem(http: Http, place: str, status: int) -> None:
    await publish(http, "a")
    assert (await http.get(f"{READ}/{place}")).status == status


async def test_pages_that_nobody_takes_make_others_smaller_but_never_empty(make_http: MakeHttp) -> None:
    http = await make_http(send_budget_bytes=4_800_000)
    for _ in range(20):
        await publish(http, "x" * 200_000)
    assert len(values(await http.get(f"{READ}?max_bytes=10000000"))) == 2
    async with AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(Raw(http.port)) for _ in range(10)]
        for raw in slow:
            raw.send(request("GET", f"{READ}?max_bytes=10000000") * 40)
        async with asyncio.timeout(10):
            while (small := len(values(await http.get(f"{READ}?max_bytes=10000000")))) > 1:
                await asyncio.sleep(0.005)
        assert small == 1
    async with asyncio.timeout(10):
        while len(values(await http.get(f"{READ}?max_bytes=10000000"))) < 2:
            await asyncio.sleep(0.005)


async def test_a_page_of_compressed_messages_ends_before_it_grows_large(http: Http) -> None:
    await http.broker.topics.create("orders")
    batch = build_batch([b"x" * 300_000] * 3, compression=Compression.GZIP)
    for _ in range(20):
        await http.broker.records.publish("orders", 0, batch, principal=ANONYMOUS)
    start, sizes = "beginning", []
    while not sizes or sizes[-1]:
        page = await http.get(f"{READ}?limit=10000&max_bytes=16777216&from={start}")
        start = page.headers["sparrow-next"]
        sizes.append(len(values(page)))
    assert sizes == [3] * 20 + [0]
    assert start == "0:60"


async def test_reading_is_throttled_before_anything_is_read(make_http: MakeHttp) -> None:
    http = await make_http()
    await publish(http, "x" * 100_000)
    change = QuotaChange((("user", None),), (("consumer_byte_rate", 1.0),))
    assert await http.broker.quotas.alter([change]) == [None]
    assert (await http.get(READ)).status == 200
    waiting = [asyncio.ensure_future(http.get(path)) for path in (READ, f"{READ}/0/0")]
    await http.get("/healthz")
    assert not any(each.done() for each in waiting)
    assert http.frontend.send_budget.used_bytes() == 0
    await http.frontend.drain(1)
    assert [(await each).status for each in waiting] == [200, 200]


async def test_a_page_that_fails_or_whose_client_is_gone_keeps_no_memory(http: Http) -> None:
    await publish(http, "x" * 100_000)
    assert (await http.get(f"{READ}?from=17")).code == "OFFSET_OUT_OF_RANGE"
    async with Raw(http.port) as raw:
        raw.send(request("GET", f"{READ}?wait_ms=60000&from=end"))
        await http.get("/healthz")
    assert (await http.ask("HEAD", READ)).status == 200
    async with asyncio.timeout(10):
        while http.frontend.send_budget.used_bytes():
            await asyncio.sleep(0.001)


async def test_where_responses_fill_the_memory_further_ones_wait_and_are_refused_then(
    make_http: MakeHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "PATIENCE_S", 0.05)
    http = await make_http(send_budget_bytes=1_000_000)
    await publish(http, "x" * 100_000)
    with http.frontend.send_budget.backlog(lambda: 0, lambda _: None).reservation() as held:
        held.resize(500_000)
        assert (await http.get(READ)).status == 200
        held.resize(900_000)
        for path in (READ, f"{READ}/0/0"):
            refused = await http.get(path)
            assert (refused.code, refused.headers["retry-after"]) == ("OVERLOADED", "1")
    assert (await http.get(READ)).status == 200
