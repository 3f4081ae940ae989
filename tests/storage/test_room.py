"""Free space is watched, refusals are told."""

from __future__ import annotations

import logging

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DiskFull
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.room import WARNING_SECONDS, Room


def test_refusals_for_want_of_room_are_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    fs = FaultyFileSystem(0, capacity_bytes=10_000)
    room = Room(fs, "/", clock, reserve_bytes=1 << 20, check_bytes=1000)
    room.take(5000)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with pytest.raises(DiskFull, match="in reserve"):
                room.take(9_900)
        assert len(caplog.records) == 1
        clock.advance(WARNING_SECONDS)
        with pytest.raises(DiskFull):
            room.take(9_900)
    assert len(caplog.records) == 2
