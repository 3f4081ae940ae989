"""A broker in this process with the webhook frontend, and queues with records for it."""

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
from sparrow.frontends.publisher import Message, Publisher
from sparrow.frontends.webhook.frontend import WebhookFrontend
from sparrow.frontends.webhook.settings import WebhookSettings
from sparrow.model.queues import QueueStatistics
from sparrow.model.webhooks import WebhookDescription, WebhookStatistics

LOCAL = WebhookSettings(allow=("127.0.0.0/8",))


class Hooks:
    """A broker and its webhook frontend."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self.clock = clock or SystemClock()

    async def start(self, settings: WebhookSettings = LOCAL, resolver: Any = None) -> None:
        self.broker = Broker(self.path, config=BrokerConfig(default_partitions=1), clock=self.clock)
        await self.broker.start()
        self.frontend = WebhookFrontend(self.broker, settings=settings, resolver=resolver)
        await self.frontend.start()
        self._publisher = Publisher(self.broker)

    async def stop(self, drain_s: float = 5) -> None:
        await self.frontend.drain(drain_s)
        await self.broker.close()

    async def queue(self, name: str = "jobs", **policy: Any) -> None:
        await self.broker.queues.create(name, policy=policy)

    async def publish(self, *values: bytes | Message, topic: str = "jobs") -> None:
        messages = [each if isinstance(each, Message) else Message(each) for each in values]
        for response in await self._publisher.publish(topic, messages, principal=ANONYMOUS):
            if isinstance(response, Exception):
                raise response

    async def hook(
        self, url: str, name: str = "hook", queue: str = "jobs", **settings: Any
    ) -> WebhookDescription:
        return await self.broker.webhooks.put(queue, name, {"url": url, **settings})

    def statistics(self, queue: str = "jobs") -> QueueStatistics:
        return self.broker.queues.describe(queue).statistics

    def state(self, name: str = "hook", queue: str = "jobs") -> WebhookStatistics:
        return self.broker.webhooks.describe(queue, name).statistics

    async def until(self, holds: Callable[[], bool], timeout_s: float = 10) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(timeout_s):
            while not holds():
                await asyncio.sleep(0.005)

    async def done(self, queue: str = "jobs") -> None:
        """Wait until every record of a queue is finished."""
        await self.until(lambda: not self.statistics(queue).unfinished)

    async def dead(self, queue: str = "jobs") -> list[dict[str, bytes | None]]:
        """Return the headers of the dead letters of a queue."""
        if self.broker.parts.queue_registry.find(f"{queue}.dead") is None:
            return []
        peeked = await self.broker.queues.peek(f"{queue}.dead", 100)
        return [dict(each.headers) for each in peeked]


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[Hooks]:
    hooks = Hooks(tmp_path / "data")
    await hooks.start()
    yield hooks
    await hooks.stop()
