"""Syncbrok: bytes, behaviour, and additions of Sparrow. Deliveries are in
`test_syncbrok_deliveries.py`.
"""

from __future__ import annotations

import asyncio
import random
import re
import uuid
from pathlib import Path

import pytest

from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.frontends.seeds.syncbrok import SyncbrokPort
from sparrow.frontends.seeds.syncbrok_queues import subscriber_of
from tests.seeds.listeners import OpenListeners, Wire, records, stored, until
from tests.seeds.syncbrok_client import UUID, SyncbrokClient, request

NAME = "syncbrok"
URL = "http://127.0.0.1:20000/"


@pytest.fixture
async def port(open_listeners: OpenListeners) -> int:
    return (await open_listeners(NAME))[NAME]


@pytest.fixture
async def client(port: int) -> SyncbrokClient:
    return await SyncbrokClient.connect(port)


async def response_of(port: int, data: bytes) -> bytes:
    """Return all bytes until the end, without the date and with ids masked."""
    wire = await Wire.open(port)
    wire.send(data)
    wire.writer.write_eof()
    response = await wire.read_to_end()
    return re.sub(UUID, b"UUID", re.sub(rb"Date: [A-Z][a-z]{2}, [^\r]* GMT\r\n", b"Date\r\n", response))


OK = b"HTTP/1.1 200 OK\r\nDate\r\nContent-Length: %d\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
TAKEN = OK % 36 + b"UUID"
HOST = b" HTTP/1.1\r\nHost: localhost:10000\r\n"
NO_BODY = b"Content-Length: 0\r\n\r\n"
NO_PAGE = (
    b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: "
    b"nosniff\r\n"
    b"Date\r\nContent-Length: 19\r\n\r\n404 page not found\n"
)


# ── its bytes ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (
            b"POST /queue" + HOST + b"queue: q\r\n" + NO_BODY,
            OK % 34 + b"You posted new queue with name : q",
        ),
        (
            b"GET /queue?x=1" + HOST + b"QUEUE: q\r\n\r\n",
            OK % 34 + b"You posted new queue with name : q",
        ),
        (b"HEAD /queue" + HOST + b"queue: q\r\n\r\n", OK % 34),
        (
            b"POST /queue" + HOST + NO_BODY,
            OK % 57 + b"You posted empty queue name, queue name shall be provided",
        ),
        (
            b"POST /subscrib" + HOST + b"queue: q\r\nendpoint: http://127.0.0.1:20000/\r\n" + NO_BODY,
            OK % 40 + b"You posted new subscriber for queue  : q",
        ),
        (b"POST /msg" + HOST + b"queue: q\r\nContent-Length: 5\r\n\r\nhello", TAKEN),
        (
            b"POST /msg"
            + HOST
            + b"queue: q\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
            TAKEN,
        ),
        (
            b"POST /msg" + HOST + b"queue: q\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
            b"HTTP/1.1 100 Continue\r\n\r\n" + TAKEN,
        ),
        (
            b"POST /msg" + HOST + b"queue: q\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
            TAKEN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        ),
        (3 * (b"POST /msg" + HOST + b"queue: q\r\nContent-Length: 5\r\n\r\nhello"), 3 * TAKEN),
        (b"POST /" + HOST + NO_BODY, NO_PAGE),
    ],
)
async def test_the_bytes_of_a_conversation(port: int, sent: bytes, expected: bytes) -> None:
    """The responses equal those of the original, byte for byte."""
    assert await response_of(port, sent) == expected


async def test_a_body_is_sent_when_it_is_asked_for(client: SyncbrokClient) -> None:
    head, _, body = request("/msg", b"hello", queue="q", Expect="100-continue").rpartition(b"\r\n\r\n")
    client.wire.send(head + b"\r\n\r\n")
    assert await client.wire.read(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await client.ask(body))[0] == 200


# ── queues, endpoints, messages ───────────────────────────────────────────────────────────────────


async def test_a_queue_is_parented_and_made_once(client: SyncbrokClient, broker: Broker) -> None:
    await client.queue("q")
    await client.queue("q")
    info = broker.queues.describe("q")
    assert (info.topics, info.policy["order"], info.policy["delivery_limit"]) == (["q"], "parented", 0)
    assert broker.topics.describe("q").partition_count == 1


async def test_a_queue_that_was_there_stays_as_it_is(client: SyncbrokClient, broker: Broker) -> None:
    before = await broker.queues.create("q", policy={"lease_ms": 5_000})
    await client.queue("q")
    assert broker.queues.describe("q").policy == before.policy


async def test_a_queue_that_is_the_cursor_of_another_seed_is_left_alone(port: int, broker: Broker) -> None:
    await broker.topics.create("news", 1)
    before = await broker.queues.create("news.diy", ["news"])
    for path, headers in (("/queue", {}), ("/subscrib", {"endpoint": URL})):
        client = await SyncbrokClient.connect(port)
        status, _, text = await client.ask(request(path, queue="news.diy", **headers))
        assert (status, b"hands out the messages of topic 'news'" in text) == (409, True)
    assert broker.queues.describe("news.diy").policy == before.policy


