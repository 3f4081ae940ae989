"""A record and its lease are in one write of the journal, and the power fails in the middle of it:
the machine has both, or the record alone, or neither, and never a lease on a record that is gone.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tests.queues.work import Work, ack, records, take

from sparrow.base.clock import ManualClock
from sparrow.base.errors import SparrowError, StorageFailed
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.meta.memory import MemoryMetaStore
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.log import LocalLog
from sparrow.storage.options import StorageOptions

if TYPE_CHECKING:
    import pytest

    from sparrow.meta.store import Entry

OPTIONS: Final = StorageOptions(
    flush_threads=0, worker_threads=0, flush_interval_ms=0, journal_file_bytes=64 << 10
)
STEP_BYTES: Final = 16
LEASE_S: Final = 31


class Simulated(Work):
    """A broker on a disk that can lose power; its meta store loses nothing."""

    def __init__(self) -> None:
        super().__init__("", ManualClock(), BrokerConfig(default_partitions=1))
        self.fs = FaultyFileSystem()
        self.entries: dict[tuple[str, str], Entry] = {}

    async def start(self) -> None:
        self.broker = Broker(
            log_store=LocalLogStore("/data", self.fs, self.clock, OPTIONS),
            meta_store=MemoryMetaStore(self.entries),
            clock=self.clock,
            config=self.config,
        )
        await self.broker.start()

    async def recover(self, entries: dict[tuple[str, str], Entry]) -> None:
        """End the broker, whose device is gone, and start one with what the disk has."""
        with suppress(SparrowError):
            await self.stop()
        self.fs.calls_left = None
        self.fs.crash()
        self.entries = entries
        await self.start()


async def torn_write(work: Simulated, monkeypatch: pytest.MonkeyPatch, kept_bytes: int) -> int:
    """Publish a record for which a consumer waits, and lose power when this many bytes of the
    write that has both are on the disk. Return the number of bytes of that write.
    """
    await work.start()
    await work.create("jobs")
    await work.publish("jobs", [b"0"])
    one = await work.consumer("jobs", "one")
    await ack(one, await take(one))
    log = work.queue("jobs").sources[0].partition.log
    assert isinstance(log, LocalLog)
    while not log._resources.redo.max_bytes:
        await asyncio.sleep(0)
    waiting = asyncio.create_task(one.lease(1, wait_ms=30_000))
    while not work.queue("jobs")._waiters[""]:
        await asyncio.sleep(0)
    written = work.fs.write_synced
    found: list[tuple[int, dict[tuple[str, str], Entry]]] = []

    def torn(fd: int, data: memoryview, position: int) -> None:
        found.append((len(bytes(data).rstrip(b"\0")), dict(work.entries)))
        before = work.fs.read_at(fd, len(data), position)
        written(fd, memoryview(bytes(data[:kept_bytes]) + before[kept_bytes:]), position)
        work.fs.calls_left = 0
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(work.fs, "write_synced", torn)
    publishing = asyncio.ensure_future(work.publish("jobs", [b"1"]))
    failures = await asyncio.gather(publishing, waiting, return_exceptions=True)
    assert [type(each) for each in failures] == [StorageFailed, StorageFailed]
    monkeypatch.undo()
    ((size, entries),) = found
    await work.recover(entries)
    return size


async def test_a_torn_write_leaves_a_lease_with_its_record_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    size = await torn_write(Simulated(), monkeypatch, 1 << 20)
    seen = set()
    for kept_bytes in range(0, size + STEP_BYTES, STEP_BYTES):
        work = Simulated()
        await torn_write(work, monkeypatch, kept_bytes)
        other = await work.consumer("jobs", "other")
        (has_record,) = {each.partition.log.end_offset > 1 for each in work.queue("jobs").sources}
        is_leased = work.statistics("jobs").leased == 1
        seen.add((has_record, is_leased))
        await work.publish("jobs", [b"2"])
        expected = [b"2"] if is_leased or not has_record else [b"1", b"2"]
        assert [each.value for each in records(await other.lease(10, wait_ms=5000))] == expected
        work.pass_time(LEASE_S)
        again = [b"1", b"2"] if has_record else [b"2"]
        assert [each.value for each in await take(other)] == again
        await work.stop()
    assert (False, True) not in seen
    assert {(False, False), (True, True)} <= seen
