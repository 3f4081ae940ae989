"""Subscriptions to topics over a WebSocket: credit, start positions, groups."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparrow.broker.access.acls import AclBinding, AclFilter, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, ResourceType
from sparrow.broker.config import BrokerConfig
from sparrow.frontends.http.sockets import session
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_streams.conftest import DEADLINE_S, Socket, fill, socket_to


async def subscribe(socket: Socket, name: str = "s", **members: Any) -> dict[str, Any]:
    """Subscribe, and return the frame `assigned`."""
    await socket.ask("subscribe", "subscribed", subscription=name, **members)
    return await socket.expect("assigned")


def values(records: list[dict[str, Any]]) -> list[str]:
    return [record["value"] for record in records]


# ── credit ────────────────────────────────────────────────────────────────────────────────────────


async def test_nothing_comes_without_credit_and_never_more_than_it(http: Http) -> None:
    await http.broker.topics.create("t")
    await http.broker.records.publish("t", 0, build_batch([b"%d" % number for number in range(10)]))
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t", from_="beginning")
        await socket.silence()
        await socket.send("credit", subscription="s", records=3)
        assert values(await socket.records(3)) == ["0", "1", "2"]
        await socket.silence()
        await socket.send("credit", subscription="s", records=1)
        await socket.send("credit", subscription="s", records=100)
        assert values(await socket.records(7)) == [str(number) for number in range(3, 10)]
        await fill(http, "t", "later")
        assert values(await socket.records(1)) == ["later"]


async def test_each_subscription_has_credit_of_its_own(http: Http) -> None:
    await fill(http, "t", "a", "b")
    async with socket_to(http.port) as socket:
        await subscribe(socket, "one", topic="t", from_="beginning", credit=1)
        first = await socket.expect("messages")
        assert (first["subscription"], values(first["messages"])) == ("one", ["a"])
        await subscribe(socket, "two", topic="t", from_="beginning", credit=2)
        second = await socket.expect("messages")
        assert (second["subscription"], len(second["messages"])) == ("two", 2)
        await socket.silence()


async def test_records_come_in_frames_that_clients_can_take(http: Http) -> None:
    await fill(http, "t", *["x" * 100_000] * 12)
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t", from_="beginning", credit=100)
        frames = []
        while sum(frames) < 12:
            frames.append(len((await socket.expect("messages"))["messages"]))
        assert max(frames) <= 2


async def test_compressed_batches_are_decoded_only_as_far_as_they_are_sent_soon(
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
    async with socket_to(http.port) as socket:
        socket.connection.transport.pause_reading()
        await socket.send("subscribe", subscription="s", topic="t", from_="beginning", credit=100)
        async with asyncio.timeout(DEADLINE_S):
            while all(each.can_write for each in sockets_of(http)):
                await asyncio.sleep(0.001)
        assert len(rendered) < 10
        socket.connection.transport.resume_reading()
        await socket.expect("subscribed")
        await socket.expect("assigned")
        assert [record["offset"] for record in await socket.records(100)] == list(range(100))


def sockets_of(http: Http) -> list[Any]:
    return list(http.frontend.open_connections)


@pytest.mark.slow
async def test_a_client_that_does_not_read_stalls_only_itself(http: Http) -> None:
    await fill(http, "big", *["x" * 100_000] * 100)
    await fill(http, "t", "a")
    async with socket_to(http.port) as slow, socket_to(http.port) as quick:
        slow.connection.transport.pause_reading()
        await slow.send("subscribe", subscription="s", topic="big", from_="beginning", credit=1000)
        await subscribe(quick, topic="t", from_="beginning", credit=10)
        assert values(await quick.records(1)) == ["a"]
        slow.connection.transport.resume_reading()
        await slow.expect("subscribed")
        await slow.expect("assigned")
        assert len(await slow.records(100)) == 100


# ── places ────────────────────────────────────────────────────────────────────────────────────────


PLACES = [("beginning", ["a", "b", "c"]), (1, ["b", "c"]), ("2", ["c"]), ("timestamp:0", ["a", "b", "c"])]


async def test_a_subscription_begins_at_its_start_position(http: Http) -> None:
    await fill(http, "t", "a", "b", "c")
    async with socket_to(http.port) as socket:
        for place, found in PLACES:
            await subscribe(socket, str(place), topic="t", from_=place, credit=10)
            assert values(await socket.records(len(found))) == found, place


async def test_default_start_reads_only_later_records(http: Http) -> None:
    await fill(http, "t", "a")
    async with socket_to(http.port) as socket:
        assert (await subscribe(socket, topic="t", credit=10))["partitions"] == [
            {"topic": "t", "partition": 0, "offset": 1}
        ]
        await fill(http, "t", "b")
        assert values(await socket.records(1)) == ["b"]


async def test_returning_client_resumes_at_its_offsets(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=2))
    await fill(http, "t", "a", "b", partition=0)
    await fill(http, "t", "c", "d", partition=1)
    async with socket_to(http.port) as socket:
        places = [{"topic": "t", "partition": 0, "offset": 2}, {"topic": "t", "partition": 1, "offset": 1}]
        await subscribe(socket, topic="t", from_="beginning", positions=places, credit=10)
        assert values(await socket.records(1)) == ["d"]


async def test_positions_as_pages_and_streams_write_them_are_a_start_position(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=2))
    await fill(http, "t", "a", "b", partition=0)
    await fill(http, "t", "c", "d", partition=1)
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t", from_="0:1", credit=10)
        assert sorted(values(await socket.records(3))) == ["b", "c", "d"]
        code = await socket.refused("subscribe", subscription="p", pattern="t*", **{"from": "0:1"})
        assert code == "INVALID_ARGUMENT"


async def test_several_topics_and_patterns_come_over_one_subscription(http: Http) -> None:
    for topic in ("orders", "invoices", "other"):
        await fill(http, topic, f"of {topic}")
    async with socket_to(http.port) as socket:
        await subscribe(socket, "two", topics=["orders", "invoices"], from_="beginning", credit=10)
        assert sorted(values(await socket.records(2))) == ["of invoices", "of orders"]
        await subscribe(socket, "some", pattern="o*", from_="beginning", credit=10)
        assert sorted(values(await socket.records(2))) == ["of orders", "of other"]
        await fill(http, "of-late", "made later")
        assert (await socket.expect("assigned"))["partitions"][0]["topic"] == "of-late"
        assert values(await socket.records(1)) == ["made later"]


async def test_one_partition_alone(make_http: MakeHttp) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=3))
    for partition in range(3):
        await fill(http, "t", f"of {partition}", partition=partition)
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t", partition=2, from_="beginning", credit=10)
        assert values(await socket.records(1)) == ["of 2"]
        await socket.silence()


async def test_a_gap_is_reported_where_records_are_gone(http: Http) -> None:
    await fill(http, "t", "a", "b", "c")
    await http.broker.topics.delete_records("t", {0: 2})
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t", from_=0, credit=10)
        gap = await socket.expect("gap")
        assert (gap["topic"], gap["partition"], gap["from"], gap["to"]) == ("t", 0, 0, 2)
        assert values(await socket.records(1)) == ["c"]


async def test_base64_throughout_on_request(http: Http) -> None:
    await fill(http, "t", "a")
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t", from_="beginning", encoding="base64", credit=1)
        [record] = await socket.records(1)
        assert record["value_base64"] == "YQ=="


# ── ends ──────────────────────────────────────────────────────────────────────────────────────────


async def test_after_unsubscribe_nothing_comes_and_the_name_is_free(http: Http) -> None:
    await fill(http, "t", "a")
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t", credit=10)
        ended = await socket.ask("unsubscribe", "ended", id=9, subscription="s")
        assert (ended["id"], "error" in ended) == (9, False)
        await fill(http, "t", "b")
        await socket.silence()
        await subscribe(socket, topic="t", from_="beginning", credit=10)
        assert values(await socket.records(2)) == ["a", "b"]


async def test_a_topic_that_is_deleted_is_revoked_with_the_reason(http: Http) -> None:
    await fill(http, "t", "a")
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t", credit=10)
        await http.broker.topics.delete("t")
        revoked = await socket.expect("revoked")
        assert revoked["partitions"] == [{"topic": "t", "partition": 0}]
        assert revoked["error"]["code"] == "UNKNOWN_TOPIC"


async def test_a_subscription_ends_when_the_right_is_taken_away(make_http: MakeHttp) -> None:
    rules = BrokerConfig(super_users=frozenset({"User:root"}), allow_unnamed_resources=False)
    http = await make_http(config=rules, tokens={"alice": "secret"})
    await http.broker.topics.create("t", 1, principal=SYSTEM)
    may = AclBinding(
        ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
    )
    async with socket_to(http.port, authorization="Bearer secret") as socket:
        assert await socket.refused("subscribe", subscription="s", topic="t") == "NOT_AUTHORIZED"
        await http.broker.acls.create([may], principal=SYSTEM)
        await subscribe(socket, topic="t", credit=10)
        await http.broker.acls.delete([AclFilter()], principal=SYSTEM)
        ended = await socket.expect("ended")
        assert (ended["subscription"], ended["error"]["code"]) == ("s", "NOT_AUTHORIZED")
        assert await socket.refused("credit", subscription="s", records=1) == "INVALID_ARGUMENT"


async def test_a_socket_that_is_gone_leaves_no_reader_behind(http: Http) -> None:
    await fill(http, "t", "a")
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t", credit=10)
        socket.connection.transport.abort()
        async with asyncio.timeout(DEADLINE_S):
            while (
                http.broker.parts.topic_registry.get("t").partition(0)._waiters or http.frontend.connections
            ):
                await asyncio.sleep(0)


# ── groups ────────────────────────────────────────────────────────────────────────────────────────


async def test_group_resumes_behind_its_committed_offset(http: Http) -> None:
    await fill(http, "t", "a", "b", "c")
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t", group="g", from_="beginning", credit=10)
        assert len(await socket.records(3)) == 3
        offsets = [{"topic": "t", "partition": 0, "offset": 2, "metadata": "m"}]
        response = await socket.ask("commit", "committed", id=4, subscription="s", offsets=offsets)
        assert response["id"] == 4
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t", group="g", from_="beginning", credit=10)
        assert values(await socket.records(1)) == ["c"]


async def test_members_of_a_group_share_the_partitions_and_take_over_from_each_other(
    make_http: MakeHttp,
) -> None:
    http = await make_http(config=BrokerConfig(default_partitions=2, group_initial_rebalance_delay_ms=0))
    await http.broker.topics.create("t")
    async with socket_to(http.port) as one:
        assert (
            len((await subscribe(one, topic="t", group="g", from_="beginning", credit=100))["partitions"])
            == 2
        )
        async with socket_to(http.port) as two:
            await two.ask(
                "subscribe",
                "subscribed",
                subscription="s",
                topic="t",
                group="g",
                from_="beginning",
                credit=100,
            )
            revoked = (await one.expect("revoked"))["partitions"]
            assert len(revoked) == 1
            assigned = (await two.expect("assigned"))["partitions"]
            assert [each["partition"] for each in assigned] == [revoked[0]["partition"]]
            await fill(http, "t", "x", partition=revoked[0]["partition"])
            assert values(await two.records(1)) == ["x"]
            two.connection.transport.abort()
        assert (await one.expect("assigned"))["partitions"][0]["partition"] == revoked[0]["partition"]
        assert values(await one.records(1)) == ["x"]


async def test_client_outside_the_group_does_not_commit(http: Http) -> None:
    await fill(http, "t", "a")
    await fill(http, "other", "a")
    offsets = [{"topic": "t", "partition": 0, "offset": 1}]
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t")
        assert await socket.refused("commit", subscription="s", offsets=offsets) == "INVALID_ARGUMENT"
        await subscribe(socket, "g", topic="t", group="g")
        others = [{"topic": "other", "partition": 0, "offset": 1}]
        assert await socket.refused("commit", subscription="g", offsets=others) == "STALE_MEMBER"


# ── what is refused ───────────────────────────────────────────────────────────────────────────────


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "INVALID_ARGUMENT"),
    ({"topic": "t", "queue": "q"}, "INVALID_ARGUMENT"),
    ({"topic": "t", "pattern": "t*"}, "INVALID_ARGUMENT"),
    ({"topic": "t", "from": "yesterday"}, "INVALID_ARGUMENT"),
    ({"topic": "t", "from": -5}, "INVALID_ARGUMENT"),
    ({"topic": "t", "partition": 9}, "UNKNOWN_PARTITION"),
    ({"topics": ["t"], "partition": 0}, "INVALID_ARGUMENT"),
    ({"topic": "t", "group": "g", "partition": 0}, "INVALID_ARGUMENT"),
    ({"topic": "no/topic"}, "INVALID_TOPIC_NAME"),
    ({"topic": "t", "group": "g\n"}, "INVALID_ARGUMENT"),
    ({"topic": ""}, "INVALID_TOPIC_NAME"),
    ({"topic": "t", "create": True}, "INVALID_ARGUMENT"),
    ({"consumer": "c"}, "INVALID_ARGUMENT"),
    ({"queue": "q", "group": "g"}, "INVALID_ARGUMENT"),
    ({"queue": "q", "from": "beginning"}, "INVALID_ARGUMENT"),
    ({"queue": "q", "partition": 0}, "INVALID_ARGUMENT"),
    ({"queue": ""}, "INVALID_ARGUMENT"),
    ({"topic": "t", "credit": -1}, "INVALID_ARGUMENT"),
    ({"topic": "t", "encoding": "rot13"}, "INVALID_ARGUMENT"),
]


async def test_a_subscription_that_means_nothing_is_refused_and_its_name_stays_free(http: Http) -> None:
    await fill(http, "t", "a")
    async with socket_to(http.port) as socket:
        for members, code in REFUSED:
            assert await socket.refused("subscribe", subscription="s", **members) == code, members
        await subscribe(socket, topic="t")


async def test_a_name_stands_for_one_subscription(http: Http) -> None:
    async with socket_to(http.port) as socket:
        await subscribe(socket, topic="t")
        assert await socket.refused("subscribe", subscription="s", topic="t") == "INVALID_ARGUMENT"
        assert await socket.refused("unsubscribe", subscription="other") == "INVALID_ARGUMENT"


async def test_a_socket_has_a_limited_number_of_subscriptions(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_SUBSCRIPTIONS", 2)
    async with socket_to(http.port) as socket:
        await subscribe(socket, "one", topic="t")
        await subscribe(socket, "two", topic="t")
        assert await socket.refused("subscribe", subscription="three", topic="t") == "OVERLOADED"
        await socket.ask("unsubscribe", "ended", subscription="one")
        await subscribe(socket, "three", topic="t")