async def test_an_endpoint_is_a_subscriber_and_once_more_is_nothing(
    client: SyncbrokClient, broker: Broker
) -> None:
    await client.queue("q")
    for url in (URL, URL, "http://localhost:20001/in", URL):
        await client.subscribe("q", url)
    names = [subscriber_of(URL), subscriber_of("http://localhost:20001/in")]
    assert broker.queues.describe("q").policy["subscribers"] == names
    assert names[0].startswith("127.0.0.1-20000.")
    endpoints = {each.name: each for each in broker.webhooks.listing("q")}
    assert sorted(endpoints) == sorted(names)


async def test_an_endpoint_of_a_queue_that_does_not_exist_creates_it(
    client: SyncbrokClient, broker: Broker
) -> None:
    await client.subscribe("q", URL)
    assert broker.queues.describe("q").policy["order"] == "parented"


async def test_a_message_is_kept_with_its_id_and_its_parent(client: SyncbrokClient, broker: Broker) -> None:
    await client.queue("q")
    parent = await client.publish("q", b"\x00parent\xff")
    child = await client.publish("q", b"", parent)
    kept = await records(broker, "q", 2)
    assert [record.value for record in kept] == [b"\x00parent\xff", b""]
    assert kept[0].headers == (("message-id", parent.encode()),)
    assert kept[1].headers == (("message-id", child.encode()), ("parent-id", parent.encode()))
    assert len({parent, child}) == 2


async def test_a_message_waits_for_its_queue(client: SyncbrokClient, broker: Broker) -> None:
    await client.publish("q", b"early")
    assert broker.parts.queue_registry.find("q") is None
    await client.queue("q")
    await until(lambda: broker.queues.describe("q").statistics.ready == 1)


@pytest.mark.parametrize("form", ["{}", "urn:uuid:{}", "{{{}}}", "upper", "hex"])
async def test_a_parent_is_known_in_every_form_of_a_uuid(
    client: SyncbrokClient, broker: Broker, form: str
) -> None:
    parent = uuid.uuid4()
    text = {"upper": str(parent).upper(), "hex": parent.hex}.get(form, form.format(parent))
    await client.publish("q", b"x", text)
    headers = dict((await records(broker, "q", 1))[0].headers)
    assert headers["parent-id"] == str(parent).encode()


async def test_the_parent_of_zeros_is_none(client: SyncbrokClient, broker: Broker) -> None:
    await client.publish("q", b"x", str(uuid.UUID(int=0)))
    assert "parent-id" not in dict((await records(broker, "q", 1))[0].headers)


async def test_a_name_that_no_topic_can_have_is_a_queue_all_the_same(
    client: SyncbrokClient, broker: Broker
) -> None:
    assert await client.queue("my queue") == b"You posted new queue with name : my queue"
    await client.publish("my queue", b"x")
    (queue,) = broker.queues.listing("my-queue.*")
    assert [record.value for record in await records(broker, queue.name, 1)] == [b"x"]


# ── what is refused ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        (request("/msg", b"x"), 400, "the header queue is missing"),
        (request("/subscrib", endpoint=URL), 400, "the header queue is missing"),
        (request("/subscrib", queue="q"), 400, "the header endpoint is missing"),
        (request("/subscrib", queue="q", endpoint="ftp://example.org/"), 400, "http:// or https://"),
        (request("/subscrib", queue="q", endpoint="http://user:pw@localhost/"), 400, "user or password"),
        (request("/subscrib", queue="q", endpoint="http://169.254.169.254/latest"), 400, "169.254.169.254"),
        (request("/msg", b"x", queue="q", ParentId="first"), 400, "no UUID"),
        (request("/msg", b"x" * 2_000_000, queue="q"), 413, "at most 1048576 bytes"),
        (request("/msg", b"x" * ((1 << 20) - 1), queue="small"), 413, "max.message.bytes"),
        (request("/msg", Content_Length="99999999999999", queue="q"), 413, "at most 1048576 bytes"),
        (request("/msg", Content_Length="-1", queue="q"), 400, "no request of HTTP/1.1"),
        (
            request("/msg", b"80000000\r\n" + b"x" * 2_000_000, queue="q", Transfer_Encoding="chunked"),
            413,
            "at most 1048576 bytes",
        ),
        (
            request("/msg", b"1\r\nx\r\n" * 5_000, queue="q", Transfer_Encoding="chunked"),
            400,
            "too many tiny chunks",
        ),
        (request("/msg", b"zz\r\n", queue="q", Transfer_Encoding="chunked"), 400, "no request of HTTP/1.1"),
        (b"\x00\x01garbage\r\n\r\n", 400, "no request of HTTP/1.1"),
        (b"POST /queue HTTP/1.1\r\nqueue: q\r\n\r\n", 400, "no request of HTTP/1.1"),
        (request("/queue", queue="q" * 20_000)[:-4], 431, "no request of HTTP/1.1"),
        (request("/queue", queue="q").replace(b"localhost:10000", b"evil.example"), 403, "Host"),
    ],
)
async def test_a_wrong_request_is_reported_and_others_are_served(
    port: int, broker: Broker, data: bytes, status: int, said: str
) -> None:
    await broker.topics.create("small", 1, {"max.message.bytes": "10000"})
    client = await SyncbrokClient.connect(port)
    code, headers, text = await client.ask(data)
    assert (code, headers["Content-Type"]) == (status, "text/plain; charset=utf-8")
    assert said in text.decode()
    other = await SyncbrokClient.connect(port)
    await other.publish("q", b"fine")


