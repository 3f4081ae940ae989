"""Messages beyond 1 MiB, where the configuration allows them."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.seeds import mbus_client
from tests.seeds.diy_client import DiyClient
from tests.seeds.messagebroker_client import ERROR, Publisher, Subscriber
from tests.seeds.msbq_client import MsbqClient
from tests.seeds.syncbrok_client import SyncbrokClient
from tests.webhooks.endpoints import EndpointServer, http_response

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("wires")]
LIMIT_BYTES = 4 << 20
LARGE = bytes(range(256)) * (LIMIT_BYTES // 256)
"""The largest message that is allowed. Its newlines do not end messages."""
TEXT = LARGE.replace(b"\n", b" ")


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(
        seeds_max_message_bytes=LIMIT_BYTES,
        seeds_diy_port=0,
        seeds_messagebroker_port=0,
        seeds_mbus_port=0,
        seeds_mbus_consumer_port=0,
        seeds_msbq_port=0,
        seeds_syncbrok_port=0,
    ) as running:
        yield running


@pytest.fixture
def port(running: RunningBroker) -> dict[str, int]:
    return {name: port for name, (_, port) in running.seeds.items()}


async def test_diy(port: dict[str, int]) -> None:
    client = await DiyClient.connect(port["diy_message_broker"])
    client.publish(b"by-diy", LARGE)
    assert (await client.consume(b"by-diy")).data == LARGE


async def test_messagebroker(port: dict[str, int]) -> None:
    publisher = await Publisher.connect(port["messagebroker"])
    publisher.publish(b"by-messagebroker", LARGE, LARGE + b"x", b"small")
    status, text = await publisher.status()
    assert (status, str(LIMIT_BYTES) in text) == (ERROR, True)
    subscriber = await Subscriber.connect(port["messagebroker"], "by-messagebroker")
    assert await subscriber.take(2) == [LARGE, b"small"]


async def test_mbus(port: dict[str, int]) -> None:
    await mbus_client.produce(port["mbus"], b"by-mbus", TEXT)
    assert await mbus_client.consume(port["mbus_consumer"], b"by-mbus") == [TEXT]


async def test_msbq(port: dict[str, int]) -> None:
    client = await MsbqClient.connect(port["msbq"])
    client.consume("by-msbq")
    body = LARGE[: LIMIT_BYTES // 4 * 3 - 1024]  # a frame has it as base64, in JSON
    client.publish("by-msbq", body)
    assert (await client.get())[1] == body


async def test_syncbrok(port: dict[str, int]) -> None:
    client = await SyncbrokClient.connect(port["syncbrok"])
    async with EndpointServer(http_response(200, b"true")) as endpoint:
        await client.subscribe("by-syncbrok", endpoint.url)
        await client.publish("by-syncbrok", LARGE)
        (got,) = await endpoint.until(1)
        assert base64.b64decode(got.json["content"]) == LARGE


def test_a_message_that_an_earlier_topic_does_not_take_is_named_in_the_log(
    running: RunningBroker, port: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with sparrow.sync.connect(running.url) as client:
        client.admin.create_topic("earlier")
    with socket.create_connection(("127.0.0.1", port["mbus"])) as producer:
        producer.sendall(mbus_client.message(b"earlier", LARGE))
        producer.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionResetError):
            producer.recv(1)
    assert "max.message.bytes" in caplog.text
