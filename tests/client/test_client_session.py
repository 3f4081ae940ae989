"""Sessions: connecting, calls, lost connections, and the end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import sparrow
from sparrow.base.errors import (
    ConnectionLost,
    InvalidArgument,
    NotAuthenticated,
    Overloaded,
    ProtocolError,
    SparrowError,
    TimedOut,
    TopicExists,
    UnknownTopic,
)
from sparrow.broker.config import BrokerConfig
from sparrow.client.client import Client, connect
from sparrow.client.options import ClientOptions
from sparrow.client.session import Session
from sparrow.client.url import Address, parse_url
from sparrow.frontends.native.limits import NativeLimits
from tests.client.conftest import OpenProxy
from tests.client.frontends import Frontend, client_of, everything


async def closed_port() -> int:
    """Return a port on which nothing listens."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def test_connect_is_awaited_or_entered(frontend: Frontend) -> None:
    client = await connect(frontend.url)
    await client.publish("t", b"x")
    await client.close()
    async with sparrow.connect(frontend.url, client_name="me") as entered:
        assert entered.is_connected
        assert entered.address == f"127.0.0.1:{frontend.port}"


async def test_a_connection_is_made_once(frontend: Frontend) -> None:
    connecting = connect(frontend.url)
    async with connecting:
        with pytest.raises(InvalidArgument, match="made already"):
            await connecting


async def test_unreachable_broker_is_named_with_advice() -> None:
    port = await closed_port()
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}.*sparrow serve"):
        await connect(f"sparrow://127.0.0.1:{port}", connect_timeout_s=0.05)


async def test_the_first_connection_is_tried_until_a_broker_is_there(tmp_path: Path) -> None:
    frontend = Frontend(tmp_path / "late", BrokerConfig(), NativeLimits())
    frontend.port = await closed_port()
    connecting = asyncio.ensure_future(_connected(frontend.url))
    await asyncio.sleep(0.05)
    await frontend.start()
    client = await connecting
    await client.close()
    await frontend.stop()


async def _connected(url: str) -> Client:
    return await connect(url)


@pytest.mark.parametrize(
    "reply",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 64, b"SSH-2.0-OpenSSH_9.2p1\r\n", b""],
    ids=["http", "zeros", "ssh", "nothing"],
)
async def test_a_peer_that_is_no_broker_is_an_error_in_time(reply: bytes) -> None:
    gone = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        with suppress(OSError):
            await reader.read(-1)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        gone.set()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ProtocolError if reply else ConnectionLost, match=str(port)):
            await connect(f"127.0.0.1:{port}", connect_timeout_s=0.2)
        await gone.wait()


async def test_a_wrong_token_is_refused_at_once_and_a_right_one_let_in(frontend: Frontend) -> None:
    frontend.authenticator.token = "s3cret"
    with pytest.raises(NotAuthenticated):
        await connect(frontend.url, token="wrong")
    with pytest.raises(NotAuthenticated):
        await connect(frontend.url)
    async with (
        connect(frontend.url, token="s3cret"),
        connect(f"sparrow://:s3cret@127.0.0.1:{frontend.port}") as client,
    ):
        assert "s3cret" not in client.address


