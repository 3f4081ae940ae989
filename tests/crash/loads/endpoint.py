"""An HTTP endpoint to which the broker POSTs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web


class Endpoint:
    """An endpoint that runs through all faults of the broker."""

    def __init__(self, take: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
        app = web.Application()
        app.router.add_post("/", take)
        self._runner = web.AppRunner(app)

    async def open(self) -> str:
        """Open it, and return its address."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/"

    async def close(self) -> None:
        await self._runner.cleanup()
