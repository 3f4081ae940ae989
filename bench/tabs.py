"""`python -m bench.tabs URL COUNT`: tabs of the console, without a browser.

A tab is what the page of topics does: it follows `/v1/events`, and asks for its page of the list
every two seconds.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp

PAGE = "/v1/overview/topics?limit=50"
POLL_S = 2.0


async def look(url: str, count: int) -> None:
    """Be `count` tabs; say so when all of them have their first event and their first page."""
    ready = asyncio.Semaphore(0)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def follow() -> None:
            async with session.get(f"{url}/v1/events") as response:
                await response.content.readuntil(b"\n\n")
                ready.release()
                async for _ in response.content:
                    pass

        async def poll() -> None:
            while True:
                async with session.get(url + PAGE) as response:
                    await response.read()
                ready.release()
                await asyncio.sleep(POLL_S)

        tasks = [asyncio.ensure_future(work()) for _ in range(count) for work in (follow, poll)]
        for _ in tasks:
            await ready.acquire()
        print("ready", flush=True)
        await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(look(sys.argv[1], int(sys.argv[2])))
