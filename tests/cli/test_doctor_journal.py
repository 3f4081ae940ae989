"""`sparrow doctor --accept-loss` and `sparrow log skip` in a directory whose journal has the newest
records of a log.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING

from sparrow.base.clock import ManualClock
from sparrow.broker.queues.persistence.state_store import StateStore
from sparrow.meta.sqlite import SqliteMetaStore
from sparrow.meta.store import Put
from sparrow.storage import names
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from sparrow.storage.store import LogConfig, LogId
from tests.storage.batches import NOW_MS, append, numbered, read_batches

if TYPE_CHECKING:
    from pathlib import Path

ORDERS, OTHER = (LogId(name, uuid.UUID(int=7), 0) for name in ("orders", "other"))
_OPTIONS = StorageOptions(flush_interval_ms=0)


def segment(directory: str, log_id: LogId) -> str:
    return f"{directory}/logs/{log_id}/{names.segment_stem(0)}{names.LOG}"


async def write(directory: str) -> int:
    """Write two logs, and end without a stop. Return how many bytes of the first are synced."""
    store = LocalLogStore(directory, clock=ManualClock(NOW_MS), options=_OPTIONS)
    meta = SqliteMetaStore(f"{directory}/meta.db")
    await meta.write([Put("topic", "orders", b"{}")])
    states = await StateStore.open(meta, store)
    logs = [store.open(each, LogConfig()) for each in (ORDERS, OTHER)]
    for log in logs:
        append(log, numbered(0))
        await log.checkpoint(b"")
    await states.append([Put("page", "any", b"1")])
    synced = logs[0].size_bytes
    append(logs[0], numbered(1))
    await logs[0].durable(2)
    await states._journal.close()
    store._resources.flusher.close()
    await meta.close()
    store._directory.release(clean=False)
    return synced


async def end_of(directory: str) -> int:
    store = LocalLogStore(directory, clock=ManualClock(NOW_MS), options=_OPTIONS)
    log = store.open(ORDERS, LogConfig())
    end = log.end_offset
    assert len(await read_batches(log)) == 2
    await store.close()
    return end


def test_accepted_loss_keeps_the_records_of_the_journal(run, tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    os.mkdir(directory)
    synced = asyncio.run(write(directory))
    os.truncate(segment(directory, ORDERS), synced)  # a power failure took the rest
    os.unlink(segment(directory, OTHER))
    found = run("doctor", directory, "--accept-loss")
    assert "accepted: offsets 0 to 0 of other-0" in found.out
    assert os.path.getsize(segment(directory, ORDERS)) > synced
    assert asyncio.run(end_of(directory)) == 2


def test_offline_skip_keeps_the_records_of_the_journal(run, tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    os.mkdir(directory)
    synced = asyncio.run(write(directory))
    os.truncate(segment(directory, ORDERS), synced)
    found = run("log", "skip", "orders", "0", "0", "--force", "--data-dir", directory)
    assert found.code == 0, found.err
    assert asyncio.run(end_of(directory)) == 2
