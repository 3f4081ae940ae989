"""Server-Sent Events: their content, how a client continues after a reconnect, and how a stream
ends.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from sparrow.broker.access.acls import AclBinding, AclFilter, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, ResourceType
from sparrow.broker.config import BrokerConfig
from sparrow.frontends.http import render_cache
from sparrow.frontends.http.routes import stream
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_frontend.raw import Raw, request
from tests.http_streams.conftest import DEADLINE_S, event_stream, fill, small_socket

BEGINNING = "/v1/topics/t/stream?from=beginning"
END = "/v1/topics/t/stream"


@pytest_asyncio.fixture
async def filled(http: Http) -> Http:
    """Create a topic of three records."""
    await fill(http, "t", "a", "b", "c")
    return http


# ── what comes ────────────────────────────────────────────────────────────────────────────────────


async def test_each_record_is_an_event_whose_id_stands_behind_it(filled: Http) -> None:
    async with event_stream(filled.port, BEGINNING) as events:
        first = await events.next()
        assert (first.kind, first.id) == ("message", "0:1")
        assert first.json == {
            "topic": "t",
            "partition": 0,
            "offset": 0,
            "timestamp_ms": 0,
            "key": None,
            "value": "a",
            "headers": [],
        }
        assert (await events.next()).id == "0:2"


async def test_records_that_are_published_later_follow(filled: Http) -> None:
    async with event_stream(filled.port, BEGINNING) as events:
        await events.values(3)
        await fill(filled, "t", "d")
        assert await events.values(1) == ["d"]


async def test_by_default_a_stream_begins_at_the_end(filled: Http) -> None:
    async with event_stream(filled.port, END) as events:
        await events.next_block()
        await fill(filled, "t", "d")
        assert await events.values(1) == ["d"]


async def test_an_idle_stream_holds_no_sent_events(filled: Http) -> None:
    size_bytes, clients = 60_000, 20
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(event_stream(filled.port, END)) for _ in range(clients)]
        for each in streams:
            await each.next_block()
        tracemalloc.start()
        try:
            await fill(filled, "t", "x" * size_bytes)
            for each in streams:
                assert len((await each.values(1))[0]) == size_bytes
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert kept_bytes < clients * size_bytes / 4


async def test_a_stream_of_a_missing_topic_is_refused_and_does_not_make_it(http: Http) -> None:
    for query in ("", "?partition=0", "?from=beginning"):
        response = await http.get(f"{END}{query}")
        assert (response.status, response.code) == (404, "UNKNOWN_TOPIC")
    assert len(http.broker.parts.topic_registry) == 0


async def test_a_stream_begins_at_its_start_position(filled: Http) -> None:
    for place, values in (
        ("beginning", ["a", "b", "c"]),
        ("1", ["b", "c"]),
        ("0:2", ["c"]),
        ("timestamp:0", ["a", "b", "c"]),
    ):
        async with event_stream(filled.port, f"{END}?from={place}") as events:
            assert await events.values(len(values)) == values, place


async def test_one_partition_alone(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=3))
    for partition in range(3):
        await fill(http, "t", f"of {partition}", partition=partition)
    async with event_stream(http.port, f"{BEGINNING}&partition=1") as events:
        assert await events.values(1) == ["of 1"]
        await fill(http, "t", "not this", partition=0)
        await fill(http, "t", "this", partition=1)
        assert await events.values(1) == ["this"]
        assert events.last_id == "1:2"


async def test_a_partition_that_is_added_is_read_from_its_beginning(filled: Http) -> None:
    async with event_stream(filled.port, END) as events:
        await events.next_block()
        await filled.broker.topics.add_partitions("t", 2)
        await fill(filled, "t", "new", partition=1)
        assert await events.values(1) == ["new"]
        assert events.last_id == "1:1,0:3"


async def test_binary_values_are_base64(http: Http) -> None:
    await http.broker.topics.create("t")
    await http.broker.records.publish("t", 0, build_batch([b"\xff\x00"]))
    async with event_stream(http.port, BEGINNING) as events:
        assert (await events.next()).json["value_base64"] == "/wA="


async def test_base64_throughout_on_request(filled: Http) -> None:
    async with event_stream(filled.port, f"{BEGINNING}&encoding=base64") as events:
        assert (await events.next()).json["value_base64"] == "YQ=="


async def test_records_with_line_breaks_are_one_event_each(http: Http) -> None:
    value = "one\ntwo\r\nthree\u2028\n\ndata: not an event"
    await fill(http, "t", value, "next")
    async with event_stream(http.port, BEGINNING) as events:
        assert await events.values(2) == [value, "next"]


async def test_a_comment_comes_when_nothing_else_does(filled: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.01)
    async with event_stream(filled.port, END) as events:
        while events.comments < 3:
            await events.next_block()
        await fill(filled, "t", "d")
        assert await events.values(1) == ["d"]


async def test_head_ends_with_its_head(filled: Http) -> None:
    async with Raw(filled.port) as raw:
        response = await raw.ask("HEAD", END)
        assert response.status == 200
        assert (await raw.ask("GET", "/healthz")).status == 200


# ── going on ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_client_that_reconnects_with_the_last_id_misses_and_repeats_nothing(
    make_http: MakeHttp,
) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=3))
    published = []
    for number in range(30):
        published.append(f"r{number}")
        await fill(http, "t", published[-1], partition=number % 3)
    got: list[str] = []
    last_id = "0:0"
    while len(got) < 30:
        async with event_stream(http.port, END, last_event_id=last_id) as events:
            got += await events.values(1 + len(got) % 4) if len(got) < 27 else await events.values(1)
            last_id = events.last_id
    assert sorted(got) == sorted(published)


async def test_a_stream_that_was_cut_before_its_first_event_goes_on_where_it_began(filled: Http) -> None:
    async with event_stream(filled.port, END) as events:
        await events.next_block()
        last_id = events.last_id
        assert events.retry_ms == stream.RETRY_MS
    await fill(filled, "t", "between")
    async with event_stream(filled.port, END, last_event_id=last_id) as events:
        assert await events.values(1) == ["between"]


async def test_the_last_id_may_stand_in_the_address(filled: Http) -> None:
    async with event_stream(filled.port, f"{END}?last_event_id=0:2") as events:
        assert await events.values(1) == ["c"]


async def test_a_gap_is_reported_where_records_are_gone(filled: Http) -> None:
    await filled.broker.topics.delete_records("t", {0: 2})
    async with event_stream(filled.port, END, last_event_id="0:1") as events:
        gap = await events.next()
        while gap.kind != "gap":
            gap = await events.next()
        assert gap.json == {"partition": 0, "from": 1, "to": 2}
        assert await events.values(1) == ["c"]


async def test_an_id_from_the_future_goes_on_at_the_end_and_says_so(filled: Http) -> None:
    async with event_stream(filled.port, END, last_event_id="0:99") as events:
        gap = await events.next()
        assert (gap.kind, gap.json["from"], gap.json["to"]) == ("gap", 99, 3)
        await fill(filled, "t", "d")
        assert await events.values(1) == ["d"]


# ── what is refused ───────────────────────────────────────────────────────────────────────────────


REFUSED = [
    ("from=yesterday", 400, "INVALID_ARGUMENT"),
    ("last_event_id=x", 400, "INVALID_ARGUMENT"),
    ("partition=7", 404, "UNKNOWN_PARTITION"),
    ("partition=-2", 400, "INVALID_ARGUMENT"),
    ("encoding=utf-16", 400, "INVALID_ARGUMENT"),
    ("isolation=serializable", 400, "INVALID_ARGUMENT"),
    ("form=beginning", 400, "INVALID_ARGUMENT"),
]


async def test_a_stream_that_cannot_begin_is_a_problem(filled: Http) -> None:
    for query, status, code in REFUSED:
        response = await filled.get(f"{END}?{query}")
        assert (response.status, response.code) == (status, code), query


async def test_a_topic_that_must_not_be_made_is_not_found(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(auto_create_topics=False))
    assert (await http.get(END)).code == "UNKNOWN_TOPIC"


async def test_a_token_in_the_address_lets_an_eventsource_in(make_http: MakeHttp) -> None:
    http = await make_http(tokens={"alice": "secret"})
    assert (await http.get(END)).code == "NOT_AUTHENTICATED"
    await http.broker.topics.create("t", 1, principal=SYSTEM)
    async with event_stream(http.port, f"{END}?access_token=secret") as events:
        await fill(http, "t", "a")
        assert await events.values(1) == ["a"]


# ── what ends a stream ────────────────────────────────────────────────────────────────────────────


async def test_a_stream_ends_with_its_topic(filled: Http) -> None:
    async with event_stream(filled.port, BEGINNING) as events:
        await events.values(3)
        await filled.broker.topics.delete("t")
        last = await events.next()
        assert (last.kind, last.json["code"], last.json["status"]) == ("error", "UNKNOWN_TOPIC", 404)
        with pytest.raises(EOFError):
            await events.next()


async def test_a_stream_ends_when_the_broker_shuts_down(filled: Http) -> None:
    async with event_stream(filled.port, BEGINNING) as events:
        await events.values(3)
        draining = asyncio.create_task(filled.frontend.drain(DEADLINE_S))
        last = await events.next()
        assert (last.kind, last.json["code"], last.json["retriable"]) == ("error", "DRAINING", True)
        async with asyncio.timeout(DEADLINE_S / 2):
            await draining


async def test_a_stream_ends_when_the_right_to_read_is_taken_away(make_http: MakeHttp) -> None:
    rules = BrokerConfig(super_users=frozenset({"User:root"}), allow_unnamed_resources=False)
    http = await make_http(config=rules, tokens={"alice": "secret"})
    await http.broker.topics.create("t", 1, principal=SYSTEM)
    may = AclBinding(
        ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
    )
    path = f"{END}?access_token=secret"
    assert (await http.get(path)).code == "NOT_AUTHORIZED"
    await http.broker.acls.create([may], principal=SYSTEM)
    async with event_stream(http.port, path) as events:
        await events.next_block()
        await http.broker.acls.delete([AclFilter()], principal=SYSTEM)
        assert (await events.next()).json["code"] == "NOT_AUTHORIZED"


async def test_a_client_that_goes_leaves_nothing_behind(filled: Http) -> None:
    async with event_stream(filled.port, BEGINNING) as events:
        await events.values(3)
    partition = filled.broker.parts.topic_registry.get("t").partition(0)
    async with asyncio.timeout(DEADLINE_S):
        while filled.frontend.connections or partition._waiters:
            await asyncio.sleep(0)


# ── many, and slow ones ───────────────────────────────────────────────────────────────────────────


async def test_records_for_many_followers_are_rendered_once(
    filled: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    real = render_cache._rendered
    monkeypatch.setattr(render_cache, "_rendered", lambda key, batch: (made.append(key), real(key, batch))[1])

    async def follow() -> list[str]:
        async with event_stream(filled.port, BEGINNING) as events:
            return await events.values(4)

    following = [asyncio.create_task(follow()) for _ in range(20)]
    await fill(filled, "t", "d")
    assert await asyncio.gather(*following) == [["a", "b", "c", "d"]] * 20
    assert len(made) == 4


@pytest.mark.slow
async def test_a_client_that_does_not_read_costs_a_chunk_and_gets_all_when_it_does(http: Http) -> None:
    values = [f"{number:06}" + "x" * 50_000 for number in range(120)]
    await fill(http, "t", *values)
    reader, writer = await asyncio.open_connection(sock=small_socket(http.port), limit=4096)
    writer.write(request("GET", BEGINNING))
    assert 0 < await _unsent_bytes(http) < 400_000
    data = bytearray()
    async with asyncio.timeout(DEADLINE_S):
        while b"000119xxx" not in data[-70_000:]:
            data += await reader.read(1 << 20)
    assert [b"%06dxxx" % number in data for number in range(120)] == [True] * 120
    writer.close()
    await writer.wait_closed()


async def _unsent_bytes(http: Http) -> int:
    """Return the unsent bytes of the only connection once they do not grow any more."""
    sizes: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(sizes) < 50 or sizes[-1] == 0 or len(set(sizes[-50:])) > 1:
            await asyncio.sleep(0.002)
            sizes += [each.unsent_bytes for each in http.frontend.open_connections]
    return sizes[-1]


async def test_compressed_batches_become_events_only_as_far_as_they_are_sent_soon(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    await http.broker.topics.create("t", 1)
    batch = build_batch([b"x" * 500_000] * 8, compression=Compression.GZIP)
    for _ in range(20):
        await http.broker.records.publish("t", 0, batch)
    rendered: list[int] = []
    render = http.frontend.render_cache.batch

    async def noted(batch: Any, **form: Any) -> Any:
        rendered.append(batch.header.base_offset)
        return await render(batch, **form)

    monkeypatch.setattr(http.frontend.render_cache, "batch", noted)
    async with event_stream(http.port, "/v1/topics/t/stream?from=beginning") as events:
        async with asyncio.timeout(DEADLINE_S):
            while not rendered:
                await asyncio.sleep(0.001)
        async with asyncio.timeout(DEADLINE_S):
            while not any(map(_is_held_up, http.frontend.open_connections)):
                await asyncio.sleep(0.001)
        assert len(rendered) < 10
        found = [await events.next() for _ in range(160)]
    assert [event.json["offset"] for event in found] == list(range(160))
    assert [event.id for event in found] == [f"0:{offset + 1}" for offset in range(160)]


async def test_a_gap_that_opens_while_the_client_does_not_read_is_reported_in_order(http: Http) -> None:
    await http.broker.topics.create("t", 1)
    batch = build_batch([b"x" * 500_000] * 8, compression=Compression.GZIP)
    for _ in range(40):
        await http.broker.records.publish("t", 0, batch)
    async with event_stream(http.port, "/v1/topics/t/stream?from=beginning") as events:
        async with asyncio.timeout(DEADLINE_S):
            while not any(map(_is_held_up, http.frontend.open_connections)):
                await asyncio.sleep(0.001)
        await http.broker.topics.delete_records("t", {0: 312})
        expected = 0
        while (event := await events.next()).kind == "message":
            assert (event.json["offset"], event.id) == (expected, f"0:{expected + 1}")
            expected += 1
        assert 0 < expected < 312
        assert (event.kind, event.json) == ("gap", {"partition": 0, "from": expected, "to": 312})
        found = [await events.next() for _ in range(8)]
    assert [event.id for event in found] == [f"0:{offset + 1}" for offset in range(312, 320)]


def _is_held_up(connection: Any) -> bool:
    return bool(connection.has_work and not connection.can_write)
