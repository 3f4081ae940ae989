"""A broker in this process with the webhook door, and queues with records for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sparrow.base.clock import Clock, SystemClock
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.queues.description import QueueStatistics
from sparrow.broker.webhooks.description import EndpointInfo, EndpointStatistics
from sparrow.frontends.publishing import Message, Publisher
from sparrow.frontends.webhook import WebhookFrontend, WebhookSettings

LOCAL = WebhookSettings(allow=("127.0.0.0/8",))


class Hooks:
    """A broker and its webhook door."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self.clock = clock or SystemClock()

    async def start(self, settings: WebhookSettings = LOCAL, resolver: Any = None) -> None:
        self.broker = Broker(self.path, config=BrokerConfig(default_partitions=1), clock=self.clock)
        await self.broker.start()
        self.door = WebhookFrontend(self.broker, settings=settings, resolver=resolver)
        await self.door.start()
        self._publisher = Publisher(self.broker)

    async def stop(self, drain_s: float = 5) -> None:
        await self.door.drain(drain_s)
        await self.broker.close()

    async def queue(self, name: str = "jobs", **policy: Any) -> None:
        await self.broker.queues.create(name, policy=policy)

    async def publish(self, *values: bytes | Message, topic: str = "jobs") -> None:
        messages = [each if isinstance(each, Message) else Message(each) for each in values]
        for answer in await self._publisher.publish(topic, messages, principal=ANONYMOUS):
            if isinstance(answer, Exception):
                raise answer

    async def hook(self, url: str, name: str = "hook", queue: str = "jobs", **settings: Any) -> EndpointInfo:
        return await self.broker.webhooks.put(queue, name, {"url": url, **settings})

    def statistics(self, queue: str = "jobs") -> QueueStatistics:
        return self.broker.queues.describe(queue).statistics

    def state(self, name: str = "hook", queue: str = "jobs") -> EndpointStatistics:
        return self.broker.webhooks.describe(queue, name).statistics

    async def until(self, holds: Callable[[], bool], timeout_s: float = 10) -> None:
        """Until something holds."""
        async with asyncio.timeout(timeout_s):
            while not holds():
                await asyncio.sleep(0.005)

    async def done(self, queue: str = "jobs") -> None:
        """Until every record of a queue is finished."""
        await self.until(lambda: not self.statistics(queue).unfinished)

    async def dead(self, queue: str = "jobs") -> list[dict[str, bytes | None]]:
        """The headers of its dead letters."""
        if self.broker.queues.registry.find(f"{queue}.dead") is None:
            return []
        peeked = await self.broker.queues.peek(f"{queue}.dead", 100)
        return [dict(each.record.headers) for each in peeked]


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[Hooks]:
    hooks = Hooks(tmp_path / "data")
    await hooks.start()
    yield hooks
    await hooks.stop()
