"""The idempotency keys of all doors: which are taken, by which request, and how far it came.

A publish with a key goes in three steps, each on stable storage before the next:

1. the claim: what is about to be published, under the key, only if the key is free;
2. the batches, in the log;
3. where each of them is.

The client has its answer after step 2: a crash before step 3 leaves a claim whose batches the log is asked for (`finding.py`), by a retry or after
the start. Memory holds nothing of a key but while it is used; the meta store has them all, about 200 bytes each.

Keys are forgotten when their window is over: the facts are walked over in portions, by the first digits of their names. The first walk after a start
counts them, and asks the log about claims that a crash left open.

Rejected: idempotent producers' sequences, by which the partitions would answer a batch that comes again. They would remember each producer, half a
kilobyte for a day, and read all of them from the log after a crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import (
    ConditionFailed,
    IdempotencyKeyReused,
    Overloaded,
    SparrowError,
    TooManyIdempotencyKeys,
)
from sparrow.broker.idempotency import kept as keeping
from sparrow.broker.idempotency.finding import find_batches
from sparrow.meta.store import ABSENT, Delete

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence

    from sparrow.base.clock import Clock
    from sparrow.broker.idempotency.kept import KeptPublish, Key
    from sparrow.broker.topics import Topics
    from sparrow.meta.store import Fact, MetaStore

_LOG = logging.getLogger(__name__)

MAX_HELD_BYTES: Final = 128 << 20
"""Of messages whose publish is under way; their clients may be gone, and what these would reserve with them."""
PORTIONS: Final = 256
"""A walk over all keys is done in so many portions."""
_WALK_PARTS: Final = 12
"""A key is forgotten at the latest when this part of its window is over for the second time."""
_SHARE_OF_ONE: Final = 0.9
"""Of all keys, those that one principal may have taken."""
_VISITED_AT_ONCE: Final = 200


@dataclass(slots=True)
class Claim:
    """A key that is held: what is kept under it, and which version of it that is."""

    digest: str
    kept: KeptPublish
    version: int
    is_new: bool = False


class _Turns:
    """Who uses a key has it alone; others wait."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class IdempotencyKeys:
    """`broker.idempotency`. Loop thread only.

    Args:
        new_producer_id: numbers that were never given before.
        window_ms: how long a key is kept.
        max_keys: how many there may be.
    """

    def __init__(
        self,
        meta: MetaStore,
        clock: Clock,
        topics: Topics,
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
        self._turns: dict[str, _Turns] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._held_bytes = 0
        self._counts: Counter[str] = Counter()
        """Keys by principal, as far as the first walk has come."""
        self._total = 0
        """Of all principals."""
        self._next_portion = 0
        self._is_counted = False
        self._counted_by_writers: set[str] = set()
        """Keys that were written while the first walk was at their portion: it may come to them or not."""
        self.is_walking = False
        """The first walk is under way."""
        self._is_closing = False
        self._portion_due_at = 0.0

    def __len__(self) -> int:
        return self._total

    @property
    def in_use(self) -> int:
        """Keys whose publish is under way."""
        return len(self._turns)

    # ── one key ───────────────────────────────────────────────────────────────────────────────────

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]], size_bytes: int = 0) -> None:
        """Carry work out that holds so much memory, whether its caller waits or not; `close` waits for it.

        Raises:
            Overloaded: too much is under way.
        """
        if self._held_bytes and self._held_bytes + size_bytes > MAX_HELD_BYTES:
            raise Overloaded(
                "Too many publishes with idempotency keys wait for the disk; try again in a moment."
            )
        self._held_bytes += size_bytes
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, size_bytes))

    def _ended(self, size_bytes: int, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._held_bytes -= size_bytes

    @asynccontextmanager
    async def alone(self, digest: str) -> AsyncIterator[None]:
        """Use a key when nobody else does."""
        turns = self._turns.setdefault(digest, _Turns())
        turns.users += 1
        try:
            async with turns.lock:
                yield
        finally:
            turns.users -= 1
            if not turns.users:
                del self._turns[digest]

    async def find(self, key: Key) -> Claim | None:
        """What is kept under a key; None: the key is free.

        Raises:
            IdempotencyKeyReused: it is another request's.
            DirectoryUnreadable, NewerFormat
        """
        fact = await self._meta.get(keeping.KIND, key.digest)
        return None if fact is None or self._is_over(fact) else self._checked(key, fact)

    async def claim(self, key: Key, planned: KeptPublish) -> Claim:
        """Take a key for what is planned; if the same request has it already, what is kept of that.

        Raises:
            IdempotencyKeyReused: it is another request's.
            TooManyIdempotencyKeys
            DiskFull, StorageFailed, Overloaded: the key was not taken.
            DirectoryUnreadable, NewerFormat
        """
        refusal = self._refusal(key.principal)
        version = ABSENT
        while True:
            taken = await self._take(key, planned, version) if refusal is None or version != ABSENT else None
            if taken is not None:
                return taken
            fact = await self._meta.get(keeping.KIND, key.digest)
            if fact is not None and not self._is_over(fact):
                return self._checked(key, fact)
            version = ABSENT if fact is None else fact.version
            if fact is None and refusal is not None:
                raise refusal

    async def _take(self, key: Key, planned: KeptPublish, version: int) -> Claim | None:
        """The claim; None: the key is not as `version` says. A key that is taken anew is counted already."""
        digest = key.digest
        counted = int(version == ABSENT and self._is_walked(digest))  # else the walk will come to it
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
        """Write what became of the claim. A failure costs a look into the log later, no more."""
        try:
            await self._meta.write([claim.kept.put(claim.digest, claim.version)])
            claim.version += 1
        except SparrowError as error:
            _LOG.warning("what became of a publish with an idempotency key is not kept yet: %s", error.text)

    async def replan(self, claim: Claim, planned: KeptPublish) -> Claim:
        """The same key for another plan of the same request, nothing of which is in any log.

        Raises:
            ConditionFailed, DiskFull, StorageFailed, Overloaded
        """
        await self._meta.write([planned.put(claim.digest, claim.version)])
        return Claim(claim.digest, planned, claim.version + 1, is_new=True)

    async def release(self, claim: Claim) -> None:
        """Give the key back: nothing was published."""
        with suppress(
            SparrowError
        ):  # else a retry finds it open, looks for its batches in vain, and publishes
            await self._delete([claim])

    async def look(self, claim: Claim) -> None:
        """Ask the log about what is open of a claim.

        Raises:
            StorageFailed, Overloaded, UnknownTopic
        """
        await find_batches(self._topics, claim.kept)

    def _is_over(self, fact: Fact) -> bool:
        return keeping.decode(fact).created_ms <= self._clock.wall_ms() - self._window_ms

    def _checked(self, key: Key, fact: Fact) -> Claim:
        kept = keeping.decode(fact)
        if kept.fingerprint != key.fingerprint:
            raise IdempotencyKeyReused(
                f"the idempotency key {key.text!r} was used for another request; take a new key for each publish, and repeat"
                " a publish as it was"
            )
        return Claim(fact.key, kept, fact.version)

    async def _delete(self, claims: Sequence[Claim]) -> None:
        await self._meta.write([Delete(keeping.KIND, claim.digest, claim.version) for claim in claims])
        for claim in claims:
            if self._is_walked(claim.digest):
                self._count(claim.kept.principal, -1)

    # ── how many ──────────────────────────────────────────────────────────────────────────────────

    def _refusal(self, principal: str) -> TooManyIdempotencyKeys | None:
        """Why no new key can be taken."""
        if len(self) >= self._max_keys:
            has = f"{len(self)} idempotency keys are kept, which is the limit"
        elif self._counts[principal] >= self._max_keys * _SHARE_OF_ONE:
            has = f"{principal} has {self._counts[principal]} idempotency keys, which is the limit of one principal"
        else:
            return None
        return TooManyIdempotencyKeys(
            f"{has}; each is forgotten {self._window_ms // 1000} s after its use. Publish without a key, or later"
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
        """Count what is kept, and finish what a crash left open."""
        self.is_walking = True
        self.spawn(self._first_walk)

    async def _first_walk(self) -> None:
        try:
            while not self._is_counted and not self._is_closing:
                await self.walk_portion()
        except SparrowError as error:
            _LOG.warning("idempotency keys could not be read: %s", error.text)
        finally:
            self.is_walking = False  # `tick` goes on

    async def tick(self) -> None:
        """Walk over a portion when that is due."""
        now = self._clock.monotonic()
        if now >= self._portion_due_at and not self.is_walking:
            self._portion_due_at = now + self._window_ms / 1000 / _WALK_PARTS / PORTIONS
            await self.walk_portion()

    async def walk_portion(self) -> None:
        """Forget what is over among one portion of the keys; in the first walk, count it and finish what is open."""
        portion = self._next_portion
        self._counted_by_writers.clear()
        self._next_portion += 1  # a key that is written from here on is counted by its writer
        facts = await self._meta.scan(keeping.KIND, f"{portion:02x}")
        for start in range(0, len(facts), _VISITED_AT_ONCE):
            await self._visit(facts[start : start + _VISITED_AT_ONCE])
            await asyncio.sleep(0)
        if self._next_portion == PORTIONS:
            self._next_portion = 0
            self._is_counted = True

    async def _visit(self, facts: Sequence[Fact]) -> None:
        over_ms = self._clock.wall_ms() - self._window_ms
        over: list[Claim] = []
        for fact in facts:
            try:
                claim = Claim(fact.key, keeping.decode(fact), fact.version)
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
        except ConditionFailed:  # one of them was taken anew
            for claim in over:
                with suppress(ConditionFailed):
                    await self._delete([claim])

    async def _finish(self, claim: Claim) -> None:
        """A crash left it open: find out now, while the log behind it is short."""
        async with self.alone(claim.digest):
            try:
                fact = await self._meta.get(keeping.KIND, claim.digest)
                if fact is not None and fact.version == claim.version:
                    await self.look(claim)
                    await self.keep(claim)
            except SparrowError as error:
                _LOG.warning("a publish with an idempotency key is still open: %s", error.text)

    async def close(self) -> None:
        """Wait for what is under way."""
        self._is_closing = True
        while self._tasks:
            await asyncio.wait(set(self._tasks))
