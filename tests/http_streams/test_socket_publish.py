"""Publishing over a WebSocket."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import aiohttp
import pytest

from sparrow.broker.config import BrokerConfig
from sparrow.frontends.http.records import messages_of
from sparrow.frontends.http.sockets import publishes, session
from sparrow.records.batch import split
from sparrow.records.record import Record, decode
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_streams.conftest import DEADLINE_S, socket_to


async def stored(http: Http, topic: str, partition: int = 0) -> list[Record]:
    chunk = await http.broker.parts.topic_registry.get(topic).partition(partition).log.read(0, 1 << 24)
    return [record for _, data in split(chunk.data) for record in decode(data)]


async def test_a_message_is_published_with_key_headers_and_time(http: Http) -> None:
    message = {
        "key": "k",
        "value_base64": "/wA=",
        "headers": [["h", "x"], ["h", None]],
        "timestamp_ms": 17,
        "priority": 9,
    }
    async with socket_to(http.port) as socket:
        response = await socket.ask("publish", "published", id="p", topic="t", message=message)
    assert response == {
        "type": "published",
        "id": "p",
        "messages": [{"partition": 0, "offset": 0, "timestamp_ms": 17}],
    }
    [record] = await stored(http, "t")
    assert (record.key, record.value, record.timestamp) == (b"k", b"\xff\x00", 17)
    assert record.headers == (("h", b"x"), ("h", None), ("priority", b"9"))


async def test_many_messages_go_to_one_partition_or_where_their_keys_send_them(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=4))
    keyed = [{"key": f"k{number}", "value": "v"} for number in range(20)]
    async with socket_to(http.port) as socket:
        spread = (await socket.ask("publish", "published", topic="t", messages=keyed))["messages"]
        assert len({each["partition"] for each in spread}) > 1
        again = (await socket.ask("publish", "published", topic="t", messages=keyed))["messages"]
        assert [each["partition"] for each in again] == [each["partition"] for each in spread]
        one = await socket.ask("publish", "published", topic="t", partition=3, messages=keyed)
        assert {each["partition"] for each in one["messages"]} == {3}


async def test_acks_may_be_chosen(http: Http) -> None:
    async with socket_to(http.port) as socket:
        for offset, acks in enumerate(("all", "leader", "none")):
            response = await socket.ask("publish", "published", topic="t", acks=acks, message={"value": "v"})
            assert response["messages"][0]["offset"] == offset


async def test_frames_that_do_not_wait_for_each_other_are_stored_in_their_order(http: Http) -> None:
    async with socket_to(http.port) as socket:
        for number in range(500):
            await socket.send("publish", id=number, topic="new", message={"value": str(number)})
        responses = [await socket.expect("published") for _ in range(500)]
    assert sorted(response["id"] for response in responses) == list(range(500))
    assert [record.value for record in await stored(http, "new")] == [b"%d" % n for n in range(500)]


async def test_a_large_frame_is_parsed_in_a_thread_and_stays_in_order(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[int, int] = {}

    def noted(body: bytes, *given: Any, **named: Any) -> Any:
        threads[len(body)] = threading.get_ident()
        return messages_of(body, *given, **named)

    monkeypatch.setattr(publishes, "messages_of", noted)
    await http.broker.topics.create("t")
    many = [{"value": f"large {number}" + "x" * 200} for number in range(1000)]
    async with socket_to(http.port) as socket:
        await socket.send("publish", id=0, topic="t", message={"value": "first"})
        await socket.send("publish", id=1, topic="t", messages=many)
        await socket.send("publish", id=2, topic="t", message={"value": "last"})
        responses = {
            response["id"]: response for response in [await socket.expect("published") for _ in range(3)]
        }
        await socket.send("publish", id=3, topic="t", message={"value": "x" * 100_000}, messages=[])
        assert (await socket.expect("error"))["error"]["code"] == "INVALID_ARGUMENT"
    places = [place["offset"] for number in range(3) for place in responses[number]["messages"]]
    assert places == list(range(1002))
    assert threads.pop(max(threads)) != threading.get_ident()
    assert set(threads.values()) == {threading.get_ident()}


async def test_more_than_may_be_unanswered_wait_in_the_socket(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_PENDING", 3)
    async with socket_to(http.port) as socket:
        for number in range(200):
            await socket.send("publish", id=number, topic="t", message={"value": "x" * 2000})
        for _ in range(200):
            await socket.expect("published")
    assert len(await stored(http, "t")) == 200


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"topic": "t"}, "INVALID_ARGUMENT"),
    ({"topic": "t", "message": {}, "messages": []}, "INVALID_ARGUMENT"),
    ({"topic": "t", "message": "text"}, "INVALID_ARGUMENT"),
    ({"topic": "t", "message": {"value": 7}}, "INVALID_ARGUMENT"),
    ({"topic": "t", "message": {"value_base64": "%"}}, "INVALID_ARGUMENT"),
    ({"topic": "t", "messages": {"value": "x"}}, "INVALID_ARGUMENT"),
    ({"topic": "a/b", "message": {"value": "x"}}, "INVALID_TOPIC_NAME"),
    ({"topic": "t", "message": {"value": "x"}, "partition": 9}, "UNKNOWN_PARTITION"),
    ({"topic": "t", "message": {"value": "x"}, "acks": "some"}, "INVALID_ARGUMENT"),
    ({"topic": "t", "message": {"value": "x", "priority": 12}}, "INVALID_ARGUMENT"),
    ({"topic": "t", "message": {"value": "x" * 2_000_000}}, "RECORD_TOO_LARGE"),
]


async def test_unpublishable_message_is_a_problem_and_keeps_the_socket(http: Http) -> None:
    async with socket_to(http.port) as socket:
        for members, code in REFUSED:
            assert await socket.refused("publish", id=1, **members) == code, members
            await socket.ask("publish", "published", topic="t", message={"value": "good"})


async def test_message_that_is_too_large_is_reported_at_its_index(http: Http) -> None:
    messages = [{"value": "a"}, {"value": "x" * 2_000_000}, {"value": "b"}]
    async with socket_to(http.port) as socket:
        found = (await socket.ask("publish", "published", topic="t", messages=messages))["messages"]
    assert found[1]["error"]["code"] == "RECORD_TOO_LARGE"
    assert [each.get("offset") for each in found] == [0, None, 1]


async def test_nothing_is_made_where_topics_are_not_made(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(auto_create_topics=False))
    async with socket_to(http.port) as socket:
        assert await socket.refused("publish", topic="t", message={"value": "x"}) == "UNKNOWN_TOPIC"


async def test_aiohttp_is_a_client_too(http: Http) -> None:
    async with aiohttp.ClientSession() as client, client.ws_connect(f"{http.url}/v1/ws") as socket:
        await socket.send_str(json.dumps({"type": "publish", "topic": "t", "message": {"value": "x"}}))
        assert (await socket.receive_json(timeout=DEADLINE_S))["type"] == "published"
        await socket.send_str(
            json.dumps(
                {"type": "subscribe", "subscription": "s", "topic": "t", "from": "beginning", "credit": 1}
            )
        )
        kinds = [(await socket.receive_json(timeout=DEADLINE_S))["type"] for _ in range(3)]
        assert kinds == ["subscribed", "assigned", "messages"]


async def test_messages_sent_before_a_goodbye_are_stored(http: Http) -> None:
    async with socket_to(http.port) as socket:
        for number in range(50):
            await socket.send("publish", topic="t", message={"value": str(number)})
    async with asyncio.timeout(DEADLINE_S):
        while http.broker.parts.topic_registry.find("t") is None or len(await stored(http, "t")) < 50:
            await asyncio.sleep(0)
