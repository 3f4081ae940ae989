"""Clients that send anything, are silent, or vanish: the listeners stay open for the others."""

from __future__ import annotations

import asyncio
import logging
import random
import resource
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from sparrow.base.errors import DiskFull
from sparrow.broker.access.authz import SYSTEM
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.queues.rules.settlement import Leased
from sparrow.frontends import leased_records
from sparrow.frontends.publisher import MessageColumns, PublishedPart
from sparrow.frontends.seeds import names
from tests.corrupt.bad import KINDS
from tests.seeds import mbus_client
from tests.seeds.diy_client import PUBLISH, DiyClient, fields, frame
from tests.seeds.listeners import OpenListeners, Wire, publish, records, until
from tests.seeds.messagebroker_client import ERROR, Publisher, Subscriber, message, subscription

NAMES = ("diy_message_broker", "messagebroker", "mbus", "mbus_consumer")


@pytest.fixture
async def ports(open_listeners: OpenListeners) -> Mapping[str, int]:
    return await open_listeners(*NAMES)


async def each_listener_works(ports: Mapping[str, int], topic: str) -> None:
    name = topic.encode()
    diy = await DiyClient.connect(ports["diy_message_broker"])
    diy.publish(name, b"x")
    assert (await diy.consume(name)).data == b"x"
    subscriber = await Subscriber.connect(ports["messagebroker"], topic)
    assert await subscriber.take() == [b"x"]
    await mbus_client.produce(ports["mbus"], name, b"y")
    assert await mbus_client.consume(ports["mbus_consumer"], name) == [b"x", b"y"]


def damaged(seed: random.Random) -> bytes:
    """Return bytes that are valid at the start and wrong somewhere, or only noise."""
    good = b"".join(
        seed.choice(
            [
                frame(PUBLISH, fields(b"t", b"k", b"data"), 2),
                frame(3, fields(b"t"), 2),
                b"\x00\x03" + message(b"t", b"data"),
                subscription(["t", "u"], seed.randrange(4), 1),
                mbus_client.message(b"t", b"data"),
                b"t\n",
            ]
        )
        for _ in range(seed.randrange(1, 6))
    )
    spoiled = bytearray(good)
    for _ in range(seed.randrange(4)):
        spoiled[seed.randrange(len(spoiled))] = seed.randrange(256)
    return bytes(spoiled) if seed.random() < 0.8 else seed.randbytes(seed.randrange(1, 400))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
