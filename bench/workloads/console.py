"""The cost of the console: processor time, throughput and memory that it takes from the broker, and
the time of its first view in a browser.

Each figure of a tab (`bench.tabs`) compares windows with it and windows without it, one after the
other in the same broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import uvloop

import sparrow
from bench.results import Measurement, Target
from bench.server import Server, server
from bench.tabs import PAGE

TOPICS = 1_000
PER_SECOND = 5_000
MANY = 50
PAIRS = 6
"""Windows with a tab in one round of the comparison."""
WINDOW_S = 2.0
PUBLISHERS = 8
AT_ONCE = 250
"""Messages that a publisher sends before it waits for their confirmations."""
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
_WATCH = """new MutationObserver(() => {
  const seen = document.documentElement.dataset;
  if (!seen.seenAt && document.querySelector('#attention')) seen.seenAt = performance.now();
}).observe(document, { childList: true, subtree: true });"""
"""Notes when the overview has its content, in ms since the navigation began; in an attribute, since
the console's Content-Security-Policy forbids expressions of the test.
"""

Measure = Callable[[], Awaitable[float]]


def busy_s(pid: int) -> float:
    """Return the processor time of a process so far, by its own clock (`clock_getcpuclockid`)."""
    return time.clock_gettime(~pid << 3 | 2)


async def share(pid: int, seconds: float) -> float:
    """Return the share of a core that a process takes, in percent."""
    before, began = busy_s(pid), time.perf_counter()
    await asyncio.sleep(seconds)
    return 100 * (busy_s(pid) - before) / (time.perf_counter() - began)


@contextlib.asynccontextmanager
async def tabs(url: str, count: int) -> AsyncIterator[None]:
    """Keep tabs open, in a process of their own, as a browser is one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.tabs", url, str(count), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()  # all follow
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def running(work: Callable[[], Awaitable[None]], count: int = 1) -> AsyncIterator[None]:
    """Do some work until the end, `count` times at once."""
    tasks = [asyncio.ensure_future(work()) for _ in range(count)]
    try:
        await asyncio.sleep(1)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def steadily(client: sparrow.Client) -> None:
    """Publish `PER_SECOND` messages a second, to one topic after the other."""
    number = 0
    while True:
        began = time.perf_counter()
        topic = f"topic-{number % TOPICS}"
        number += 1
        await asyncio.gather(*(client.publish(topic, b"x" * 100) for _ in range(PER_SECOND // 20)))
        await asyncio.sleep(max(0.0, 0.05 - (time.perf_counter() - began)))


class Flood:
    """Publishers that send as much as the broker takes."""

    def __init__(self, client: sparrow.Client) -> None:
        self._client = client
        self._confirmed = 0

    async def publish(self) -> None:
        """Publish without an end."""
        while True:
            await asyncio.gather(*(self._client.publish("topic-0", b"x" * 100) for _ in range(AT_ONCE)))
            self._confirmed += AT_ONCE

    async def rate(self, seconds: float) -> float:
        """Return the messages per second that are confirmed now."""
        before, began = self._confirmed, time.perf_counter()
        await asyncio.sleep(seconds)
        return (self._confirmed - before) / (time.perf_counter() - began)


async def compared(url: str, measure: Measure, pairs: int) -> list[tuple[float, float]]:
    """Return (without, with a tab) of each pair; "without" is the mean of just before and after."""
    found = []
    before = await measure()
    for _ in range(pairs):
        async with tabs(url, 1):
            with_tab = await measure()
        after = await measure()
        found.append(((before + after) / 2, with_tab))
        before = after
    return found


async def costs(broker: Server, scale: float) -> tuple[float, float, float, float]:
    """Return the shares of a core (%): nobody looks; one tab more with traffic; 50 tabs; and the
    throughput with a tab (% of that without).
    """
    assert broker.process is not None
    pid, url = broker.process.pid, f"http://127.0.0.1:{broker.http_port}"
    window_s, pairs = max(0.5, WINDOW_S * scale), max(1, round(PAIRS * scale))
    async with sparrow.connect(broker.url) as client:
        for start in range(0, TOPICS, 100):
            names = [f"topic-{number}" for number in range(start, start + 100)]
            await asyncio.gather(*(client.admin.create_topic(each, partitions=1) for each in names))
        await asyncio.sleep(1)
        nobody = await share(pid, 4 * window_s)
        async with tabs(url, MANY):
            many = await share(pid, 3 * window_s)
        async with running(lambda: steadily(client)):
            one = await compared(url, lambda: share(pid, window_s), pairs)
        flood = Flood(client)
        async with running(flood.publish, PUBLISHERS):
            rates = await compared(url, lambda: flood.rate(window_s / 2), 2 * pairs)
    more = statistics.median(with_tab - without for without, with_tab in one)
    kept = statistics.median(100 * with_tab / without for without, with_tab in rates)
    return nobody, more, many - nobody, kept


async def memory(broker: Server) -> float:
    """Return the memory (MB) that stays when a browser has looked at every file of the console and
    left; what HTTP itself and its API take was there before.
    """
    url = f"http://127.0.0.1:{broker.http_port}"
    async with aiohttp.ClientSession() as session:

        async def use(*paths: str) -> bytes:
            body = b""
            for path in paths:
                async with session.get(url + path) as response:
                    body = await response.read()
            return body

        api = ("/docs", "/openapi.json", "/v1/me", "/v1/status", "/v1/history", PAGE)
        for _ in range(3):
            await use(*api)
        async with tabs(url, 1):
            await asyncio.sleep(2)
        before = broker.rss_bytes()
        page = (await use("/ui/")).decode()
        await use(*re.findall(r'(?:href|src)="(/ui/static/[^"]+)"', page))
    async with tabs(url, 1):
        await asyncio.sleep(2)
    await asyncio.sleep(1)
    return (broker.rss_bytes() - before) / 1e6


async def first_view(broker: Server, executable: str) -> float:
    """Return the seconds from the navigation until the overview is there, in a new profile."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        page = await browser.new_page()
        await page.add_init_script(_WATCH)
        await page.goto(f"http://127.0.0.1:{broker.http_port}/ui/")
        seen = await page.wait_for_selector("html[data-seen-at]", state="attached", timeout=60_000)
        assert seen is not None  # otherwise the wait has timed out
        seconds = float(await seen.get_attribute("data-seen-at") or "nan") / 1000
        await browser.close()
    return seconds


def looking(runs: int, scale: float) -> list[Measurement]:
    """The console: nobody, one tab, 50 tabs; throughput, memory, first view."""
    cpu, most = "% of a core", "% of that without"
    rows = [
        Measurement("console: nobody looks, 1,000 topics", cpu),
        Measurement("console: one tab more, 1,000 topics, 5,000 msg/s", cpu, Target(1, at_least=False)),
        Measurement("console: 50 tabs, 1,000 topics", cpu, Target(10, at_least=False)),
        Measurement("console: publish throughput with one tab", most, Target(99)),
    ]
    kept = Measurement("console: memory that stays after a browser has left", "MB", Target(1, at_least=False))
    view = Measurement("console: first view of the overview in Chromium", "s", Target(1, at_least=False))
    executable = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if executable is None:
        view.note = "chromium is missing (Debian: apt-get install chromium)"
    for _ in range(runs):
        with server() as broker:
            kept.runs.append(uvloop.run(memory(broker)))
            if executable is not None:
                view.runs.append(uvloop.run(first_view(broker, executable)))
            for row, value in zip(rows, uvloop.run(costs(broker, scale)), strict=True):
                row.runs.append(value)
    return [*rows, kept, view]
