"""The idempotency keys of all frontends: taken keys, their requests and their progress.

A publish with a key goes in three steps, each on stable storage before the next:

1. the claim: what is about to be published, under the key, only if the key is free;
2. the batches, in the log;
3. the position of each batch.

The client gets its response after step 2. A crash before step 3 leaves a claim; a retry, or the
walk after the start, searches the log for its batches (`batch_search.py`). Memory holds a key only
while it is used; the meta store has them all, about 200 bytes each.

Keys are forgotten when their window is over: the entries are visited in portions, by the first
digits of their names. The first walk after a start counts them, and searches the log for claims
that a crash left open.

Rejected: idempotent producers' sequences, by which the partitions would recognise a repeated batch.
They would remember each producer, half a kilobyte for a day, and read all of them from the log
after a crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from sparrow.base.errors import (
    ConditionFailed,
    IdempotencyKeyReused,
    Overloaded,
    SparrowError,
    TooManyIdempotencyKeys,
)
from sparrow.broker.idempotency import stored_publish
from sparrow.broker.idempotency.batch_search import find_batches
from sparrow.broker.keyed_lock import KeyedLock
from sparrow.meta.store import ABSENT, Delete

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

    from sparrow.base.clock import Clock
    from sparrow.broker.idempotency.stored_publish import IdempotencyKey, StoredPublish
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.meta.store import Entry, MetaStore

_LOG = logging.getLogger(__name__)

MAX_RESERVED_BYTES: Final = 128 << 20
"""Limit of messages that are being published. Their clients may be gone, with the memory that these
had reserved.
"""
PORTIONS: Final = 256
"""The number of portions in a walk over all keys."""
_WALK_PARTS: Final = 12
"""A walk over all keys takes the window divided by this; a key is forgotten at most that much
late.
"""
_SHARE_OF_ONE: Final = 0.9
"""Part of all keys that one principal may take."""
_VISITED_AT_ONCE: Final = 200


class Claim(Struct):
    """A claimed key with its stored publish, and the version of the entry."""

    digest: str
    kept: StoredPublish
    version: int
    is_new: bool = False


class IdempotencyKeys:
    """`broker.idempotency`. Loop thread only.

    Args:
        new_producer_id: returns a producer id that was never given before.
        window_ms: how long a key is kept.
        max_keys: limit of all keys.
    """

    def __init__(
        self,
        meta: MetaStore,
        clock: Clock,
        topics: TopicRegistry,
        new_producer_id: Callable[[], Awaitable[int]],
        *,
        window_ms: int,
        max_keys: int,
    ) -> None:
        self._meta = meta
        self._clock = clock
        self._topics = topics
        self.new_producer_id = new_producer_id
        self._window_ms = window_ms
        self._max_keys = max_keys
        self._locks = KeyedLock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reserved_bytes = 0
        self._counts: Counter[str] = Counter()
        """Keys by principal, as far as the first walk has come."""
        self._total = 0
        """Keys of all principals."""
        self._next_portion = 0
        self._is_counted = False
        self._counted_by_writers: set[str] = set()
        """Keys that were written while the first walk was at their portion: it may or may not find
        them.
        """
        self.is_walking = False
        """True while the first walk is under way."""
        self._is_closing = False
        self._portion_due_at = 0.0

    def __len__(self) -> int:
        return self._total

    @property
    def window_ms(self) -> int:
        """The longest time for which a key is kept."""
        return self._window_ms

    @property
    def in_use(self) -> int:
        """The number of keys whose publish is under way."""
        return len(self._locks)

    # ── one key ───────────────────────────────────────────────────────────────────────────────────

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]], size_bytes: int = 0) -> None:
        """Run a task that holds `size_bytes` of memory, whether its caller waits or not; `close`
        waits for it.

        Raises:
            Overloaded: too much is under way.
        """
        if self._reserved_bytes and self._reserved_bytes + size_bytes > MAX_RESERVED_BYTES:
            raise Overloaded(
                "Too many publishes with idempotency keys wait for the disk; try again in a moment."
            )
        self._reserved_bytes += size_bytes
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, size_bytes))

    def _ended(self, size_bytes: int, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._reserved_bytes -= size_bytes

    def locked(self, digest: str) -> AbstractAsyncContextManager[None]:
        """Hold the lock of a key."""
        return self._locks.hold(digest)

    async def find(self, key: IdempotencyKey) -> Claim | None:
        """Return the claim of a key, or None if the key is free.

        Raises:
            IdempotencyKeyReused: it belongs to another request. DirectoryUnreadable, NewerFormat
        """
        entry = await self._meta.get(stored_publish.KIND, key.digest)
        return None if entry is None or self._is_over(entry, key) else self._checked(key, entry)

    async def claim(self, key: IdempotencyKey, planned: StoredPublish) -> Claim:
        """Claim a key for the planned publish. If the same request has it already, return that
        claim.

        Raises:
            IdempotencyKeyReused: it belongs to another request. TooManyIdempotencyKeys
            DiskFull, StorageFailed, Overloaded: the key was not taken. DirectoryUnreadable,
                NewerFormat
        """
        refusal = self._refusal(key.principal)
        version = ABSENT
        while True:
            taken = await self._take(key, planned, version) if refusal is None or version != ABSENT else None
            if taken is not None:
                return taken
            entry = await self._meta.get(stored_publish.KIND, key.digest)
            if entry is not None and not self._is_over(entry, key):
                return self._checked(key, entry)
            version = ABSENT if entry is None else entry.version
            if entry is None and refusal is not None:
                raise refusal

    async def _take(self, key: IdempotencyKey, planned: StoredPublish, version: int) -> Claim | None:
        """Return the claim, or None if the entry does not have `version`. A key that replaces an
        old one is counted already.
        """
        digest = key.digest
        # else the walk will come to it
        counted = int(version == ABSENT and self._is_walked(digest))
        self._count(key.principal, counted)
        if counted and not self._is_counted:
            self._counted_by_writers.add(digest)
        try:
            await self._meta.write([planned.put(digest, version)])
        except ConditionFailed:
            self._uncount(key.principal, digest, counted)
            return None
        except SparrowError:
            self._uncount(key.principal, digest, counted)
            raise
        return Claim(digest, planned, version + 1, is_new=True)

    async def keep(self, claim: Claim) -> None:
        """Store the result of a claim. A failure only costs a search of the log later."""
        try:
            await self._meta.write([claim.kept.put(claim.digest, claim.version)])
            claim.version += 1
        except SparrowError as error:
            _LOG.warning("the result of a publish with an idempotency key is not stored yet: %s", error.text)

    async def replan(self, claim: Claim, planned: StoredPublish) -> Claim:
        """Replace the plan of a claim whose batches are in no log.

        Raises:
            ConditionFailed, DiskFull, StorageFailed, Overloaded
        """
        await self._meta.write([planned.put(claim.digest, claim.version)])
        return Claim(claim.digest, planned, claim.version + 1, is_new=True)

    async def release(self, claim: Claim) -> None:
        """Free the key: nothing was published."""
        with suppress(SparrowError):  # otherwise a retry finds it open, finds no batches, and publishes
            await self._delete([claim])

    async def look(self, claim: Claim) -> None:
        """Search the log for the open batches of a claim.

        Raises:
            StorageFailed, Overloaded, UnknownTopic
        """
        await find_batches(self._topics, claim.kept)

    def _is_over(self, entry: Entry, key: IdempotencyKey) -> bool:
        window_ms = key.window_ms or self._window_ms
        return stored_publish.decode(entry).created_ms <= self._clock.wall_ms() - window_ms

    def _checked(self, key: IdempotencyKey, entry: Entry) -> Claim:
        kept = stored_publish.decode(entry)
        if kept.fingerprint != key.fingerprint:
            raise IdempotencyKeyReused(
                f"the idempotency key {key.text!r} was used for another request; take a new key "
                "for each publish, and repeat"
                " a publish as it was"
            )
        return Claim(entry.key, kept, entry.version)

    async def _delete(self, claims: Sequence[Claim]) -> None:
        await self._meta.write([Delete(stored_publish.KIND, claim.digest, claim.version) for claim in claims])
        for claim in claims:
            if self._is_walked(claim.digest):
                self._count(claim.kept.principal, -1)

    # ── limits ────────────────────────────────────────────────────────────────────────────────────

    def _refusal(self, principal: str) -> TooManyIdempotencyKeys | None:
        """Return why no new key can be taken, or None."""
        if len(self) >= self._max_keys:
            has = f"{len(self)} idempotency keys are kept, which is the limit"
        elif self._counts[principal] >= self._max_keys * _SHARE_OF_ONE:
            count = self._counts[principal]
            has = f"{principal} has {count} idempotency keys, which is the limit of one principal"
        else:
            return None
        return TooManyIdempotencyKeys(
            f"{has}; each is forgotten {self._window_ms // 1000} s after its use. Publish without "
            "a key, or later"
        )

    def _count(self, principal: str, by: int) -> None:
        self._total += by
        self._counts[principal] += by
        if not self._counts[principal]:
            del self._counts[principal]

    def _uncount(self, principal: str, digest: str, counted: int) -> None:
        self._counted_by_writers.discard(digest)
        self._count(principal, -counted)

    def _is_walked(self, digest: str) -> bool:
        return self._is_counted or int(digest[:2], 16) < self._next_portion

    # ── the walk ──────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Count the keys, and settle claims that a crash left open."""
        self.is_walking = True
        self.spawn(self._first_walk)

    async def _first_walk(self) -> None:
        try:
            while not self._is_counted and not self._is_closing:
                await self.walk_portion()
        except SparrowError as error:
            _LOG.warning("idempotency keys could not be read: %s", error.text)
        finally:
            self.is_walking = False  # `tick` continues

    async def tick(self) -> None:
        """Visit a portion of the keys when that is due."""
        now = self._clock.monotonic()
        if now >= self._portion_due_at and not self.is_walking:
            self._portion_due_at = now + self._window_ms / 1000 / _WALK_PARTS / PORTIONS
            await self.walk_portion()

    async def walk_portion(self) -> None:
        """Forget expired keys of one portion; in the first walk, also count the keys and settle
        open claims.
        """
        portion = self._next_portion
        self._counted_by_writers.clear()
        self._next_portion += 1  # a key that is written from here on is counted by its writer
        entries = await self._meta.scan(stored_publish.KIND, f"{portion:02x}")
        for start in range(0, len(entries), _VISITED_AT_ONCE):
            await self._visit(entries[start : start + _VISITED_AT_ONCE])
            await asyncio.sleep(0)
        if self._next_portion == PORTIONS:
            self._next_portion = 0
            self._is_counted = True

    async def _visit(self, entries: Sequence[Entry]) -> None:
        over_ms = self._clock.wall_ms() - self._window_ms
        over: list[Claim] = []
        for entry in entries:
            try:
                claim = Claim(entry.key, stored_publish.decode(entry), entry.version)
            except SparrowError as error:
                _LOG.warning("%s", error.text)
                continue
            if not self._is_counted and claim.digest not in self._counted_by_writers:
                self._count(claim.kept.principal, 1)
            if claim.kept.created_ms <= over_ms:
                over.append(claim)
            elif not self._is_counted and not claim.kept.is_settled:
                await self._finish(claim)
        await self._forget(over)

    async def _forget(self, over: Sequence[Claim]) -> None:
        try:
            await self._delete(over)
        except ConditionFailed:  # one of them was claimed again
            for claim in over:
                with suppress(ConditionFailed):
                    await self._delete([claim])

    async def _finish(self, claim: Claim) -> None:
        """Settle a claim that a crash left open, while the log behind it is short."""
        async with self.locked(claim.digest):
            try:
                entry = await self._meta.get(stored_publish.KIND, claim.digest)
                if entry is not None and entry.version == claim.version:
                    await self.look(claim)
                    await self.keep(claim)
            except SparrowError as error:
                _LOG.warning("a publish with an idempotency key is still open: %s", error.text)

    async def close(self) -> None:
        """Wait for the tasks that are under way."""
        self._is_closing = True
        while self._tasks:
            await asyncio.wait(set(self._tasks))
