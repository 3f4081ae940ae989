"""Limits of what members of share groups can make the frontend keep: sessions, and unread
records.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Self, TypeVar

import pytest
from kio.schema.errors import ErrorCode

from sparrow.broker.broker import Broker
from sparrow.broker.quotas.rules import QuotaChange, QuotaKind
from sparrow.frontends.kafka.context import Listener
from sparrow.frontends.kafka.frontend import KafkaFrontend
from sparrow.frontends.kafka.limits import KafkaLimits
from sparrow.records.builder import build_batch
from tests.kafka_frontend.raw import encode
from tests.share_fetch.calls import Member, acquired, batch, configure, fill, offsets, share_fetch

T = TypeVar("T")
SECONDS = 60
LIMITS = KafkaLimits(max_share_sessions=2, max_share_session_partitions=50, send_budget_bytes=1 << 20)


@pytest.fixture
async def frontend_and_bootstrap(tmp_path: Path) -> AsyncIterator[tuple[KafkaFrontend, str]]:
    """Start a frontend with low limits in this loop; return it and its address."""
    async with Broker(tmp_path / "data") as broker:
        frontend = KafkaFrontend(broker, limits=LIMITS)
        port = await frontend.start(Listener("kafka", "127.0.0.1", 0))
        yield frontend, f"127.0.0.1:{port}"
        await frontend.drain(1)


async def aside(work: Callable[[], T]) -> T:
    """Run blocking work of clients in a thread."""
    async with asyncio.timeout(SECONDS):
        return await asyncio.to_thread(work)


class Members:
    """Members of one group on a topic, closed at the end."""

    def __init__(self, bootstrap: str, count: int, records: list[bytes]) -> None:
        self.members = [Member(bootstrap, "group") for _ in range(count)]
        raw = self.members[0].raw
        configure(raw, "group", {"share.auto.offset.reset": "earliest"})
        self.topic = f"t-{uuid.uuid4().hex}"
        self.zero = (fill(raw, self.topic, records), 0)
        for each in self.members:
            each.join(self.topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.members:
            each.close()


async def test_there_are_no_more_sessions_than_may_be(
    frontend_and_bootstrap: tuple[KafkaFrontend, str],
) -> None:
    def work() -> list[ErrorCode]:
        with Members(frontend_and_bootstrap[1], 3, []) as group:
            codes = [each.fetch([group.zero], wait_ms=20).error_code for each in group.members]
            first = group.members[0]
            first.raw.call(share_fetch("group", first.id, -1))
            return [*codes, group.members[2].fetch([group.zero]).error_code]

    none, full = ErrorCode.none, ErrorCode.share_session_limit_reached
    assert await aside(work) == [none, none, full, none]


async def test_sessions_have_no_more_partitions_than_may_be(
    frontend_and_bootstrap: tuple[KafkaFrontend, str],
) -> None:
    def work() -> tuple[ErrorCode, ErrorCode]:
        with Members(frontend_and_bootstrap[1], 1, []) as group:
            (one,) = group.members
            one.fetch([group.zero])
            many = [(uuid.uuid4(), 0) for _ in range(50)]
            added = one.fetch(many).error_code
            one.epoch = 0
            return added, one.fetch([group.zero]).error_code

    assert await aside(work) == (ErrorCode.share_session_limit_reached, ErrorCode.none)


async def test_sessions_end_with_their_connections(frontend_and_bootstrap: tuple[KafkaFrontend, str]) -> None:
    def work() -> None:
        with Members(frontend_and_bootstrap[1], 2, [batch(10)]) as group:
            for each in group.members:
                each.fetch([group.zero], max_records=3)

    await aside(work)
    async with asyncio.timeout(SECONDS):
        while frontend_and_bootstrap[0].connections:
            await asyncio.sleep(0.01)
    assert (
        len(frontend_and_bootstrap[0].share_members.sessions),
        frontend_and_bootstrap[0].share_members.sessions.partitions,
    ) == (0, 0)
    await frontend_and_bootstrap[0].share_members.settled()
    assert frontend_and_bootstrap[0].broker.queues.describe("group").statistics.leased == 0


async def test_members_that_do_not_read_leave_little_memory_to_fetches(
    frontend_and_bootstrap: tuple[KafkaFrontend, str],
) -> None:
    """They get a MiB at a time then, not several."""
    large = [build_batch([bytes(10_000) for _ in range(10)]) for _ in range(40)]

    def work() -> int:
        with Members(frontend_and_bootstrap[1], 2, large) as group:
            deaf, hearing = group.members
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                host, _, port = frontend_and_bootstrap[1].rpartition(":")
                client.connect((host, int(port)))
                for epoch in range(20):
                    asked = share_fetch(
                        "group", deaf.id, epoch, [group.zero] if not epoch else (), max_records=100
                    )
                    client.sendall(encode(asked, epoch))
                taken = len(offsets(hearing.get([group.zero], max_records=400)))
                with contextlib.suppress(TimeoutError):
                    client.settimeout(0.1)
                return taken

    assert await aside(work) < 110


async def test_a_quota_throttles_after_the_fetch_and_drops_no_records(
    frontend_and_bootstrap: tuple[KafkaFrontend, str],
) -> None:
    frontend, bootstrap = frontend_and_bootstrap
    quota = QuotaChange((("client-id", "tests"),), ((QuotaKind.FETCH.value, 2_000.0),))
    await frontend.broker.quotas.alter([quota])

    def work() -> tuple[list[int], float]:
        with Members(
            bootstrap, 1, [build_batch([bytes(1000) for _ in range(10)]) for _ in range(10)]
        ) as group:
            (one,) = group.members
            response = one.get([group.zero], max_records=30)
            while not response.throttle_time and acquired(response):
                response = one.fetch(max_records=30)
            return offsets(response), response.throttle_time.total_seconds()

    taken, held_back_s = await aside(work)
    assert taken
    assert held_back_s > 0
