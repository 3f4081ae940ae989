"""`sparrow serve` with a wall clock that jumps on command, and housekeeping that runs five times a
second.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

from sparrow.testing.process import ProcessHost

if TYPE_CHECKING:
    import pytest

CLOCK_VARIABLE = "CRASH_CLOCK"
"""Environment variable with the path of the clock's file."""
OFFSET = struct.Struct("<q")
HOUSEKEEPING_MS = 200
_ROOT = Path(__file__).parents[3]


class JumpingClock:
    """The offset of the wall clock of a broker in another process, in milliseconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(OFFSET.pack(0))

    def jump(self, by_ms: int) -> None:
        """Move the wall clock, on top of earlier jumps. One write of 8 bytes, so the broker never
        reads half of it.
        """
        (now,) = OFFSET.unpack(self._path.read_bytes())
        with self._path.open("r+b", buffering=0) as file:
            file.write(OFFSET.pack(now + by_ms))


def use_jumping_clock(patch: pytest.MonkeyPatch, work_dir: Path) -> JumpingClock:
    """Let brokers in processes that start from now on use this clock."""
    path = work_dir / "clock"
    patch.setenv(CLOCK_VARIABLE, str(path))
    patch.setenv("PYTHONPATH", str(_ROOT))
    patch.setattr(ProcessHost, "program", ("-m", "tests.crash.jumping"))
    return JumpingClock(path)
