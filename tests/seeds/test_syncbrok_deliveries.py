"""Syncbrok: deliveries to its endpoints, and their times."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from sparrow.base.errors import InvalidConfig
from sparrow.broker.access.authz import SYSTEM
from sparrow.broker.broker import Broker
from sparrow.frontends.webhook.frontend import WebhookFrontend
from sparrow.frontends.webhook.settings import WebhookSettings
from tests.seeds.listeners import OpenListeners, publish, until
from tests.seeds.syncbrok_client import SyncbrokClient
from tests.webhooks.endpoints import EndpointServer, Got, http_response

NAME = "syncbrok"
TRUE = http_response(200, b"true")


@pytest.fixture
async def client(broker: Broker, open_listeners: OpenListeners) -> AsyncIterator[SyncbrokClient]:
    deliveries = WebhookFrontend(broker, settings=WebhookSettings())
    await deliveries.start()
    client = await SyncbrokClient.connect((await open_listeners(NAME))[NAME])
    yield client
    await open_listeners.close_all()
    await deliveries.drain(5)


def contents(endpoint: EndpointServer) -> list[bytes]:
    return [base64.b64decode(got.json["content"]) for got in endpoint.got]


def accepting(*accepted: bytes) -> Callable[[Got], bytes]:
    """Return an endpoint that answers `true` to these contents and `false` to others."""
    return lambda got: http_response(
        200, b"true" if base64.b64decode(got.json["content"]) in accepted else b"false"
    )


async def test_the_bytes_of_a_delivery(client: SyncbrokClient) -> None:
    async with EndpointServer(TRUE) as endpoint:
        await client.subscribe("q", endpoint.url)
        message_id = await client.publish("q", b"\x00hello\xff")
        (got,) = await endpoint.until(1)
        assert got.body == b'{"id":"%b","content":"AGhlbGxv/w=="}' % message_id.encode()
        assert (got.path, got["content-type"]) == ("/hook", "application/json")


async def test_every_endpoint_gets_every_message(client: SyncbrokClient, broker: Broker) -> None:
    async with EndpointServer(TRUE) as one, EndpointServer(TRUE) as other:
        for endpoint in (one, other):
            await client.subscribe("q", endpoint.url)
        sent = [b"%d" % number for number in range(20)]
        for content in sent:
            await client.publish("q", content)
        for endpoint in (one, other):
            await endpoint.until(20)
            assert sorted(contents(endpoint)) == sorted(sent)
        await until(lambda: not broker.queues.describe("q").statistics.unfinished)


async def test_messages_wait_while_a_queue_has_no_endpoint(client: SyncbrokClient) -> None:
    await client.queue("q")
    parent = await client.publish("q", b"parent")
    await client.publish("q", b"child", parent)
    async with EndpointServer(TRUE) as endpoint:
        await client.subscribe("q", endpoint.url)
        await endpoint.until(2)
        assert contents(endpoint) == [b"parent", b"child"]


async def test_an_endpoint_has_the_longest_time_that_webhooks_allow(
    client: SyncbrokClient, broker: Broker
) -> None:
    await client.subscribe("q", "http://127.0.0.1:1/")
    (endpoint,) = broker.parts.webhook_registry.of_queue("q")
    assert endpoint.settings.timeout_ms == 600_000
    with pytest.raises(InvalidConfig):
        endpoint.settings.changed({"timeout_ms": 600_001})


async def test_the_time_of_an_endpoint_can_be_set(broker: Broker, open_listeners: OpenListeners) -> None:
    deliveries = WebhookFrontend(broker, settings=WebhookSettings())
    await deliveries.start()
    client = await SyncbrokClient.connect((await open_listeners(NAME, endpoint_timeout_ms=100))[NAME])
    async with EndpointServer([lambda _: asyncio.sleep(60, TRUE), TRUE]) as endpoint:
        await client.subscribe("q", endpoint.url)
        await client.publish("q", b"x")
        assert len(await endpoint.until(2)) == 2
    await open_listeners.close_all()
    await deliveries.drain(5)


async def test_an_endpoint_that_takes_longer_than_a_lease_gets_a_message_once(
    client: SyncbrokClient, broker: Broker
) -> None:
    """The original's own subscriber sleeps before it accepts a parent; its children follow."""
    await client.queue("q")
    await broker.queues.configure("q", {"lease_ms": 1000}, principal=SYSTEM)

    def sleeping(got: Got) -> Awaitable[bytes] | bytes:
        return asyncio.sleep(3, TRUE) if base64.b64decode(got.json["content"]) == b"parent" else TRUE

    async with EndpointServer(sleeping) as endpoint, EndpointServer(TRUE) as quick:
        for each in (endpoint, quick):
            await client.subscribe("q", each.url)
        parent = await client.publish("q", b"parent")
        await client.publish("q", b"child", parent)
        await quick.until(2)
        assert contents(quick) == [b"parent", b"child"]
        await endpoint.until(2)
        assert contents(endpoint) == [b"parent", b"child"]


