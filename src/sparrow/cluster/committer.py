"""Group commit of one shard: batches, entries and journal records that wait together cost one
commit of the ledger.

Writers add to the open *group*. It is sealed, and the next one opened,

* at once when no other is under way and it is small (or none was uploaded for `linger_s`);
* when it has `seal_bytes`, or is old enough, while fewer than `MAX_IN_FLIGHT` are under way.

For batches that become an object, that is a time which grows with the rate of what is uploaded, so
that much data becomes few objects: stores charge for each upload, and none of them is quicker with
small ones. It ends when nothing was added for a quarter of it, since then all publishers are likely
to wait for this group.

A small payload goes into the ledger's row, while the budget for that lasts; a large one becomes an
object. Uploads run side by side, commits in the order of their numbers. The calls of a group are
settled in one step of the loop: logs get their new ends, futures are done, in the order of the
calls.

An upload that fails is repeated under the same key with the same bytes. If the object store stays
away for `inline_after_s`, what was accepted goes into the row, whatever its size; from then on no
more is accepted than the budget allows, until a trial upload succeeds.

A commit whose outcome is unknown is never guessed: the shard is taken again (`retake`), which
tells. A commit that the ledger refuses fails, and with it all that waits behind it, so that no log
has the second of two batches without the first.

Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import exp
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from sparrow.base.errors import InternalError, Overloaded, SparrowError
from sparrow.base.histogram import Histogram
from sparrow.base.ids import uuid7
from sparrow.cluster.errors import NotOwner, ObjectsUnavailable, OutcomeUnknown
from sparrow.cluster.ledger import Commit, EntryRow
from sparrow.cluster.manifest import VERSION, CommitManifest, LogRun, RunBuilder, encode_manifest
from sparrow.cluster.payloads import CommitPayload
from sparrow.cluster.settlement import settle_future

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.base.clock import Clock
    from sparrow.cluster.ledger import Ledger, Taken
    from sparrow.cluster.objects import Objects
    from sparrow.cluster.payloads import PayloadCache
    from sparrow.cluster.settlement import Settle

_LOG = logging.getLogger(__name__)
MAX_IN_FLIGHT: Final = 4
MAX_RETRY_S: Final = 2.0
ANSWER_TURNS: Final = 6
"""Turns of the loop after a commit in which the next group waits for what follows from it: a
queue's record that is committed is leased four turns later, and that lease is to come along.
"""

Retake = Callable[[], Awaitable["Taken"]]
"""Take the own shard again. Raises NotOwner if another node has it by now."""


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """Limits of the group commit; sizes in bytes, times in seconds."""

    inline_bytes: int = 64 << 10
    """Largest payload that goes into the ledger's row."""
    inline_bytes_per_s: int = 2 << 20
    """Budget of payloads in rows."""
    seal_bytes: int = 4 << 20
    linger_s: float = 0.005
    linger_grows_at: int = 1_250_000
    """Bytes per second from which on the linger grows in proportion, up to `max_linger_s`."""
    max_linger_s: float = 0.125
    max_waiting_bytes: int = 64 << 20
    """Uncommitted bytes; more are refused with Overloaded."""
    inline_after_s: float = 2.0


class CommittedLog(Protocol):
    """A log that adds runs to groups."""

    def committed(self, run: LogRun, payload: CommitPayload) -> None:
        """A run of new batches is kept: it becomes visible."""
        ...

    def replaced(self, runs: Sequence[LogRun], payload: CommitPayload) -> None:
        """Runs are kept, which replace earlier ones of the same offsets."""
        ...

    def uncommitted(self) -> None:
        """All that waits has failed: the next append gets the offset behind the last kept one."""
        ...


class CommittedJournal(Protocol):
    """The journal that adds records to groups."""

    def committed(self, first: int, count: int, payload: CommitPayload) -> None:
        """Records from number `first` on are kept."""
        ...


