"""The broker's own program, with another wall clock (see the package)."""

from __future__ import annotations

import dataclasses
import mmap
import os
import sys
import time

from sparrow.base.clock import SystemClock
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.cli import main
from tests.crash.jumping import CLOCK_VARIABLE, HOUSEKEEPING_MS, OFFSET


def jump() -> None:
    """Let every `SystemClock` of this process add the offset in the file."""
    with open(os.environ[CLOCK_VARIABLE], "rb") as file:
        hands = mmap.mmap(file.fileno(), OFFSET.size, access=mmap.ACCESS_READ)

    def wall_ms(_: SystemClock) -> int:
        (ahead_ms,) = OFFSET.unpack(hands[: OFFSET.size])
        return time.time_ns() // 1_000_000 + ahead_ms

    SystemClock.wall_ms = wall_ms  # type: ignore[method-assign]


def keep_house_often() -> None:
    """Run retention and compaction so often that kills hit them."""
    start = Broker.start

    async def start_often(self: Broker) -> None:
        assert isinstance(self.config, BrokerConfig)
        self.config = dataclasses.replace(self.config, retention_check_interval_ms=HOUSEKEEPING_MS)
        await start(self)

    Broker.start = start_often  # type: ignore[method-assign]


if __name__ == "__main__":
    jump()
    keep_house_often()
    sys.exit(main())
