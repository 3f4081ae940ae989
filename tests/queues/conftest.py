"""A broker in this process, with a manual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.queues.work import Work

from sparrow.base.clock import ManualClock
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.storage import durability


@pytest.fixture
async def work(tmp_path) -> AsyncIterator[Work]:
    clock = ManualClock()
    work = Work(str(tmp_path / "data"), clock, BrokerConfig(default_partitions=1))
    await work.start()
    yield work
    await work.stop()


@pytest.fixture
def large_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every append count as too large for the journal."""
    monkeypatch.setattr(durability, "REDO_BYTES", -1)


__all__ = ["Broker"]