@dataclass(slots=True, eq=False)
class Group:
    """All that one commit will keep.

    Attributes:
        runs: the runs of logs, in the order in which they were begun; `replaces` with the log.
        entries: the last value of each changed entry; None: it is deleted.
        settlements: what to call when the outcome is known, in the order of the calls.
        added_at: when batches were last added.
        payload: set when it is sealed.
        is_object: the payload goes into an object, whatever its size.
    """

    runs: list[tuple[CommittedLog, RunBuilder, bool]] = field(default_factory=list)
    last_runs: dict[CommittedLog, RunBuilder] = field(default_factory=dict)
    entries: dict[tuple[bytes, bytes], EntryRow | None] = field(default_factory=dict)
    journal_first: int = 0
    journal: list[bytes] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)
    settlements: list[Settle] = field(default_factory=list)
    begun_at: float = 0.0
    added_at: float = 0.0
    payload_bytes: int = 0
    entry_bytes: int = 0
    payload: bytes | bytearray = b""
    is_object: bool = False
    key: str = ""
    key_ms: int = 0
    uploaded: asyncio.Task[bool] | None = None

    @property
    def size_bytes(self) -> int:
        return self.payload_bytes + self.entry_bytes

    @property
    def is_empty(self) -> bool:
        return not (self.runs or self.entries or self.journal or self.settlements)


class _Budget:
    """A token bucket of bytes, full at the start; it holds four seconds of its rate."""

    def __init__(self, bytes_per_s: int, clock: Clock) -> None:
        self._rate = bytes_per_s
        self._left = 4.0 * bytes_per_s
        self._clock = clock
        self._at = clock.monotonic()

    def has(self, size_bytes: int) -> bool:
        now = self._clock.monotonic()
        self._left = min(4.0 * self._rate, self._left + (now - self._at) * self._rate)
        self._at = now
        return self._left >= size_bytes

    def spend(self, size_bytes: int) -> None:
        self._left -= size_bytes


