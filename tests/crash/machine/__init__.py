"""A machine that can lose its power: the real server on real sockets, whose disk is a
`FaultyFileSystem` in the memory of its process.

    with simulated_machine(seed=7) as machine:
        …                                # clients connect to machine.url, .kafka, .http
        machine.power_off_after(500)     # inside the 500th call that changes the disk
        machine.wait_until_off()
        machine.restart()                # with what was synced, and parts of the rest

It is used as a `sparrow.testing` broker is. `kill` is the end of the process alone: what was in the
kernel's cache stays. `restart` may lose power itself: it returns when a start came through.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from sparrow.storage.faulty import DEVICE_BYTES
from sparrow.testing.running_broker import RunningBroker
from tests.crash.machine.host import MachineHost
from tests.crash.machine.sqlite_vfs import why_unavailable
from tests.crash.machine.stores import DATA_DIR

__all__ = ["Machine", "simulated_machine", "why_unavailable"]


class Machine(RunningBroker):
    """A broker under test on a machine of its own."""

    _host: MachineHost

    def power_off_after(self, calls: int) -> None:
        """Lose power after this many more calls that change the disk; if the machine is off: in its
        next start, if that has this many.
        """
        self._host.power_off_after(calls)

    def wait_until_off(self, timeout_s: float = 10.0) -> bool:
        """Wait until the machine is off. Return False if the timeout ended first, and it was
        switched off then.
        """
        return self._host.wait_until_off(timeout_s)

    def fill(self, left_bytes: int) -> None:
        """Let another program use all of the disk's space but so much. The machine must be on."""
        self._host.fill(left_bytes)

    def free(self) -> None:
        """Free the space of that program, also for a machine that is off."""
        self._host.free()

    @property
    def power_failures(self) -> int:
        """Return the number of power failures."""
        return self._host.power_failures


@contextmanager
def simulated_machine(
    seed: int = 0,
    *,
    capacity_bytes: int = DEVICE_BYTES,
    longest_sync_s: float = 0.002,
    **options: object,
) -> Iterator[Machine]:
    """Yield a machine that runs for the length of the block.

    Args:
        seed: decides what power failures lose.
        capacity_bytes: the size of the disk.
        longest_sync_s: a sync takes up to so long, so that others work meanwhile.
        options: those of `sparrow serve`, by the names of `ServerConfig`.
    """
    work_dir = tempfile.mkdtemp(prefix="sparrow-machine-")
    chosen = {
        "native_port": 0,
        "kafka_port": 0,
        "http_port": 0,
        "reserve_bytes": 0,
        **options,
        "data_dir": DATA_DIR,
    }
    host = MachineHost(work_dir, seed, capacity_bytes=capacity_bytes, longest_sync_s=longest_sync_s)
    try:
        yield Machine(host, chosen)
    finally:
        try:
            host.stop()
        finally:
            shutil.rmtree(work_dir, ignore_errors=True)
