"""Queues in the style of msbq."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparrow.base.errors import InvalidArgument
from sparrow.client.client import Client
from sparrow.client.msbq_channel import Channel
from tests.client.frontends import Frontend, client_of


async def take(channel: Channel, queue: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(5):
        async for message in channel.consume(queue):
            found.append(message.value)
            if len(found) == count:
                break
    return found


async def test_messages_wait_while_nobody_consumes(client: Client) -> None:
    channel = await client.channel()
    await channel.assert_queue("emails", partitions=1)
    await channel.deliver("emails", b"one", headers={"a": b"b"})
    await channel.deliver("emails", b"two")
    assert await take(channel, "emails", 2) == [b"one", b"two"]


async def test_each_message_of_a_p2p_queue_goes_to_one_consumer(client: Client, frontend: Frontend) -> None:
    got: list[list[bytes | None]] = [[], []]

    async def consume(number: int, channel: Channel) -> None:
        await channel.assert_queue("q", partitions=4)
        async for message in channel.consume("q"):
            got[number].append(message.value)

    async with client_of(frontend.url) as other:
        workers = [
            asyncio.ensure_future(consume(0, await client.channel())),
            asyncio.ensure_future(consume(1, await other.channel())),
        ]
        sender = await client.channel()
        await sender.assert_queue("q", partitions=4)
        async with asyncio.timeout(5):
            while not all(got):
                await asyncio.gather(*(sender.deliver("q", b"%d" % i, key=b"%d" % i) for i in range(8)))
                await asyncio.sleep(0.02)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)


async def test_each_channel_of_a_pubsub_queue_gets_every_message_since_it_asserted(
    client: Client, frontend: Frontend
) -> None:
    first, second = await client.channel(), await client.channel()
    await first.assert_queue("news", type="PUBSUB")
    await first.deliver("news", b"one", key=b"k")
    await second.assert_queue("news", type="PUBSUB")
    await second.deliver("news", b"two", key=b"k")
    assert await take(first, "news", 2) == [b"one", b"two"]
    assert await take(second, "news", 1) == [b"two"]


async def test_a_message_that_was_not_finished_comes_again(client: Client) -> None:
    async with await client.channel() as channel:
        await channel.assert_queue("q", partitions=1)
        for i in range(4):
            await channel.deliver("q", b"%d" % i)
        consuming = channel.consume("q")
        async with asyncio.timeout(5):
            assert [(await anext(consuming)).value for _ in range(3)] == [b"0", b"1", b"2"]
        await consuming.aclose()
        assert await take(channel, "q", 2) == [b"2", b"3"]


async def test_a_queue_that_is_not_durable_is_confirmed_from_the_page_cache(client: Client) -> None:
    channel = await client.channel()
    await channel.assert_queue("fast", durable=False)
    await channel.deliver("fast", b"x")
    config = {entry.name: entry.value for entry in (await client.admin.describe_topic("fast")).config}
    assert config["durability"] == "page-cache"


@pytest.mark.parametrize("call", ["deliver", "consume"])
async def test_a_queue_must_be_asserted_first(client: Client, call: str) -> None:
    channel: Any = await client.channel()
    calling = channel.deliver("q", b"x") if call == "deliver" else anext(channel.consume("q"))
    with pytest.raises(InvalidArgument, match="was not asserted on this channel"):
        await calling


async def test_a_queue_is_of_a_known_type(client: Client) -> None:
    channel: Any = await client.channel()
    with pytest.raises(InvalidArgument, match="'P2P' or 'PUBSUB'"):
        await channel.assert_queue("q", type="FIFO")
