"""What the broker pushes: webhooks."""

from __future__ import annotations

import asyncio

from aiohttp import web

from sparrow.testing.running import RunningBroker
from tests.crash.publisher import PARTITIONS, connect_eagerly


class Webhook:
    """An endpoint gets everything at least once, each time with the same id."""

    name = "hooks"

    def __init__(self) -> None:
        self._published: set[int] = set()
        self._ids: dict[int, set[str]] = {}
        self._wrong: list[str] = []

    async def prepare(self, broker: RunningBroker) -> None:
        self._runner = web.AppRunner(self._app())
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        async with await connect_eagerly(broker.url) as client:
            policy = {"delivery_limit": 0}
            await client.admin.create_queue(self.name, policy=policy, partitions=PARTITIONS)
            await client.admin.put_webhook(self.name, "here", url=f"http://127.0.0.1:{port}/")

    def _app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/", self._take)
        return app

    async def _take(self, request: web.Request) -> web.Response:
        number = int(await request.read())
        self._ids.setdefault(number, set()).add(request.headers["webhook-id"])
        return web.Response(status=204)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        number = 0
        async with await connect_eagerly(broker.url) as client, client.producer(linger_ms=1) as producer:
            while not stop.is_set():
                for _ in range(5):
                    self._published.add(number)
                    await producer.send(self.name, b"%d" % number)
                    number += 1
                await producer.flush()
                await asyncio.sleep(0.02)

    async def check(self, broker: RunningBroker) -> None:
        try:
            async with asyncio.timeout(60):
                while self._published - set(self._ids):
                    await asyncio.sleep(0.02)
        finally:
            await self._runner.cleanup()
        assert set(self._ids) == self._published
        assert {number: ids for number, ids in self._ids.items() if len(ids) > 1} == {}

    @property
    def progress(self) -> int:
        return len(self._ids)
