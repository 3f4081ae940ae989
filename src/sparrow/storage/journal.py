"""The seam of the journal: small records that must be on stable storage soon.

Design:

1. A record is appended to a file and synced; nothing is ever changed in place. So a change costs
   one sequential write, however much state it belongs to.
2. The owner of the state writes a checkpoint elsewhere now and then, together with a `mark` of the
   journal. Records before the mark are not needed any more (`release`).
3. At the next start it opens the journal with that mark and gets the records behind it, in order.
   Records say what holds now, so that replaying one twice changes nothing.
4. The space is taken once, filled with zeros, and used again: a sync writes data and no metadata,
   and a full disk does not stop it. If all of it waits for a checkpoint, appends wait for that, or
   fail as it fails.
5. Appends that come while a sync runs share the next one; the thread that syncs also writes, so
   that the event loop neither waits nor copies.
6. Records become durable in the order of the appends. One that fails takes all behind it along.
7. A store may keep records of its own in the journal: the newest bytes of its logs. They are no
   business of the owner; but a checkpoint that forgets them needs `settle` before it.
8. A bad record behind the last synced one is a torn tail: nothing of it was confirmed. One before
   that is damage: `open` refuses, and says what is lost.

Implementations pass `tests/conformance/journal.py`. `storage/local_journal.py` is the one on local
files; with `storage/faulty.py` below it, it is the fake that fails by seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sparrow.base.errors import SparrowError
    from sparrow.base.futures import Then
    from sparrow.base.histogram import Histogram

MAX_RECORD_BYTES: Final = 1 << 20
"""Size of the largest record of any journal."""


class Journal(Protocol):
    """A journal with one owner. Loop thread only, except where it says otherwise."""

    @property
    def max_record_bytes(self) -> int:
        """Size of the largest record."""
        ...

    async def begin(self) -> bytes:
        """Prepare the space, and return the first mark. It must be in a checkpoint on stable
        storage before the first `append`; again: no effect.

        Raises:
            DiskFull, StorageFailed: there is no space, or the device failed.
        """
        ...

    def append(self, record: bytes) -> asyncio.Future[None]:
        """Append a record of at most `max_record_bytes`. The future is done when it is on stable
        storage.

        The future fails with DiskFull (append again later) or StorageFailed (not before a restart);
        then so do all records that were appended after it and are not on stable storage.
        """
        ...

    def append_then(self, record: bytes, then: Then) -> None:
        """Append as `append`; call `then` when its future would be done: with None, or with the
        error it would fail with. It needs no future, and no iteration of the loop.

        Args:
            then: does not raise. It is called on the loop, and not before this call returns.
        """
        ...

    def mark(self, *, is_final: bool = False) -> bytes:
        """Return a mark behind the last appended record, for the owner's checkpoint.

        Args:
            is_final: nothing is appended after it, so that the journal may be missing at the next
                start.
        """
        ...

    async def settle(self) -> None:
        """Put on stable storage, in its own place, what records of the store before the last mark
        have. The checkpoint with that mark is written after it.

        Raises:
            StorageFailed, Overloaded: it failed; the records are still needed.
        """
        ...

    def call_when_filling(self, call: Callable[[], None]) -> None:
        """Call the owner on the loop when a record of the store makes a checkpoint due."""
        ...

    def release(self, mark: bytes) -> None:
        """Use the space of records before `mark` again: a checkpoint with that mark is on stable
        storage.
        """
        ...

    def refuse_waiting(self, error: SparrowError) -> None:
        """Fail the records that wait for a checkpoint, which cannot be written now; none if there
        is space left.
        """
        ...

    @property
    def is_filling(self) -> bool:
        """True if a checkpoint is due: about half of the space is in use."""
        ...

    def take_records(self) -> list[memoryview]:
        """Return the records that were found behind the mark at opening, once."""
        ...

    @property
    def sync_times(self) -> Histogram:
        """Durations of successful syncs, in seconds."""
        ...

    async def close(self) -> None:
        """Sync what was appended, and release the files."""
        ...