async def test_messages_that_take_long_hold_up_no_others(client: SyncbrokClient) -> None:
    release = asyncio.Event()

    async def released() -> bytes:
        await release.wait()
        return TRUE

    def slow(got: Got) -> Awaitable[bytes] | bytes:
        return released() if base64.b64decode(got.json["content"]) == b"parent" else TRUE

    async with EndpointServer(slow) as endpoint, EndpointServer(TRUE) as other:
        await client.subscribe("q", endpoint.url)
        await client.subscribe("elsewhere", other.url)
        for _ in range(50):
            await client.publish("q", b"parent")
        await client.publish("q", b"alone")
        await client.publish("elsewhere", b"x")
        await endpoint.until(51)
        await other.until(1)
        assert contents(endpoint)[-1] == b"alone"
        release.set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "refusal",
    [
        http_response(200, b"false"),
        http_response(200, b"TRUE"),
        http_response(200, b""),
        http_response(500, b"no"),
        None,
    ],
)
async def test_unaccepted_delivery_is_sent_again(client: SyncbrokClient, refusal: bytes | None) -> None:
    async with EndpointServer([lambda _: refusal, lambda _: refusal, TRUE]) as endpoint:
        await client.subscribe("q", endpoint.url)
        await client.publish("q", b"x")
        await endpoint.until(3)
        assert len({got.body for got in endpoint.got}) == 1


@pytest.mark.slow
async def test_a_child_waits_until_every_endpoint_accepted_its_parent(
    client: SyncbrokClient, broker: Broker
) -> None:
    async with EndpointServer(TRUE) as quick, EndpointServer(http_response(200, b"false")) as slow:
        for endpoint in (quick, slow):
            await client.subscribe("q", endpoint.url)
        parent = await client.publish("q", b"parent")
        child = await client.publish("q", b"child", parent)
        await client.publish("q", b"grandchild", child)
        await client.publish("q", b"alone")
        await quick.until(2)
        await slow.until(4)
        assert sorted(contents(quick)) == [b"alone", b"parent"]
        assert set(contents(slow)) == {b"alone", b"parent"}
        slow.responses = [accepting(b"parent", b"child", b"grandchild")]
        await quick.until(4)
        assert contents(quick)[2:] == [b"child", b"grandchild"]
        await until(lambda: contents(slow)[-1] == b"grandchild" or b"grandchild" in contents(slow))
        in_order = [each for each in contents(slow) if each != b"alone"]
        assert list(dict.fromkeys(in_order)) == [b"parent", b"child", b"grandchild"]


async def test_a_child_may_come_before_its_parent(client: SyncbrokClient) -> None:
    """A missing parent made the original crash."""
    async with EndpointServer(TRUE) as endpoint:
        await client.subscribe("q", endpoint.url)
        await client.publish("q", b"child", "6ba7b810-9dad-11d1-80b4-00c04fd430c8")
        await client.publish("q", b"other")
        await endpoint.until(1)
        assert contents(endpoint) == [b"other"]


async def test_endpoint_added_later_gets_unfinished_messages(client: SyncbrokClient) -> None:
    async with EndpointServer(accepting(b"1")) as first, EndpointServer(TRUE) as later:
        await client.subscribe("q", first.url)
        await client.publish("q", b"1")
        await client.publish("q", b"2")
        await first.until(3)
        await client.subscribe("q", later.url)
        await client.publish("q", b"3")
        await later.until(2)
        assert sorted(contents(later)) == [b"2", b"3"]


async def test_messages_of_other_frontends_are_delivered_with_an_id(
    client: SyncbrokClient, broker: Broker
) -> None:
    async with EndpointServer(TRUE) as endpoint:
        await client.subscribe("q", endpoint.url)
        await publish(broker, "q", b"from elsewhere")
        (got,) = await endpoint.until(1)
        assert list(json.loads(got.body)) == ["id", "content"]
        assert contents(endpoint) == [b"from elsewhere"]
