"""Any message stays the same by every way in and every way out."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

import sparrow
from sparrow.testing import broker
from sparrow.testing.running_broker import RunningBroker
from tests.http_frontend.raw import Raw, ask, request
from tests.repetitions import repetitions

Header = tuple[str, bytes | None]
Content = tuple[bytes | None, bytes | None, list[Header]]

BYTES = st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=20).map(str.encode))
NAMES = st.one_of(st.text(min_size=1, max_size=12), st.sampled_from(["content-type", "x", "traceparent"]))
CONTENTS: st.SearchStrategy[Content] = st.tuples(BYTES, BYTES, st.lists(st.tuples(NAMES, BYTES), max_size=4))


def _put(members: dict[str, Any], name: str, content: bytes | None, *, as_base64: bool) -> None:
    """Set a member as a client would that knows only the document."""
    if content is None:
        members[name] = None
        return
    try:
        if as_base64:
            raise UnicodeDecodeError("utf-8", b"", 0, 0, "")
        members[name] = content.decode()
    except UnicodeDecodeError:
        members[f"{name}_base64"] = b64encode(content).decode()


def as_json(content: Content, *, as_base64: bool) -> dict[str, Any]:
    key, value, headers = content
    members: dict[str, Any] = {}
    _put(members, "key", key, as_base64=as_base64)
    _put(members, "value", value, as_base64=as_base64)
    members["headers"] = as_pairs(headers)
    return members


def as_pairs(headers: list[Header]) -> list[list[Any]]:
    return [[n, None if v is None else {"base64": b64encode(v).decode()}] for n, v in headers]


def from_json(members: dict[str, Any]) -> Content:
    def content(name: str) -> bytes | None:
        if f"{name}_base64" in members:
            return b64decode(members[f"{name}_base64"])
        text: str | None = members[name]
        return None if text is None else text.encode()

    def header(value: Any) -> bytes | None:
        return b64decode(value["base64"]) if isinstance(value, dict) else value and value.encode()

    headers = [(n, b"" if v == "" else header(v)) for n, v in members["headers"]]
    return content("key"), content("value"), headers


def raw_request(path: str, content: Content) -> bytes:
    key, value, headers = content
    said = {"Sparrow-Headers": json.dumps(as_pairs(headers))}
    if key is not None:
        said["Sparrow-Key-Base64"] = b64encode(key).decode()
    if value is None:
        said["Sparrow-Null"] = "true"
    return request("POST", path, value or b"", said)


async def publish_all(port: int, topic: str, contents: list[Content]) -> None:
    """Publish each message by every way in."""
    path = f"/v1/topics/{topic}/messages"
    async with Raw(port) as raw:
        for content in contents:
            raw.send(raw_request(path, content))
            response = await raw.response()
            assert response.status == 200, response
        for as_base64 in (False, True):
            items = [as_json(content, as_base64=as_base64) for content in contents]
            many = json.dumps({"messages": items}).encode()
            response = await raw.ask("POST", path, many, {"Content-Type": "application/json"})
            assert response.status == 200, response
            lines = "\n".join(json.dumps(item, ensure_ascii=False) for item in items).encode()
            response = await raw.ask("POST", path, lines, {"Content-Type": "application/x-ndjson"})
            assert response.status == 200, response


async def read_all(port: int, topic: str, count: int) -> dict[str, list[Content]]:
    """Read everything by every way out."""
    path = f"/v1/topics/{topic}/messages"
    found: dict[str, list[Content]] = {"raw": []}
    async with Raw(port) as raw:
        for encoding in ("text", "base64"):
            page = await raw.ask("GET", f"{path}?encoding={encoding}&limit=1000")
            found[encoding] = [from_json(each) for each in page.json["messages"]]
        lines = await raw.ask("GET", f"{path}?limit=1000", headers={"Accept": "application/x-ndjson"})
        found["lines"] = [from_json(json.loads(line)) for line in lines.body.split(b"\n") if line]
        for offset in range(count):
            raw.send(request("GET", f"{path}/0/{offset}"))
            found["raw"].append(await _from_raw(raw))
    return found


async def _from_raw(raw: Raw) -> Content:
    head = await raw.reader.readuntil(b"\r\n\r\n")
    pairs = [line.split(b": ", 1) for line in head[:-4].split(b"\r\n")[1:]]
    headers = {name.decode(): value for name, value in pairs}
    body = await raw.reader.readexactly(int(headers["content-length"]))
    key = headers.get("sparrow-key")
    if "sparrow-key-base64" in headers:
        key = b64decode(headers["sparrow-key-base64"])
    own: list[Header] = [
        (name.decode().removeprefix("sparrow-header-"), value)
        for name, value in pairs
        if name.startswith(b"sparrow-header-")
    ]
    if "sparrow-headers" in headers:
        own = from_json({"key": None, "value": None, "headers": json.loads(headers["sparrow-headers"])})[2]
    return key, None if "sparrow-null" in headers else body, own


@pytest.mark.slow
def test_a_message_is_the_same_by_every_way_in_and_out(tmp_path: Path) -> None:
    with broker(data_dir=str(tmp_path / "data"), default_partitions=1) as running:
        port = int(running.http.rpartition(":")[2])
        numbers = iter(range(10_000))

        @settings(max_examples=repetitions(25), deadline=None)
        @given(st.lists(CONTENTS, min_size=1, max_size=4))
        def check(contents: list[Content]) -> None:
            topic = f"t{next(numbers)}"
            asyncio.run(publish_all(port, topic, contents))
            wanted = contents * 5
            assert asyncio.run(read_natively(running, topic, len(wanted))) == wanted
            for way, found in asyncio.run(read_all(port, topic, len(wanted))).items():
                assert found == wanted, way

        check()


async def read_natively(running: RunningBroker, topic: str, count: int) -> list[Content]:
    found: list[Any] = []
    async with (
        sparrow.connect(running.url) as client,
        client.subscribe(topic, start="beginning") as subscription,
    ):
        async for message in subscription:
            found.append(message)
            if len(found) == count:
                break
    return [(each.key, each.value, list(each.headers)) for each in found]


@pytest.mark.slow
def test_committed_reads_leave_out_aborted_and_open_transactions(
    sparrow_broker: RunningBroker, sparrow_topic: str
) -> None:
    port = int(sparrow_broker.http.rpartition(":")[2])
    path = f"/v1/topics/{sparrow_topic}/messages?limit=1000"
    settings_of = {"bootstrap.servers": sparrow_broker.kafka, "transactional.id": sparrow_topic}
    producer = Producer(settings_of)
    producer.init_transactions(30)
    for ends, value in (
        (producer.commit_transaction, b"kept"),
        (producer.abort_transaction, b"aborted"),
        (None, b"open"),
    ):
        producer.begin_transaction()
        producer.produce(sparrow_topic, value, partition=0)
        assert producer.flush(30) == 0
        if ends is not None:
            ends(30)

    def values(query: str) -> list[str]:
        page = asyncio.run(ask(port, "GET", path + query))
        return [each["value"] for each in page.json["messages"]]

    assert values("") == ["kept", "aborted", "open"]
    assert values("&isolation=committed") == ["kept"]
    producer.abort_transaction(30)