async def test_garbage_on_each_port_disturbs_no_client(
    ports: Mapping[str, int], broker: Broker, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    seed = random.Random(number)

    async def spoil(port: int) -> None:
        wire = await Wire.open(port)
        wire.send(damaged(seed))
        if seed.random() < 0.5:
            wire.writer.write_eof()
        await asyncio.sleep(seed.random() / 100)
        await wire.abort()

    for _ in range(15):
        await asyncio.gather(*(spoil(ports[name]) for name in NAMES for _ in range(5)))
    await each_listener_works(ports, "after-garbage")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert all(queue.unfinished >= 0 for queue in broker.parts.queue_registry)


@pytest.mark.slow
async def test_a_thousand_idle_connections_disturb_no_client(open_listeners: OpenListeners) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096:
        if hard < 4096:
            pytest.skip("not enough open files are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    ports = await open_listeners(*NAMES)
    for name in NAMES:
        for _ in range(5):
            await asyncio.gather(*(Wire.open(ports[name]) for _ in range(50)))
    assert len(Wire.opened) == 1000
    await each_listener_works(ports, "beside-idle-ones")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("diy_message_broker", frame(PUBLISH, fields(b"t", b"", b"x" * 900_000), 2)[:-1]),
        ("messagebroker", b"\x00\x03" + message(b"t", b"x" * 900_000)[:-1]),
        ("messagebroker", subscription(["t" * 900_000])[:-3]),
        ("mbus", mbus_client.message(b"t", b"x" * 900_000)[:-1]),
    ],
)
async def test_memory_for_unfinished_messages_is_shared_and_limited(
    ports: Mapping[str, int], broker: Broker, name: str, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrow.frontends.seeds.context.RECEIVE_BUDGET_BYTES", 3 << 20)
    listeners = OpenListeners(broker)
    port = (await listeners(name))[name]
    wires = [await Wire.open(port) for _ in range(8)]
    for wire in wires:
        wire.send(start)
    await asyncio.sleep(0.1)
    budget = listeners.frontends[0]._ports[0].receive_budget  # type: ignore[attr-defined]
    assert 0 < budget.reserved_bytes <= 3 << 20
    assert budget.waiting
    for wire in wires:
        await wire.abort()
    async with asyncio.timeout(5):
        while budget.reserved_bytes or budget.waiting:
            await asyncio.sleep(0.005)
    await listeners.close()


@pytest.mark.parametrize("cut", [1, 3, 8, 12])
async def test_a_client_that_vanishes_in_the_middle_of_a_message_affects_no_other(
    ports: Mapping[str, int], cut: int
) -> None:
    starts = {
        "diy_message_broker": frame(PUBLISH, fields(b"t", b"", b"data"), 2),
        "messagebroker": b"\x00\x03" + message(b"t", b"data"),
        "mbus": mbus_client.message(b"t", b"data"),
        "mbus_consumer": b"a topic",
    }
    for name, start in starts.items():
        wire = await Wire.open(ports[name])
        wire.send(start[:cut])
        await asyncio.sleep(0)
        await wire.abort()
    await each_listener_works(ports, "t")


@pytest.mark.parametrize(("name", "connect"), [(NAMES[0], DiyClient.connect), (NAMES[1], Publisher.connect)])
async def test_a_publisher_is_not_read_from_while_too_much_is_unconfirmed(
    ports: Mapping[str, int],
    broker: Broker,
    name: str,
    connect: Callable[[int], Awaitable[DiyClient | Publisher]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparrow.frontends.seeds.publish_queue.WINDOW_BYTES", 10_000)
    publisher = await connect(ports[name])
    for number in range(300):
        publisher.publish(b"t", b"%d" % number + b"x" * 1000)
    found = await records(broker, "t", 300)
    assert [int((record.value or b"").rstrip(b"x")) for record in found] == list(range(300))


async def test_an_unreadable_message_stops_no_client(ports: Mapping[str, int], broker: Broker) -> None:
    await broker.topics.create("t", 1, {"record.validation": "header"})
    await publish(broker, "t", b"0", b"1")
    await broker.records.publish("t", 0, KINDS["header counts"]())
    await publish(broker, "t", b"3", b"4")
    assert await mbus_client.consume(ports["mbus_consumer"], b"t") == [b"0", b"1", b"3", b"4"]
    diy = await DiyClient.connect(ports["diy_message_broker"])
    assert [(await diy.consume(b"t")).data for _ in range(5)] == [b"0", b"1", b"3", b"4", b""]


async def test_a_compacted_message_stops_no_client(
    ports: Mapping[str, int], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = leased_records.read_leased

    async def read_some(leased: Leased) -> leased_records.LeasedRecords:
        there, missing, _ = await read(leased)
        gone = [(each.record.offset,) * 2 + (1,) for each in there if each.record.offset not in (2, 5)]
        return leased_records.LeasedRecords(
            [h for h in there if h.record.offset in (2, 5)], missing + gone, []
        )

    monkeypatch.setattr("sparrow.frontends.seeds.handout_queues.read_leased", read_some)
    await broker.topics.create("t", 1)
    await publish(broker, "t", *(b"%d" % number for number in range(8)))
    assert await mbus_client.consume(ports["mbus_consumer"], b"t") == [b"2", b"5"]
    diy = await DiyClient.connect(ports["diy_message_broker"])
    assert [(await diy.consume(b"t")).data for _ in range(3)] == [b"2", b"5", b""]
    assert [broker.parts.queue_registry.get(name).unfinished for name in ("t.mbus", "t.diy")] == [0, 0]


async def none_is_kept(ports: Mapping[str, int], why: str) -> None:
    """Check that each seed's publisher notices that its message is lost."""
    diy = await DiyClient.connect(ports["diy_message_broker"])
    diy.publish(b"t", b"x")
    assert await diy.wire.read_to_end() == b""
    publisher = await Publisher.connect(ports["messagebroker"])
    publisher.publish(b"t", b"x")
    status, text = await publisher.status()
    assert (status, why in text) == (ERROR, True)
    producer = await mbus_client.send(ports["mbus"], mbus_client.message(b"t", b"x"))
    with pytest.raises(ConnectionResetError):
        await producer.reader.read()


async def test_on_a_full_disk_publishers_learn_it_and_the_frontends_stay_open(
    ports: Mapping[str, int], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise DiskFull("the disk is full")

    await broker.topics.create("t", 1)
    with monkeypatch.context() as patched:
        patched.setattr(broker.records, "publish", full)
        await none_is_kept(ports, "the disk is full")
    await each_listener_works(ports, "t")


async def test_a_bug_while_a_topic_is_made_is_reported_to_publishers_and_the_frontends_stay_open(
    ports: Mapping[str, int], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(broker.topics, "create", fail)
        await none_is_kept(ports, "the broker's log says why")
    await each_listener_works(ports, "t")


def test_long_names_are_not_remembered() -> None:
    before = names._known.cache_info().currsize
    assert len(names.topic_of(b"n" * 60_000)) < 249
    assert names._known.cache_info().currsize == before


async def test_a_stop_that_cannot_wait_for_the_disk_resets_the_publishers(
    open_listeners: OpenListeners, ports: Mapping[str, int], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(topic: str, columns: MessageColumns, *, principal: object) -> list[PublishedPart]:
        return [PublishedPart(0, range(len(columns.values)), [], asyncio.get_running_loop().create_future())]

    await broker.topics.create("t", 1)
    frontend = open_listeners.frontends.pop()
    monkeypatch.setattr(frontend._context.publisher, "begin", begin)
    diy = await DiyClient.connect(ports[NAMES[0]])
    diy.publish(b"t", b"x")
    publisher = await Publisher.connect(ports[NAMES[1]])
    publisher.publish(b"t", b"x")
    producer = await mbus_client.send(ports["mbus"], mbus_client.message(b"t", b"x"))
    await until(lambda: all(listener.unsettled for listener in frontend._ports[:3]))  # type: ignore[attr-defined]
    await frontend.drain(0.1)
    for wire in (diy.wire, publisher.wire, producer):
        with pytest.raises(ConnectionResetError):
            await wire.reader.read()


async def test_a_stop_resets_publishers_that_may_send_more(
    open_listeners: OpenListeners, ports: Mapping[str, int], broker: Broker
) -> None:
    """Messages sent after a stop are lost, and a normal end of the connection would confirm
    them.
    """
    publisher = await Publisher.connect(ports[NAMES[1]])
    publisher.publish(b"t", b"x")
    producer = await Wire.open(ports["mbus"])
    producer.send(b"\x82")
    await records(broker, "t", 1)
    await open_listeners.close()
    for wire in (publisher.wire, producer):
        with pytest.raises(ConnectionResetError):
            await wire.reader.read()


@pytest.mark.parametrize(("name", "wrong"), [("mbus", b"\xc1"), ("diy_message_broker", b"\x00" * 13)])
async def test_garbage_of_a_publisher_is_answered_with_a_reset(
    ports: Mapping[str, int], name: str, wrong: bytes
) -> None:
    wire = await Wire.open(ports[name])
    wire.send(wrong)
    wire.writer.write_eof()
    with pytest.raises(ConnectionResetError):
        await wire.reader.read()


async def test_where_anonymous_clients_may_do_nothing_the_frontends_say_so(tmp_path: Path) -> None:
    async with Broker(tmp_path / "strict", config=BrokerConfig(allow_unnamed_resources=False)) as broker:
        listeners = OpenListeners(broker)
        ports = await listeners(*NAMES)
        await none_is_kept(ports, "is not allowed to")
        await broker.topics.create("t", 1, principal=SYSTEM)
        await none_is_kept(ports, "is not allowed to")
        subscriber = Subscriber(await Wire.open(ports["messagebroker"]))
        subscriber.wire.send(subscription(["t"]))
        assert (await subscriber.status())[0] == ERROR
        assert await mbus_client.consume(ports["mbus_consumer"], b"t") == []
        diy = await Wire.open(ports["diy_message_broker"])
        diy.send(frame(3, fields(b"t"), 2))
        assert await diy.read_to_end() == b""
        await listeners.close_all()
