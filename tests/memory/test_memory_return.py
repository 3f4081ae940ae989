"""Memory is freed when a rush of clients is over."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

import sparrow.testing
from sparrow.broker.access.login_limits import network_of
from sparrow.frontends.kafka.connection import KafkaConnection
from sparrow.server import memory_return
from sparrow.server.memory_return import MemoryReturn, filled_pools
from tests.memory.announcements import KAFKA_BYTES, closing, kafka

SECONDS = 20


async def test_when_most_clients_have_gone_gaps_are_filled_for_a_while_and_caches_of_addresses_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_return, "AGAIN_S", (0.01,))
    connections = 0
    memory = MemoryReturn(lambda: connections)
    memory.start()
    assert not memory.look()
    connections = memory_return.FILL_FROM
    network_of("127.0.0.9")
    assert not memory.look()  # all have connected
    connections = 0
    assert memory.look()
    assert network_of.cache_info().currsize == 0
    assert memory._filling
    await memory.stop()
    await asyncio.sleep(0.02)
    assert memory.look()
    assert not memory._filling
    await memory.stop()


def test_gaps_of_all_sizes_are_filled_with_a_bounded_number_of_bytes() -> None:
    filling = filled_pools()
    assert {each.__sizeof__() for each in filling} == set(range(48, 513, 16))
    assert sum(each.__sizeof__() for each in filling) < 9 << 20


def test_a_kafka_connection_is_freed_without_the_garbage_collector() -> None:
    """Otherwise memory grows while thousands of them close."""

    def connections() -> int:
        return sum(type(each) is KafkaConnection for each in gc.get_objects())

    with sparrow.testing.broker() as broker:
        gc.collect()
        gc.disable()
        try:
            clients = [kafka(KAFKA_BYTES)(broker, "127.0.0.1") for _ in range(10)]
            deadline = time.monotonic() + SECONDS
            while connections() < 10 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert connections() >= 10
            with closing(clients):
                pass
            while connections() and time.monotonic() < deadline:
                time.sleep(0.01)
            assert connections() == 0
        finally:
            gc.enable()
