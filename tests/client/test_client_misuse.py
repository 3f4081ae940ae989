"""Mistakes raise an error at once, in plain words, instead of an endless wait or a puzzling
failure.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import sparrow
import sparrow.sync
from sparrow.base.errors import InvalidArgument
from sparrow.client.client import Client
from sparrow.client.options import ProducerOptions
from tests.client.frontends import Frontend

LIMIT_S = 5.0


async def test_a_producer_that_was_not_started_says_so(client: Client) -> None:
    producer = client.producer()
    with pytest.raises(InvalidArgument, match=r"not started.*async with"):
        await asyncio.wait_for(producer.send("t", b"x"), LIMIT_S)
    with pytest.raises(InvalidArgument, match="not started"):
        producer.send_nowait("t", b"x")
    assert producer.pending_bytes == 0
    await asyncio.wait_for(producer.close(), LIMIT_S)


async def _iterate(subscription: Any) -> None:
    async for _ in subscription:
        pass


@pytest.mark.parametrize(
    "use",
    [
        lambda subscription: subscription.pull(1, wait_s=0.01),
        lambda subscription: subscription.next_batch(),
        lambda subscription: subscription.add("u"),
        lambda subscription: subscription.drop("t"),
        _iterate,
    ],
)
async def test_a_subscription_that_was_not_started_says_so(
    client: Client, use: Callable[[Any], Awaitable[Any]]
) -> None:
    subscription = client.subscribe("t")
    with pytest.raises(InvalidArgument, match=r"not started.*async with"):
        await asyncio.wait_for(use(subscription), LIMIT_S)
    await asyncio.wait_for(subscription.close(), LIMIT_S)


def test_a_client_that_is_not_connected_yet_says_how_to_connect() -> None:
    connecting: Any = sparrow.connect("sparrow://127.0.0.1:1")
    with pytest.raises(AttributeError, match=r"'publish'.*async with.*await sparrow\.connect"):
        connecting.publish("t", b"x")


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.publish("t", b"x"),
        lambda client: client.admin.list_topics(),
        lambda client: client.producer().start(),
        lambda client: client.subscribe("t").start(),
        lambda client: client.close(),
    ],
)
async def test_a_client_is_refused_on_another_loop(
    frontend: Frontend, use: Callable[[Client], Awaitable[Any]]
) -> None:
    async with sparrow.connect(frontend.url) as client:

        async def elsewhere() -> None:
            with pytest.raises(InvalidArgument, match="belongs to the event loop"):
                await asyncio.wait_for(use(client), LIMIT_S)

        await asyncio.to_thread(asyncio.run, elsewhere())


async def test_topics_as_a_list_are_refused_with_how_to_name_them(client: Client) -> None:
    names: Any = ["orders", "audit"]
    with pytest.raises(InvalidArgument, match="one by one"):
        client.subscribe(names)
    async with client.subscribe("t") as subscription:
        with pytest.raises(InvalidArgument, match="one by one"):
            await subscription.add(names)
        assert subscription.topics == ["t"]


async def test_a_partition_that_is_no_number_is_refused_and_takes_no_room(client: Client) -> None:
    partition: Any = "1"
    async with client.producer() as producer:
        with pytest.raises(InvalidArgument, match="whole number"):
            await producer.send("t", b"x", partition=partition)
        with pytest.raises(InvalidArgument, match="whole number"):
            producer.send_nowait("t", b"x", partition=partition)
        assert producer.pending_bytes == 0


@pytest.mark.parametrize("url", [None, 9094, b"sparrow://127.0.0.1"])
def test_a_url_that_is_no_text_is_refused(url: Any) -> None:
    with pytest.raises(InvalidArgument, match="must be text such as sparrow://"):
        sparrow.connect(url)


def test_a_token_that_is_no_text_is_refused_and_not_shown() -> None:
    token: Any = b"s3cret"
    with pytest.raises(InvalidArgument, match="the token is bytes") as caught:
        sparrow.connect(token=token)
    assert "s3cret" not in caught.value.text


async def test_configuration_may_be_numbers_and_booleans(client: Client) -> None:
    made = await client.admin.create_topic("t", config={"retention.ms": 1000, "preallocate": True})
    assert {e.name: e.value for e in made.config if e.source == "topic"} == {
        "retention.ms": "1000",
        "preallocate": "true",
    }
    changed = await client.admin.configure_topic("t", {"min.cleanable.dirty.ratio": 0.25})
    assert "0.25" in {e.value for e in changed.config if e.source == "topic"}


@pytest.mark.parametrize("make", [Client.producer, sparrow.sync.Client.producer])
def test_the_defaults_of_a_producer_are_those_of_its_options(make: Callable[..., Any]) -> None:
    defaults = {name: each.default for name, each in inspect.signature(make).parameters.items()}
    options = ProducerOptions()
    for name in ("linger_ms", "batch_bytes", "max_pending_bytes", "delivery_timeout_s"):
        assert defaults[name] == getattr(options, name), name


async def test_an_offset_beyond_the_end_is_reported_and_reading_continues_at_the_end(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.admin.create_topic("t", partitions=1)
    await client.publish("t", b"before")
    async with client.subscribe("t", start=100) as subscription:
        assert await subscription.pull(1, wait_s=0.05) == []
        await client.publish("t", b"after")
        assert [message.value for message in await subscription.pull(1, wait_s=LIMIT_S)] == [b"after"]
    assert "the log of t-0 does not have the offset to read next" in caplog.text
