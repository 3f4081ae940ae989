"""Connections that announce the largest message cost the broker little memory, and it is freed.

The full size: `SPARROW_TEST_CONNECTIONS=10000 pytest tests/memory/test_announced_frames.py -n 0`.
"""

from __future__ import annotations

import os
import resource
import socket
import time

import psutil
import pytest

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.memory.announcements import ANNOUNCERS, Announcer, closing

CONNECTIONS = int(os.environ.get("SPARROW_TEST_CONNECTIONS", "400"))
ROOM_BYTES = 64 << 20
EACH_BYTES = 8 << 10
RETURNED_WITHIN = 0.10
KEPT_EACH_BYTES = 2 << 10
"""Python frees memory in pieces of 1 MiB, and a single small object keeps one: more pieces, the
more clients come at once.
"""
WAIT_S = 60.0


@pytest.mark.slow
@pytest.mark.parametrize("announcer", ANNOUNCERS, ids=lambda each: each.name)
def test_connections_that_announce_the_largest_message_take_little_memory_and_give_it_back(
    announcer: Announcer, record_property: pytest.RecordProperty
) -> None:
    allow_open_files(CONNECTIONS + 500)
    options = {
        "max_connections": CONNECTIONS + 100,
        "max_connections_before_login": CONNECTIONS + 100,
        **announcer.options,
    }
    with sparrow.testing.broker(process=True, **options) as broker:
        warm_up(broker, announcer)
        before = rss(broker)
        clients = [announcer.open(broker, source(n)) for n in range(CONNECTIONS)]
        with closing(clients):
            during = settled_rss(broker)
        limit = before * (1 + RETURNED_WITHIN) + CONNECTIONS * KEPT_EACH_BYTES
        after = rss_below(broker, limit)
        figures = f"{before >> 20} MiB, {during >> 20} MiB with {CONNECTIONS}, {after >> 20} MiB after"
        record_property("rss", figures)
        print(f"\n{announcer.name}: {figures}")
        assert during - before < ROOM_BYTES + CONNECTIONS * EACH_BYTES, figures
        assert after < limit, figures


def source(number: int) -> str:
    """Return an address of loopback; a thousand connections come from each."""
    return f"127.0.0.{2 + number // 1000}"


def allow_open_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def warm_up(broker: RunningBroker, announcer: Announcer) -> None:
    """Load what the listener loads with its first clients."""
    clients: list[socket.socket] = []
    with closing(clients):
        clients += [announcer.open(broker, source(0)) for _ in range(20)]
        time.sleep(0.5)
    settled_rss(broker)


def rss(broker: RunningBroker) -> int:
    return psutil.Process(broker.pid).memory_info().rss


def settled_rss(broker: RunningBroker) -> int:
    """Return the memory of the broker when it is idle."""
    found = [rss(broker)]
    while len(found) < 4 or max(found[-4:]) - min(found[-4:]) > 1 << 20:
        time.sleep(0.25)
        found.append(rss(broker))
    return max(found)


def rss_below(broker: RunningBroker, limit: float) -> int:
    deadline = time.monotonic() + WAIT_S
    while (found := rss(broker)) >= limit and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
