"""Acts and refusals of clients of the seed systems: they are ANONYMOUS, with an address and a
listener.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from tests.audit.recorder import Recorder
from tests.seeds.diy_client import DiyClient
from tests.seeds.listeners import OpenListeners
from tests.seeds.messagebroker_client import Publisher

WAIT_S = 20.0


async def publish(seed: str, port: int) -> None:
    if seed == "diy_message_broker":
        (await DiyClient.connect(port)).publish(b"orders", b"one")
    else:
        (await Publisher.connect(port)).publish(b"orders", b"one")


@pytest.mark.parametrize("seed", ["diy_message_broker", "messagebroker"])
@pytest.mark.parametrize("is_allowed", [True, False], ids=["allowed", "refused"])
async def test_a_topic_that_a_seeds_client_makes_or_may_not_make_is_one_event(
    tmp_path: Path, seed: str, is_allowed: bool
) -> None:
    config = BrokerConfig(super_users=frozenset({"User:root"}), allow_unnamed_resources=False)
    async with Broker(tmp_path / "data", config=None if is_allowed else config) as broker:
        recorder = Recorder(broker.audit)
        listeners = OpenListeners(broker)
        ports = await listeners(seed)
        await publish(seed, ports[seed])
        async with asyncio.timeout(WAIT_S):
            while not (found := recorder.take()):
                await asyncio.sleep(0.01)
        await listeners.close_all()

    event = found[0]
    assert (event.action, event.resource) == ("topic.create", "orders")
    assert event.outcome.value == ("done" if is_allowed else "refused")
    assert (event.principal, event.address) == ("User:ANONYMOUS", "127.0.0.1")
    assert event.listener == seed