class _Rate:
    """The bytes per second of about the last second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = clock.monotonic()
        self._sum = 0.0

    def add(self, size_bytes: int) -> None:
        self._sum = self.bytes_per_s() + size_bytes
        self._at = self._clock.monotonic()

    def bytes_per_s(self) -> float:
        return self._sum * exp(self._at - self._clock.monotonic())


class ShardCommitter:
    """The group commit of a shard that this node owns.

    Args:
        seq: number of the shard's last commit.
        retake: see `Retake`.
        when_lost: called once, when another node owns the shard.
    """

    def __init__(
        self,
        ledger: Ledger,
        objects: Objects,
        cache: PayloadCache,
        clock: Clock,
        *,
        shard: int,
        epoch: int,
        seq: int,
        retake: Retake,
        when_lost: Callable[[SparrowError], None],
        options: CommitOptions | None = None,
    ) -> None:
        self._ledger = ledger
        self._objects = objects
        self._cache = cache
        self._clock = clock
        self._shard = shard
        self._retake = retake
        self._when_lost = when_lost
        self._options = options or CommitOptions()
        self._budget = _Budget(self._options.inline_bytes_per_s, clock)
        self._upload_rate = _Rate(clock)
        self.epoch = epoch
        """The shard's epoch, as the ledger checks it, and as Kafka clients see it."""
        self.seq = seq
        self.failure: SparrowError | None = None
        """The reason why nothing is committed here any more."""
        self.objects_failure: ObjectsUnavailable | None = None
        """The last error of the object store, while it does not take uploads."""
        self.commit_times = Histogram()
        self.commits = self.uploads = self.uploaded_bytes = self.inline_bytes = 0
        self.journal: CommittedJournal | None = None
        self._open = Group()
        self._in_flight: list[Group] = []
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._is_closed = False
        self._last_upload_at = float("-inf")
        self._probe: asyncio.Task[None] | None = None
        self._sealed: asyncio.Queue[Group] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    # ── for writers ──

    def admit(self, size_bytes: int) -> Group:
        """Return the open group, to which the caller adds `size_bytes` in the same step of the
        loop.

        Raises:
            NotOwner: the shard is lost, or the committer is closed.
            Overloaded: too much waits.
        """
        self._refuse_if_lost()
        if self._waiting_bytes and self._waiting_bytes + size_bytes > self._options.max_waiting_bytes:
            raise Overloaded(
                f"{self._waiting_bytes} bytes wait to be committed to {self._ledger.location}; try again"
            )
        self._start()
        self._waiting_bytes += size_bytes
        group = self._open
        if group.size_bytes >= self._options.seal_bytes and len(self._in_flight) < MAX_IN_FLIGHT:
            self._seal_open()  # not later: much may come within a turn of the loop
            group = self._open
        was_small = group.size_bytes <= self._options.inline_bytes
        if group.is_empty:
            group.begun_at = self._clock.monotonic()
            self._changed.set()
        elif was_small and group.size_bytes + size_bytes > self._options.inline_bytes:
            self._changed.set()  # from now on it is an object, with a time of its own
        elif group.size_bytes + size_bytes >= self._options.seal_bytes:
            self._changed.set()
        return group

    def admit_batches(self, size_bytes: int) -> Group:
        """Return the open group as `admit`, for `size_bytes` of batches.

        Raises:
            Overloaded: also while the object store is away and the budget of the ledger is spent.
        """
        if self.objects_failure is not None and not self._budget.has(
            self._open.payload_bytes + sum(each.payload_bytes for each in self._in_flight) + size_bytes
        ):
            raise Overloaded(f"the object store is away: {self.objects_failure.text}; try again")
        group = self.admit(size_bytes)
        group.payload_bytes += size_bytes
        group.added_at = self._clock.monotonic()
        return group

    def _refuse_if_lost(self) -> None:
        if self.failure is not None:
            raise type(self.failure)(self.failure.text)

    def _start(self) -> None:
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(self._seal_groups()), loop.create_task(self._commit_groups())]

    async def replace(
        self, runs: Sequence[tuple[CommittedLog, RunBuilder]], *, is_object: bool = False
    ) -> None:
        """Put runs in the place of committed ones of the same offsets, in one commit. Their object
        is uploaded before they get in line, so that publishes do not wait for it.

        Args:
            is_object: the runs become an object, whatever their size.

        Raises:
            ObjectsUnavailable: they must become an object, and the object store is away.
            all that a commit raises; nothing has changed then.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group = Group([(log, run, True) for log, run in runs], is_object=is_object)
        group.payload_bytes = sum(len(run.data) for _, run in runs)
        group.settlements.append(settle_future(done, None))
        self._prepare(group)
        is_uploaded = group.uploaded is not None and await group.uploaded
        if is_object and group.payload and not is_uploaded:
            raise ObjectsUnavailable("the object store is away; nothing was replaced")
        self._refuse_if_lost()
        self._start()
        self._waiting_bytes += group.size_bytes
        self._put_in_line(group)
        await done

    def add_entries(
        self, puts: Sequence[EntryRow], deletes: Sequence[tuple[bytes, bytes]], settle: Settle
    ) -> None:
        """Change entries. Raises as `admit`."""
        size = sum(len(each.kind) + len(each.key) + len(each.value) for each in puts)
        size += sum(len(kind) + len(key) for kind, key in deletes)
        group = self.admit(size)
        group.entry_bytes += size
        for each in puts:
            group.entries[each.kind, each.key] = each
        for key in deletes:
            group.entries[key] = None
        group.settlements.append(settle)

    def release(self, payload: CommitPayload, uses: int = 1) -> None:
        """Count down the uses of a payload; without any, the next commit removes it."""
        payload.live -= uses
        if payload.live <= 0:
            self._open.drops.append(payload.seq)
            self._cache.forget(payload)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait to be committed."""
        return self._waiting_bytes

    def drop(self, commits: Sequence[int]) -> None:
        """Let the next commit remove rows that are not used any more."""
        self._open.drops += commits

    async def settled(self) -> None:
        """Wait until all that waits now is committed, or has failed."""
        groups = self._in_flight if self._open.is_empty else [self._open]
        if groups:
            done = asyncio.Event()
            groups[-1].settlements.append(lambda _: done.set())
            await done.wait()

    # ── sealing ──

    async def _seal_groups(self) -> None:
        while True:
            await self._until_due()
            await asyncio.sleep(0)  # what this turn of the loop still adds comes along
            if not self._open.is_empty:
                self._seal_open()

    def _seal_open(self) -> None:
        group, self._open = self._open, Group()
        if self._prepare(group):
            self._last_upload_at = self._clock.monotonic()
            self._upload_rate.add(len(group.payload))
        self._put_in_line(group)

    def _put_in_line(self, group: Group) -> None:
        self._in_flight.append(group)
        self._sealed.put_nowait(group)

    async def _until_due(self) -> None:
        while True:
            self._changed.clear()
            due_in = self._due_in()
            if due_in is not None and due_in <= 0:
                return
            try:
                async with asyncio.timeout(due_in):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _due_in(self) -> float | None:
        """Return the seconds until the open group is sealed; None: something must happen first."""
        group, options = self._open, self._options
        if group.is_empty or len(self._in_flight) >= MAX_IN_FLIGHT:
            return None
        if group.size_bytes >= options.seal_bytes or self._is_closed:
            return 0
        if group.payload_bytes <= options.inline_bytes:
            return None if self._in_flight else 0
        begun_at = group.begun_at if self._in_flight else self._last_upload_at
        linger_s = self._linger_s()
        due_at = min(begun_at + linger_s, group.added_at + max(options.linger_s, linger_s / 4))
        return due_at - self._clock.monotonic()

    def _linger_s(self) -> float:
        options = self._options
        growth = max(1.0, self._upload_rate.bytes_per_s() / options.linger_grows_at)
        return min(options.linger_s * growth, max(options.linger_s, options.max_linger_s))

    def _prepare(self, group: Group) -> bool:
        """Join the payload, and begin to upload it if it becomes an object. Return True if so."""
        runs = group.runs
        group.payload = runs[0][1].data if len(runs) == 1 else b"".join([run.data for _, run, _ in runs])
        size = len(group.payload)
        fits = not group.is_object and size <= self._options.inline_bytes and self._budget.has(size)
        if not size or fits or self.objects_failure is not None:
            return False
        group.key_ms = self._clock.wall_ms()
        group.key = object_key("w", group.key_ms)
        group.uploaded = asyncio.get_running_loop().create_task(self._upload(group))
        return True

    async def _upload(self, group: Group) -> bool:
        """Upload the payload. Return False if it goes into the row instead."""
        begun, delay = self._clock.monotonic(), 0.05
        while True:
            try:
                await self._objects.put(group.key, [memoryview(group.payload)])
            except ObjectsUnavailable as error:
                has_waited = self._clock.monotonic() - begun > self._options.inline_after_s
                if has_waited or self.objects_failure is not None:
                    self._lose_objects(error)
                    return False
                await asyncio.sleep(delay)
                delay = min(2 * delay, MAX_RETRY_S)
            else:
                self.uploads += 1
                self.uploaded_bytes += len(group.payload)
                return True

    def _lose_objects(self, error: ObjectsUnavailable) -> None:
        if self.objects_failure is None:
            _LOG.error("the object store is away, small publishes go to the ledger: %s", error.text)
        self.objects_failure = error
        if self._probe is None:
            self._probe = asyncio.get_running_loop().create_task(self._find_objects())

    async def _find_objects(self) -> None:
        while True:
            await asyncio.sleep(MAX_RETRY_S / 2)
            try:
                await self._objects.put("probe", [b"sparrow"])
            except ObjectsUnavailable as error:
                self.objects_failure = error
            else:
                break
        self.objects_failure = None
        self._probe = None
        _LOG.info("the object store is back")

    # ── committing ──

    async def _commit_groups(self) -> None:
        while True:
            group = await self._sealed.get()
            try:
                await self._commit(group)
            except SparrowError as error:
                _LOG.warning("a commit failed, and what waits behind it: %s", error.text)
                self._fail(error)
            except Exception:  # noqa: BLE001 - a bug must not leave writers waiting for ever
                _LOG.exception("a commit failed")
                self._fail(InternalError("A commit failed; the broker's log has the reason."))

    async def _commit(self, group: Group) -> None:
        if group not in self._in_flight:
            return  # one before it failed, and took it along
        is_object = group.uploaded is not None and await group.uploaded
        commit, runs = self._build(group, is_object=is_object)
        begun = perf_counter()
        await self._send(commit)
        self.commit_times.observe(perf_counter() - begun)
        self.commits += 1
        if not is_object:
            self.inline_bytes += len(group.payload)
        self.seq = commit.seq
        self._settle(group, commit, runs)
        if self._sealed.empty():
            for _ in range(ANSWER_TURNS):
                await asyncio.sleep(0)
        self._changed.set()

    def _build(self, group: Group, *, is_object: bool) -> tuple[Commit, list[LogRun]]:
        runs, position = [], 0
        for _, run, replaces in group.runs:
            runs.append(run.build(position, replaces=replaces))
            position += len(run.data)
        has_manifest = bool(runs or group.journal)
        if group.payload and not is_object:
            self._budget.spend(len(group.payload))
        commit = Commit(
            self.seq + 1,
            self._clock.wall_ms(),
            encode_manifest(CommitManifest(VERSION, runs, group.journal_first, group.journal))
            if has_manifest
            else None,
            bytes(group.payload) if group.payload and not is_object else None,
            group.key if is_object else None,
            group.key_ms,
            [each for each in group.entries.values() if each is not None],
            [key for key, each in group.entries.items() if each is None],
            group.drops,
        )
        return commit, runs

    async def _send(self, commit: Commit) -> None:
        """Commit, and again if the outcome is unknown and it did not happen.

        Raises:
            NotOwner: another node owns the shard.
            DiskFull, LedgerRefused: nothing happened.
        """
        while True:
            try:
                if await self._ledger.commit(self._shard, self.epoch, commit):
                    return
            except OutcomeUnknown as error:
                _LOG.warning("the outcome of a commit is unknown, the shard is taken again: %s", error.text)
                taken = await self._retake()
                self.epoch = taken.epoch
                if taken.seq == commit.seq:
                    return
                if taken.seq == commit.seq - 1:
                    continue
            raise self.lose(NotOwner("another broker owns the data by now; connect again"))

    def _settle(self, group: Group, commit: Commit, runs: list[LogRun]) -> None:
        payload = CommitPayload(commit.seq, commit.at_ms, commit.object_key, len(group.payload))
        if commit.manifest is not None:
            payload.live = len(runs) + bool(group.journal)
            if group.payload:
                self._cache.add(payload, group.payload)
        self._in_flight.remove(group)
        self._waiting_bytes -= group.size_bytes
        replacements: dict[CommittedLog, list[LogRun]] = {}
        for (log, _, replaces), run in zip(group.runs, runs, strict=True):
            if replaces:
                replacements.setdefault(log, []).append(run)
            else:
                log.committed(run, payload)
        for log, replaced in replacements.items():
            log.replaced(replaced, payload)
        if group.journal and self.journal is not None:
            self.journal.committed(group.journal_first, len(group.journal), payload)
        for settle in group.settlements:
            settle(None)

    # ── failing ──

    def _fail(self, error: SparrowError) -> None:
        """Fail all that waits, in its order."""
        groups = [*self._in_flight, self._open]
        self._in_flight, self._open = [], Group()
        self._open.drops = [seq for group in groups for seq in group.drops]
        self._waiting_bytes = 0
        self._changed.set()
        for log in dict.fromkeys(log for group in groups for log, _, _ in group.runs):
            log.uncommitted()
        for group in groups:
            if group.uploaded is not None:
                group.uploaded.cancel()
            for settle in group.settlements:
                settle(error)

    def lose(self, error: SparrowError) -> SparrowError:
        """Commit nothing any more: the shard is another node's, or may be. Return the error."""
        if self.failure is None:
            self.failure = error
            self._fail(error)
            self._when_lost(error)
        return error

    async def close(self) -> None:
        """Commit what waits, and end. Again: no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        self._changed.set()
        await self.settled()
        await self.abandon(NotOwner("the broker stops; connect again"))

    async def abandon(self, error: SparrowError) -> None:
        """End without committing what waits, which fails with `error`. Again: no effect."""
        self._is_closed = True
        if self.failure is None:
            self.failure = error
            self._fail(error)
        for task in [*self._tasks, *filter(None, [self._probe])]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def object_key(kind: str, now_ms: int) -> str:
    """Return a new key: below the hour in which it was made, so that old ones are found."""
    from datetime import UTC, datetime

    hour = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%d%H")
    return f"{kind}/{hour}/{uuid7(now_ms)}"