@pytest.mark.slow
async def test_garbage_disturbs_no_client(port: int) -> None:
    seed = random.Random(7)
    good = [request("/msg", b"x", queue="q"), request("/queue", queue="q"), request("/subscrib", queue="q")]
    steady = await SyncbrokClient.connect(port)
    for _ in range(60):
        wire = await Wire.open(port)
        spoiled = bytearray(b"".join(seed.choices(good, k=3)))
        for _ in range(1 + seed.randrange(4)):
            spoiled[seed.randrange(len(spoiled))] = seed.randrange(256)
        wire.send(bytes(spoiled))
        await (wire.abort() if seed.random() < 0.5 else wire.close())
        await steady.publish("calm", b"x")


async def test_a_refusal_is_written_without_a_complaint(port: int, caplog: pytest.LogCaptureFixture) -> None:
    wire = await Wire.open(port)
    wire.send(b"no request\r\n\r\n")
    assert (await wire.read_to_end()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_private_endpoints_can_be_forbidden(open_listeners: OpenListeners) -> None:
    port = (await open_listeners(NAME, private_endpoints=False))[NAME]
    client = await SyncbrokClient.connect(port)
    status, _, text = await client.ask(request("/subscrib", queue="q", endpoint=URL))
    assert status == 400
    assert "127.0.0.1" in text.decode()


async def test_no_topic_is_made_where_the_broker_makes_none(tmp_path: Path) -> None:
    async with Broker(tmp_path / "other", config=BrokerConfig(auto_create_topics=False)) as broker:
        open_listeners = OpenListeners(broker)
        client = await SyncbrokClient.connect((await open_listeners(NAME))[NAME])
        assert (await client.ask(request("/msg", b"x", queue="q")))[0] == 404
        await client.queue("q")
        await client.publish("q", b"x")
        await open_listeners.close_all()


async def test_a_client_that_vanishes_in_mid_body_leaves_nothing_behind(port: int, broker: Broker) -> None:
    client = await SyncbrokClient.connect(port)
    await client.publish("q", b"whole")
    client.wire.send(request("/msg", b"half", queue="q", Content_Length="5"))
    await client.wire.close()
    await (await SyncbrokClient.connect(port)).publish("q", b"next")
    assert [record.value for record in await stored(broker, "q")] == [b"whole", b"next"]


async def test_a_client_that_does_not_go_on_with_a_request_is_cut_off(open_listeners: OpenListeners) -> None:
    port = (await open_listeners(NAME, idle_timeout_ms=40))[NAME]
    in_head, in_body, idle = [await SyncbrokClient.connect(port) for _ in range(3)]
    in_head.wire.send(b"POST /msg HTT")
    in_body.wire.send(request("/msg", b"x", queue="q", Content_Length="2"))
    assert await in_head.wire.read_to_end() == b""
    assert await in_body.wire.read_to_end() == b""
    await idle.publish("q", b"x")


async def test_answers_come_in_order_and_keep_the_connection(client: SyncbrokClient, broker: Broker) -> None:
    client.wire.send(b"".join(request("/msg", b"%d" % number, queue="q") for number in range(50)))
    ids = [(await client.read())[2] for _ in range(50)]
    kept = await records(broker, "q", 50)
    assert [record.value for record in kept] == [b"%d" % number for number in range(50)]
    assert [dict(record.headers)["message-id"] for record in kept] == ids


async def test_drain_answers_pending_requests(
    client: SyncbrokClient, open_listeners: OpenListeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_go_on = asyncio.Event(), asyncio.Event()
    make_queue = SyncbrokPort.make_queue

    async def take_time(port: SyncbrokPort, name: bytes) -> str:
        asked.set()
        await may_go_on.wait()
        return await make_queue(port, name)

    monkeypatch.setattr(SyncbrokPort, "make_queue", take_time)
    client.wire.send(2 * request("/queue", queue="q"))
    await asked.wait()
    closing = asyncio.create_task(open_listeners.close())
    await asyncio.sleep(0)
    may_go_on.set()
    assert (await client.read())[0] == 200
    await closing
    assert await client.wire.read_to_end() == b""
