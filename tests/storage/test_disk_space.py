"""Free space is checked, and refusals are logged."""

from __future__ import annotations

import logging

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DiskFull
from sparrow.storage.disk_space import WARNING_SECONDS, DiskSpace
from sparrow.storage.faulty import FaultyFileSystem


def test_refusals_for_lack_of_space_are_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    fs = FaultyFileSystem(0, capacity_bytes=10_000)
    space = DiskSpace(fs, "/", clock, reserve_bytes=1 << 20, check_bytes=1000)
    space.take(5000)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with pytest.raises(DiskFull, match="in reserve"):
                space.take(9_900)
        assert len(caplog.records) == 1
        clock.advance(WARNING_SECONDS)
        with pytest.raises(DiskFull):
            space.take(9_900)
    assert len(caplog.records) == 2
