"""A whole broker with all its frontends, used by real clients and scraped."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import sparrow
import sparrow.testing
from sparrow.base.errors import UnknownTopic
from sparrow.testing.running_broker import RunningBroker
from tests.metrics.scrape import Scrape, parsed


def scraped(broker: RunningBroker) -> Scrape:
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=10) as response:
        return parsed(response.read().decode())


async def use(broker: RunningBroker) -> Scrape:
    async with await sparrow.connect(broker.url) as client:
        await client.publish("orders", b"by Sparrow's client")
        await client.admin.list_topics()
        with pytest.raises(UnknownTopic):
            await client.admin.describe_topic("missing")
        producer = AIOKafkaProducer(bootstrap_servers=broker.kafka, transactional_id="shop")
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait("orders", b"by Kafka's")
        consumer = AIOKafkaConsumer(
            "orders", bootstrap_servers=broker.kafka, group_id="shop", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            for _ in range(2):
                await consumer.getone()
            await consumer.commit()
            return await asyncio.to_thread(scraped, broker)
        finally:
            await consumer.stop()
            await producer.stop()


@pytest.mark.slow
def test_every_frontend_shows_its_connections_and_requests() -> None:
    with sparrow.testing.broker(http_port=0, seeds_msbq_port=0) as broker:
        found = asyncio.run(use(broker))

    def count(frontend: str, request: str) -> float:
        return found.value("sparrow_request_seconds_count", door=frontend, request=request)

    assert count("native", "topic.list") == 1
    assert found.value("sparrow_request_failures_total", door="native", request="topic.describe") == 1
    assert count("kafka", "Produce") == 1
    assert count("kafka", "Fetch") >= 1
    assert count("kafka", "EndTxn") == 1
    assert found.value("sparrow_connections", door="native") == 1
    assert found.value("sparrow_connections", door="kafka") >= 2
    assert found.value("sparrow_connections", door="http") == 1
    assert found.value("sparrow_connections", door="msbq") == 0
    # the marker is no message
    assert found.value("sparrow_topic_messages_in_total", topic="orders") == 2
    assert found.value("sparrow_topic_messages_out_total", topic="orders") >= 2
    assert found.value("sparrow_group_members", group="shop") == 1
    assert (
        found.value("sparrow_group_lag", group="shop", topic="orders") <= 1
    )  # the marker, which is never delivered
    assert found.value("sparrow_transactional_ids", state="CompleteCommit") == 1
