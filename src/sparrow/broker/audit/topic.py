"""The audit topic: events as JSON records of an internal topic that only the broker writes.

Events wait in a bounded queue; a task writes them in batches, so that no request waits for it.
Events beyond the bound are counted and left out: the logger has them. Nothing else can write: the
authorizer refuses WRITE to all principals (`StoredAuthorizer`), and `AuditPartition` refuses every
publish, from any listener, stage, transaction or queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import NotAuthorized, SparrowError
from sparrow.broker.partition import Partition
from sparrow.broker.publishes import ACKS_ALL, Owns, Published, refuse_producers, refuse_transactional
from sparrow.records.builder import build_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.audit.event import AuditEvent
    from sparrow.broker.publishes import Admit

log = logging.getLogger("sparrow.broker")

TOPIC_CONFIG: Final = {"cleanup.policy": "delete"}
"""Set when the broker creates the topic: events have no keys, so that it cannot be compacted."""
MAX_WAITING: Final = 10_000
MAX_WAITING_BYTES: Final = 8 << 20
MAX_BATCH: Final = 500
RETRY_S: Final = 1.0
CLOSE_S: Final = 5.0
_ENCODER: Final = msgspec.json.Encoder()


class AuditPartition(Partition):
    """A partition of the audit topic: `publish` refuses; the broker uses `write`."""

    def publish(
        self,
        data: bytes | memoryview,  # noqa: ARG002 - as `Partition.publish`
        acks: int,  # noqa: ARG002
        admit: Admit = refuse_transactional,  # noqa: ARG002
        *,
        owns: Owns = refuse_producers,  # noqa: ARG002
        is_built_here: bool = False,  # noqa: ARG002
    ) -> asyncio.Future[Published]:
        """Raise NotAuthorized: only the broker writes here."""
        raise NotAuthorized(
            f"topic {self.id.topic!r} has the broker's audit events; only the broker writes to it", "Topic"
        )

    async def write(self, batch: bytes) -> None:
        """Append a batch, durably.

        Raises:
            what `Partition.publish` raises
        """
        await self.opened()  # or `publish` would be called again when the log is open
        await super().publish(batch, ACKS_ALL, is_built_here=True)


class AuditTopic:
    """Writer of the events. Loop thread only.

    Args:
        find: returns the partition; None if there is none.
        lost: counts events that are not written, by reason: "queue_full", "write_failed".
    """

    def __init__(self, find: Callable[[], Partition | None], lost: Counter[str]) -> None:
        self._find = find
        self._lost = lost
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._is_closing = False
        self._has_complained = False
        self._wake = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def add(self, event: AuditEvent) -> None:
        """Queue an event for writing; it is counted as lost if too many wait."""
        record = _ENCODER.encode({"time_ms": event.time_ms, **event.fields()})
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes + len(record) > MAX_WAITING_BYTES:
            self._lost["queue_full"] += 1
            return
        self._waiting.append((event.time_ms, record))
        self._waiting_bytes += len(record)
        self._wake.set()

    def start(self) -> None:
        """Start the task that writes."""
        self._writing = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        """Write the waiting events, for `CLOSE_S` seconds at most. Again: no effect."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        self._is_closing = True
        self._wake.set()
        await asyncio.wait([writing], timeout=CLOSE_S)
        writing.cancel()
        await asyncio.wait([writing])
        if self._waiting:
            self._lose("the broker stops")

    async def _write(self) -> None:
        while self._waiting or not self._is_closing:
            self._wake.clear()
            while self._waiting:
                if not await self._write_some():
                    if self._is_closing:
                        return
                    await asyncio.sleep(RETRY_S)
            if not self._is_closing:
                await self._wake.wait()

    async def _write_some(self) -> bool:
        """Write a batch; return False if it has to be tried again."""
        some = [self._waiting[i] for i in range(min(MAX_BATCH, len(self._waiting)))]
        try:
            partition = self._find()
            if not isinstance(partition, AuditPartition):
                self._lose("the topic is gone", len(some))
                return True
            await partition.write(
                build_batch([each[1] for each in some], timestamps=[each[0] for each in some])
            )
        except SparrowError as error:
            if error.retriable:
                self._complain(error.text)
                return False
            self._lose(error.text, len(some))
            return True
        except Exception:
            log.exception("a bug in writing audit events")
            self._lose("a bug", len(some))
            return True
        self._has_complained = False
        self._drop(len(some))
        return True

    def _lose(self, why: str, count: int = -1) -> None:
        count = len(self._waiting) if count < 0 else count
        self._complain(why)
        self._lost["write_failed"] += count
        self._drop(count)

    def _drop(self, count: int) -> None:
        for _ in range(count):
            self._waiting_bytes -= len(self._waiting.popleft()[1])

    def _complain(self, why: str) -> None:
        if not self._has_complained:
            self._has_complained = True
            log.error("audit events cannot be written to their topic: %s", why)
