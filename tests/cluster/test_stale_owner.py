"""A broker that may have lost its data while it was stopped answers no listener from memory."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

import sparrow
from sparrow.server.config import ServerConfig
from sparrow.server.engine import Stores
from sparrow.server.server import Server
from tests.cluster.shards import ShardBench

pytestmark = pytest.mark.slow


async def test_no_listener_answers_while_another_broker_may_own_the_data(tmp_path: Path) -> None:
    bench = ShardBench()

    async def open_stores(_: ServerConfig, opened: AsyncExitStack) -> Stores:
        shard = bench.open()
        opened.push_async_callback(shard.close)
        return Stores(shard.logs, shard.meta)

    config = ServerConfig(data_dir=str(tmp_path), native_port=0, kafka_port=0, http_port=0)
    server = Server(config, open_stores)
    ready = await server.start()
    consumer = Consumer({"bootstrap.servers": ready.kafka, "group.id": "readers"})
    try:
        async with sparrow.connect(ready.url) as client, aiohttp.ClientSession() as http:
            await client.admin.create_topic("orders", partitions=1)
            await client.admin.commit("readers", {("orders", 0): 0})

            async def ask_http() -> int:
                async with http.get(f"{ready.http}/v1/topics") as response:
                    return response.status

            places = [Place("orders", 0)]
            await asyncio.to_thread(consumer.committed, places, 30)
            bench.is_trusted = False
            asked = [
                asyncio.ensure_future(client.admin.group_offsets("readers")),
                asyncio.ensure_future(asyncio.to_thread(consumer.committed, places, 60)),
                asyncio.ensure_future(ask_http()),
            ]
            await asyncio.sleep(0.3)
            assert not any(each.done() for each in asked)
            async with http.get(f"{ready.http}/healthz") as response:
                assert response.status == 200
            bench.is_trusted = True
            committed, places, status = await asyncio.gather(*asked)
            assert [each.offset for each in committed] == [places[0].offset] == [0]
            assert status == 200
    finally:
        await asyncio.to_thread(consumer.close)
        await server.stop(0)
