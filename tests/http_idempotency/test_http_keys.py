"""`Idempotency-Key` over HTTP: the header, and a real broker that is killed again and again while
clients repeat unanswered requests.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import aiohttp
import pytest

import sparrow.testing
from sparrow.broker.config import BrokerConfig
from sparrow.testing.running_broker import RunningBroker
from tests.http_frontend.conftest import Http, MakeHttp, http, make_http

__all__ = ["http", "make_http"]

MANY = json.dumps({"messages": [{"value": f"{n}", "key": f"k{n}"} for n in range(10)]}).encode()


async def test_a_request_that_is_sent_again_gets_the_same_answer_with_a_header(http: Http) -> None:
    first = await http.post("/v1/topics/orders/messages", b"x", idempotency_key="one")
    again = await http.post("/v1/topics/orders/messages", b"x", idempotency_key='"one"')
    assert first.status == again.status == 200
    assert first.body == again.body
    assert "idempotent-replay" not in first.headers
    assert again.headers["idempotent-replay"] == "true"
    assert http.broker.parts.topic_registry.get("orders").partition(0).visible_end == 1


async def test_a_trace_that_changes_with_each_attempt_makes_no_other_request(http: Http) -> None:
    traces = [f"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b{n}-01" for n in range(2)]
    sent = [
        await http.post("/v1/topics/orders/messages", b"x", idempotency_key="one", traceparent=trace)
        for trace in traces
    ]
    assert [answer.status for answer in sent] == [200, 200]
    assert sent[0].body == sent[1].body


async def test_many_messages_and_messages_of_queues_have_keys_too(http: Http) -> None:
    await http.broker.queues.create("jobs")
    for path in ("/v1/topics/orders/messages", "/v1/queues/jobs/messages"):
        sent = [
            await http.post(path, MANY, idempotency_key=path, content_type="application/json")
            for _ in range(3)
        ]
        assert [answer.status for answer in sent] == [200] * 3
        assert len({answer.body for answer in sent}) == 1
    ends = [
        http.broker.parts.topic_registry.get(name).partition(0).visible_end for name in ("orders", "jobs")
    ]
    assert ends == [10, 10]


@pytest.mark.parametrize(
    "changed",
    [
        {"body": b"y"},
        {"path": "/v1/topics/others/messages"},
        {"path": "/v1/topics/orders/messages?acks=leader"},
        {"sparrow_key": "k"},
        {"sparrow_header_color": "red"},
        {"content_type": "text/html"},
    ],
)
async def test_a_key_of_another_request_is_refused(http: Http, changed: dict[str, Any]) -> None:
    path, body = changed.pop("path", "/v1/topics/orders/messages"), changed.pop("body", b"x")
    await http.post("/v1/topics/orders/messages", b"x", idempotency_key="one")
    refused = await http.post(path, body, idempotency_key="one", **changed)
    assert (refused.status, refused.code) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert http.broker.parts.topic_registry.get("orders").partition(0).visible_end == 1


@pytest.mark.parametrize("key", ["", '""', "a b", "k" * 256, "käse"])
async def test_invalid_key_is_refused(http: Http, key: str) -> None:
    refused = await http.post("/v1/topics/orders/messages", b"x", idempotency_key=key)
    assert refused.status == 400
    assert http.broker.parts.topic_registry.find("orders") is None


async def test_the_limit_of_keys_is_a_too_many_requests_error(make_http: MakeHttp) -> None:
    from sparrow.broker.config import BrokerConfig

    http = await make_http(config=BrokerConfig(default_partitions=1, idempotency_max_keys=0))
    refused = await http.post("/v1/topics/orders/messages", b"x", idempotency_key="one")
    assert (refused.status, refused.code) == (429, "TOO_MANY_IDEMPOTENCY_KEYS")
    assert refused.json["retriable"] is True


async def test_keys_of_other_users_are_other_keys(make_http: MakeHttp) -> None:
    config = BrokerConfig(default_partitions=1, super_users=frozenset({"User:alice", "User:bob"}))
    http = await make_http(tokens={"alice": "a", "bob": "b"}, config=config)
    for token in ("a", "b"):
        answer = await http.post(
            "/v1/topics/orders/messages", b"x", idempotency_key="one", authorization=f"Bearer {token}"
        )
        assert answer.status == 200
        assert "idempotent-replay" not in answer.headers
    assert http.broker.parts.topic_registry.get("orders").partition(0).visible_end == 2


# ── kill -9 ───────────────────────────────────────────────────────────────────────────────────────

CLIENTS = 8
REQUESTS = 40
IN_A_REQUEST = 5
KILLS = 4


async def publish_until_answered(
    session: aiohttp.ClientSession, url: str, number: int, dice: random.Random
) -> list[tuple[int, int]]:
    """Publish one request, repeated until there is a response, and now and then once more; return
    the positions of its messages.
    """
    messages = [
        {"value": f"{number}-{n}", **({"key": f"k{dice.randrange(9)}"} if n % 2 else {})}
        for n in range(IN_A_REQUEST)
    ]
    body = json.dumps({"messages": messages}).encode()
    headers = {"Idempotency-Key": f"request-{number}", "Content-Type": "application/json"}
    while True:
        try:
            async with session.post(url, data=body, headers=headers) as answer:
                told = await answer.json()
                assert answer.status == 200 or told["retriable"], told
                if answer.status == 200 and dice.random() < 0.8:
                    return [(each["partition"], each["offset"]) for each in told["messages"]]
        except (aiohttp.ClientError, OSError):
            await asyncio.sleep(0.02)


async def kill_now_and_then(broker: RunningBroker, dice: random.Random) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(dice.uniform(0.1, 0.4))
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.restart)


async def everything(session: aiohttp.ClientSession, http_url: str) -> dict[tuple[int, int], str]:
    found: dict[tuple[int, int], str] = {}
    for partition in range(4):
        offset = 0
        while True:
            path = f"/v1/topics/t/messages?partition={partition}&from={offset}&limit=1000"
            async with session.get(http_url + path) as answer:
                messages = (await answer.json())["messages"]
            if not messages:
                break
            found |= {(partition, each["offset"]): each["value"] for each in messages}
            offset = messages[-1]["offset"] + 1
    return found


@pytest.mark.slow
async def test_requests_repeated_over_kills_store_each_message_once_and_where_they_say() -> None:
    dice = random.Random(4)
    with sparrow.testing.broker(process=True, http_port=0) as broker:
        url = f"{broker.http}/v1/topics/t/messages"
        told: dict[str, tuple[int, int]] = {}
        numbers = iter(range(CLIENTS * REQUESTS))

        async def work(session: aiohttp.ClientSession, own: random.Random) -> None:
            for number in numbers:
                places = await publish_until_answered(session, url, number, own)
                told.update({f"{number}-{n}": place for n, place in enumerate(places)})

        connector = aiohttp.TCPConnector(limit=CLIENTS)
        timeout = aiohttp.ClientTimeout(total=20)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            asyncio.timeout(90),
        ):
            async with asyncio.TaskGroup() as group:
                group.create_task(kill_now_and_then(broker, dice))
                for client in range(CLIENTS):
                    group.create_task(work(session, random.Random(client)))
            stored = await everything(session, broker.http)
    assert Counter(stored.values()).most_common(1)[0][1] == 1
    assert {value: place for place, value in stored.items()} == told
    assert len(told) == CLIENTS * REQUESTS * IN_A_REQUEST
