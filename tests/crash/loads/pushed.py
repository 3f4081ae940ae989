"""Deliveries that the broker pushes: webhooks."""

from __future__ import annotations

from aiohttp import web

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Found, Kind
from tests.crash.loads.endpoint import Endpoint
from tests.crash.loads.native import NativeTopic
from tests.crash.publisher import connect_eagerly


class Webhook(NativeTopic):
    """An endpoint that gets every message at least once, each time with the same id."""

    name = "hooks"

    def __init__(self) -> None:
        super().__init__()
        self._endpoint = Endpoint(self._take)
        self._ids: dict[int, set[str]] = {}

    async def prepare(self, broker: RunningBroker) -> None:
        url = await self._endpoint.open()
        async with await connect_eagerly(broker.url) as client:
            policy = {"delivery_limit": 0}
            await client.admin.create_queue(self.name, policy=policy, partitions=self.partitions)
            await client.admin.put_webhook(self.name, "here", url=url)

    async def _take(self, request: web.Request) -> web.Response:
        number = int(await request.read())
        self._ids.setdefault(number, set()).add(request.headers["webhook-id"])
        self.history.note(Kind.READ, number)
        return web.Response(status=204)

    async def check(self, broker: RunningBroker) -> None:
        await self._endpoint.close()
        await super().check(broker)

    def misread(self, found: list[Found]) -> list[str]:
        missing = {each.number for each in found} - set(self._ids)
        breaches = [f"{number} was never delivered" for number in sorted(missing)]
        return breaches + [f"{number} came as {ids}" for number, ids in self._ids.items() if len(ids) > 1]