async def test_a_token_that_is_no_longer_valid_ends_the_client_in_words(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    async with client_of(proxy.url) as client:
        sub = await client.subscribe("t").start()
        frontend.authenticator.token = "new"
        proxy.cut()
        with pytest.raises(NotAuthenticated):
            await anext(aiter(sub))
        with pytest.raises(NotAuthenticated):
            await client.publish("t", b"x")
        with pytest.raises(NotAuthenticated):
            await client.admin.list_topics()


async def test_a_client_gives_up_after_the_reconnect_timeout(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    async with (
        client_of(proxy.url, reconnect_timeout_s=0.1, connect_timeout_s=0.05) as client,
        client.producer() as producer,
    ):
        await (await producer.send("t", b"x"))
        proxy.is_refusing = True
        proxy.cut()
        with pytest.raises(ConnectionLost, match=r"tried for 0\.1 s"):
            await (await producer.send("t", b"y"))


async def test_delays_between_attempts_are_jittered_and_grow_to_their_maximum(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)
        proxy.is_refusing = len(slept) < 8
        await asyncio.sleep(0)

    options = ClientOptions(backoff_initial_s=0.1, backoff_max_s=1.0)
    session = Session(parse_url(proxy.url), options, sleep=sleep, uniform=lambda: 0.5)
    await session.open()
    proxy.is_refusing = True
    proxy.cut()
    await asyncio.sleep(0.01)
    await session.ready_connection(5)
    assert slept == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.5, 0.5]
    await session.close()


async def test_the_next_broker_of_the_url_is_used_when_one_is_away(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    first, second = await open_proxy(), await open_proxy()
    first.is_refusing = True
    hosts = ",".join(each.url.rpartition("://")[2] for each in (first, second))
    async with client_of(f"sparrow://{hosts}") as client, client.producer() as producer:
        await client.admin.create_topic("t", partitions=1)
        assert (await (await producer.send("t", b"1"))).offset == 0
        first.is_refusing, second.is_refusing = False, True
        second.cut()
        assert (await (await producer.send("t", b"2"))).offset == 1
        second.is_refusing, first.is_refusing = False, True
        first.cut()
        assert (await (await producer.send("t", b"3"))).offset == 2


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────


async def test_reads_are_made_again_when_the_connection_is_lost_under_them(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    async with client_of(proxy.url) as client:
        await client.admin.create_topic("t")
        proxy.is_silent = True
        listing = asyncio.ensure_future(client.admin.list_topics())
        await asyncio.sleep(0.01)
        proxy.cut()
        proxy.is_silent = False
        assert [topic.name for topic in await listing] == ["t"]


async def test_a_change_under_which_the_connection_is_lost_is_not_made_again(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    async with client_of(proxy.url) as client:
        proxy.is_silent = True
        creating = asyncio.ensure_future(client.admin.create_topic("t"))
        await asyncio.sleep(0.01)
        proxy.cut()
        with pytest.raises(ConnectionLost):
            await creating


async def test_a_call_without_a_response_times_out(frontend: Frontend, open_proxy: OpenProxy) -> None:
    proxy = await open_proxy()
    async with client_of(proxy.url, call_timeout_s=0.05) as client:
        proxy.is_silent = True
        with pytest.raises(TimedOut, match=r"did not answer topic\.list within 0\.0"):
            await client.admin.list_topics()
        proxy.is_silent = False


async def test_a_call_without_a_connection_names_the_address(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    async with client_of(proxy.url, call_timeout_s=0.05) as client:
        proxy.is_refusing = True
        proxy.cut()
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectionLost, match=str(proxy.port)):
            await client.admin.list_topics()


async def test_more_channels_than_the_broker_allows_are_refused_here(tmp_path: Path) -> None:
    frontend = Frontend(tmp_path / "narrow", BrokerConfig(), NativeLimits(max_channels=2))
    await frontend.start()
    async with client_of(frontend.url) as client:
        async with client.subscribe("a"), client.subscribe("b"):
            with pytest.raises(Overloaded, match="2 producers and subscriptions"):
                await client.subscribe("c").start()
            with pytest.raises(Overloaded, match="2 producers and subscriptions"):
                await client.publish("c", b"x")
        assert (await client.publish("c", b"x", partition=0)).offset == 0
    await frontend.stop()


# ── the broker goes and comes ─────────────────────────────────────────────────────────────────────


async def test_a_broker_that_restarts_is_gone_on_with(frontend: Frontend) -> None:
    async with client_of(frontend.url) as client:
        async with client.producer(linger_ms=1) as producer, client.subscribe("t", group="g") as sub:
            sending = asyncio.ensure_future(_send_for_ever(producer))
            read: list[int] = []
            for _ in range(3):
                async with asyncio.timeout(10):
                    async for message in sub:
                        read.append(int(message.value or b""))
                        if len(read) % 50 == 0:
                            break
                await frontend.stop()
                await frontend.start()
            sending.cancel()
            await asyncio.wait([sending])
            await producer.flush()
            count = sum(p.end_offset for p in (await client.admin.describe_topic("t")).partitions)
            async with asyncio.timeout(10):
                while len(read) < count:
                    read += [int(m.value or b"") for m in await sub.pull(1000)]
        found = await everything(client, "t", count)
    assert sorted(int(m.value or b"") for m in found) == list(range(count))
    assert sorted(read) == list(range(count))


async def _send_for_ever(producer: Any) -> None:
    number = 0
    while True:
        await producer.send("t", b"%d" % number)
        number += 1
        await asyncio.sleep(0.0005)


async def test_messages_sent_before_a_drain_are_confirmed_and_the_rest_go_to_the_next_broker(
    frontend: Frontend,
) -> None:
    async with client_of(frontend.url) as client:
        deliveries: list[Any] = []
        async with client.producer(linger_ms=0) as producer:
            for i in range(50):
                deliveries.append(await producer.send("t", b"%d" % i, partition=0))
            await asyncio.sleep(0)
            stopping = asyncio.ensure_future(frontend.stop())
            for i in range(50, 100):
                deliveries.append(await producer.send("t", b"%d" % i, partition=0))
                await asyncio.sleep(0.0002)
            await stopping
            await frontend.start()
            assert [(await d).offset for d in deliveries] == list(range(100))


async def test_a_silent_broker_is_left_and_connected_to_again(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    async with client_of(proxy.url, ping_interval_s=0.03) as client:
        await client.publish("t", b"x")
        first = client._session.connection
        proxy.is_silent = True
        assert first is not None
        async with asyncio.timeout(5):
            reason = await asyncio.shield(first.ended)
        assert "did not answer a ping" in reason.text
        proxy.is_silent = False
        proxy.cut()
        assert (await client.publish("t", b"y")).offset >= 0


@pytest.mark.slow
async def test_pings_keep_an_idle_connection_open(tmp_path: Path) -> None:
    limits = NativeLimits(idle_timeout_ms=150, sweep_interval_ms=10)
    frontend = Frontend(tmp_path / "impatient", BrokerConfig(), limits)
    await frontend.start()
    async with client_of(frontend.url) as client:
        connection = client._session.connection
        await asyncio.sleep(0.4)
        assert client._session.connection is connection
        assert client.is_connected
    await frontend.stop()


async def test_closing_gives_up_in_time_when_the_broker_is_gone(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    client = Client(await _session(proxy.url, close_timeout_s=0.1))
    producer = await client.producer().start()
    await (await producer.send("t", b"x"))
    proxy.is_refusing = True
    proxy.cut()
    await asyncio.sleep(0.01)
    lost = await producer.send("t", b"y")
    async with asyncio.timeout(2):
        with pytest.raises(TimedOut, match="closed with messages"):
            await client.close()
    with pytest.raises(TimedOut):
        await lost
    with pytest.raises(ConnectionLost, match="closed"):
        await client.admin.list_topics()


async def _session(url: str, **options: Any) -> Session:
    session = Session(parse_url(url), ClientOptions(**options))
    await session.open()
    return session


async def test_closing_a_client_closes_its_producers_and_subscriptions(frontend: Frontend) -> None:
    client = await connect(frontend.url)
    producer = await client.producer(linger_ms=60_000).start()
    delivery = await producer.send("t", b"x", partition=0)
    sub = await client.subscribe("t").start()
    await client.close()
    assert delivery.result().offset == 0
    with pytest.raises(SparrowError, match="closed"):
        await sub.pull()
    with pytest.raises(ConnectionLost, match="closed"):
        await producer.send("t", b"x")


async def test_no_task_or_connection_is_left_behind(frontend: Frontend) -> None:
    before = asyncio.all_tasks()
    async with client_of(frontend.url) as client:
        await client.publish("t", b"x")
        async with client.producer() as producer, client.subscribe("t", group="g", commit="auto") as sub:
            await producer.send("t", b"x")
            await sub.pull(1, wait_s=0.01)
    await asyncio.sleep(0.01)
    mine = {t for t in asyncio.all_tasks() - before if "client" in str(t.get_coro())}
    assert not mine
    async with asyncio.timeout(2):
        while frontend.native.connections:
            await asyncio.sleep(0.001)


# ── administration ────────────────────────────────────────────────────────────────────────────────


async def test_topics_are_administered(client: Client) -> None:
    admin = client.admin
    created = await admin.create_topic("t", partitions=2, config={"retention.ms": "1000"})
    assert (created.name, len(created.partitions)) == ("t", 2)
    with pytest.raises(TopicExists):
        await admin.create_topic("t")
    changed = await admin.configure_topic("t", {"retention.bytes": "5000"}, unset=["retention.ms"])
    values = {entry.name: (entry.value, entry.source) for entry in changed.config}
    assert values["retention.bytes"] == ("5000", "topic")
    assert values["retention.ms"][1] != "topic"
    assert (await admin.add_partitions("t", 3)).partition_count == 3
    assert [t.name for t in await admin.list_topics("t*")] == ["t"]
    assert await admin.list_topics("u*") == []
    assert (await admin.ensure_topic("u")).partition_count == 4
    await admin.delete_topic("t")
    with pytest.raises(UnknownTopic):
        await admin.describe_topic("t")


async def test_offsets_and_records_are_administered(client: Client) -> None:
    admin = client.admin
    await admin.create_topic("t", partitions=2)
    for i in range(5):
        await client.publish("t", b"x", partition=0, timestamp_ms=1_700_000_000_000 + i)
    assert [(o.partition, o.offset) for o in await admin.offsets("t")] == [(0, 5), (1, 0)]
    assert await admin.delete_records("t", {0: 2}) == {0: 2}
    assert [(o.partition, o.offset) for o in await admin.offsets("t", "beginning", partition=0)] == [(0, 2)]
    with pytest.raises(InvalidArgument, match="an offset is one already"):
        await admin.offsets("t", 3)


async def test_groups_are_administered(client: Client) -> None:
    admin = client.admin
    await admin.create_topic("t", partitions=1)
    for _ in range(5):
        await client.publish("t", b"x")
    async with client.subscribe("t", group="g", start="beginning") as sub:
        await sub.pull(3, wait_s=5)
        await sub.commit()
        described = await admin.describe_group("g")
        assert [m.member_id for m in described.members] == [sub.member_id]
        assert described.members[0].partitions == [("t", 0)]
        assert [(o.offset, o.end_offset, o.lag) for o in described.offsets] == [(3, 5, 2)]
        assert [(g.group, g.members) for g in await admin.list_groups()] == [("g", 1)]
        with pytest.raises(SparrowError):
            await admin.commit("g", {("t", 0): 1})
    await admin.commit("g", {("t", 0): 1})
    assert [(o.topic, o.partition, o.offset) for o in await admin.group_offsets("g", ["t"])] == [("t", 0, 1)]
    assert await admin.reset_group("g", "t", "end") == {0: 5}
    await admin.delete_group("g")
    assert await admin.list_groups() == []


async def test_the_broker_describes_itself(client: Client) -> None:
    described = await client.admin.describe_broker()
    assert described.connections == 1
    assert described.statistics["cluster_id"] == described.cluster_id


def test_an_address_shows_no_token() -> None:
    assert "s3cret" not in repr(Address("h", 1, "s3cret")) + str(Address("h", 1, "s3cret"))
    assert "s3cret" not in repr(ClientOptions(token="s3cret"))
