"""The journal of a shard: its records ride in the commits of the shard.

A record is a part of the manifest of the commit that keeps it, so a lease, an acknowledgement and a
publish that wait together are one commit. Records have numbers; a mark is the number of the next
one. A commit that has records stays until a checkpoint releases them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError, StorageFailed
from sparrow.cluster.settlement import settle_future
from sparrow.storage.journal import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.base.histogram import Histogram
    from sparrow.cluster.committer import ShardCommitter
    from sparrow.cluster.payloads import CommitPayload
    from sparrow.cluster.settlement import Settle

SPACE_BYTES: Final = 16 << 20
"""Bytes of records that may wait for a checkpoint; more wait themselves."""


class LedgerJournal:
    """A `Journal` over a committer.

    Args:
        records: (number, record, payload) of what the ledger has, in order.
        mark: that of the owner's last checkpoint; None: there is none.
    """

    def __init__(
        self,
        committer: ShardCommitter,
        records: Sequence[tuple[int, bytes, CommitPayload]],
        mark: bytes | None,
    ) -> None:
        self._committer = committer
        committer.journal = self
        # Without a checkpoint nothing was ever confirmed by this journal.
        first = int.from_bytes(mark, "big") if mark is not None else _end_of(records)
        self._next = max(first, _end_of(records))
        self._found = [memoryview(record) for number, record, _ in records if number >= first]
        self._kept: deque[tuple[int, int, CommitPayload]] = deque()
        """(first record, number behind the last, payload) of commits that have records."""
        for number, _, payload in records:
            if not self._kept or self._kept[-1][2] is not payload:
                self._kept.append((number, number + 1, payload))
            else:
                self._kept[-1] = (self._kept[-1][0], number + 1, payload)
        self._used_bytes = sum(len(record) for number, record, _ in records if number >= first)
        self._sizes: deque[tuple[int, int]] = deque(
            (number, len(record)) for number, record, _ in records if number >= first
        )
        self._waiting: deque[tuple[bytes, Settle]] = deque()
        self._is_closed = False

    @property
    def max_record_bytes(self) -> int:
        return MAX_RECORD_BYTES

    @property
    def sync_times(self) -> Histogram:
        return self._committer.commit_times

    @property
    def is_filling(self) -> bool:
        return self._used_bytes > SPACE_BYTES // 2

    async def begin(self) -> bytes:
        return self.mark()

    def append(self, record: bytes) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.append_then(record, settle_future(future, None))
        return future

    def append_then(self, record: bytes, then: Settle) -> None:
        if self._is_closed:
            asyncio.get_running_loop().call_soon(then, StorageFailed("the journal is closed"))
        elif self._waiting or self._used_bytes + len(record) > SPACE_BYTES:
            self._waiting.append((record, then))
        else:
            self._append(record, then)

    def _append(self, record: bytes, then: Settle) -> None:
        try:
            group = self._committer.admit(len(record))
        except SparrowError as error:
            asyncio.get_running_loop().call_soon(then, error)
            return
        group.entry_bytes += len(record)
        if not group.journal:
            group.journal_first = self._next
        group.journal.append(record)
        self._sizes.append((self._next, len(record)))
        self._used_bytes += len(record)
        self._next += 1
        group.settlements.append(partial(self._ended, then))

    def _ended(self, then: Settle, error: SparrowError | None) -> None:
        then(error)
        if error is not None:  # it takes those behind it along
            self.refuse_waiting(error)

    def committed(self, first: int, count: int, payload: CommitPayload) -> None:
        """See `CommittedJournal`."""
        self._kept.append((first, first + count, payload))

    def mark(self, *, is_final: bool = False) -> bytes:  # noqa: ARG002 - a mark is final if nothing comes after it
        return self._next.to_bytes(8, "big")

    async def settle(self) -> None:
        """See `Journal.settle`: the ledger's journal has records of its owner only."""

    def call_when_filling(self, call: Callable[[], None]) -> None:
        """See `Journal.call_when_filling`: only the owner's own records fill it."""

    def release(self, mark: bytes) -> None:
        before = int.from_bytes(mark, "big")
        while self._kept and self._kept[0][1] <= before:
            self._committer.release(self._kept.popleft()[2])
        while self._sizes and self._sizes[0][0] < before:
            self._used_bytes -= self._sizes.popleft()[1]
        while self._waiting and self._used_bytes + len(self._waiting[0][0]) <= SPACE_BYTES:
            self._append(*self._waiting.popleft())

    def refuse_waiting(self, error: SparrowError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, then in waiting:
            then(error)

    def take_records(self) -> list[memoryview]:
        found, self._found = self._found, []
        return found

    async def close(self) -> None:
        self._is_closed = True
        self.refuse_waiting(StorageFailed("the journal is closed"))
        await self._committer.settled()


def _end_of(records: Sequence[tuple[int, bytes, CommitPayload]]) -> int:
    return records[-1][0] + 1 if records else 0
