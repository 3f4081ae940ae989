"""A subscription: reads the partitions that selectors name, alone or as a member of a group.

It resolves names and patterns to partitions (including topics that are created later), finds the
offset where each begins, reads them through one `Reader`, and reports gained and lost partitions to
its listener. In a group the coordinator decides which partitions these are; alone it is all of
them.

The first offset of a partition is the first that applies: an explicit offset of the selector (used
once), the group's committed offset, the selector's `start`. A partition that was created after the
subscription begins at its beginning if `start` says "end", because all its records are newer than
the subscription.

Topics are resolved in slices, so that other tasks run while patterns are matched with very many
topics (`_look`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct, field

from sparrow.base.errors import InvalidArgument, OffsetOutOfRange, SparrowError, UnknownTopic
from sparrow.broker.names import compile_pattern
from sparrow.broker.reading.positions import AT_END, BEGINNING, END, StartPosition, check_start, locate
from sparrow.broker.reading.reader import Problem, ReadDelivery, Reader
from sparrow.broker.topics.name_matches import SLICE

if TYPE_CHECKING:
    from sparrow.broker.groups.native.coordinator import Membership
    from sparrow.broker.topics.registry import Topic, TopicRegistry
    from sparrow.records.topic_partition import TopicPartition

DROPPED = "DROPPED"
MAX_PATTERNS: Final = 1_000
"""The limit of patterns in one subscription."""
_COMPILED_PER_SLICE: Final = 10
"""Patterns compiled before other tasks run; each takes as long as matching a hundred names."""


class Selector(Struct, frozen=True):
    """A topic by name, or all topics that match a pattern."""

    topic: str
    is_pattern: bool = False
    start: StartPosition = AT_END
    offsets: Mapping[int, int] = field(default_factory=dict)
    """Explicit offsets by partition."""
    partitions: frozenset[int] | None = None
    """The only partitions of the topic to read; None: all. Not in a group, which assigns them."""


class SubscriptionListener(Protocol):
    """Receiver of the changes of a subscription. Called on the loop; must not block."""

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:
        """Report partitions (topic, partition, first offset) that are read from now on."""
        ...

    def revoked(self, epoch: int, partitions: list[TopicPartition], reason: str) -> None:
        """Report partitions that are no longer read; reason "" asks for
        `Subscription.confirm_revoked`.
        """
        ...

    def ended(self, error: SparrowError) -> None:
        """Report that the subscription has ended."""
        ...


class Subscription:
    """A subscription, made by `RecordService.subscribe`. Loop thread only; one `read` or `wait` at
    a time.

    Args:
        ensure: ensures that topics selected by name exist and may be read, or raises.
        allowed: returns True if a topic that a pattern matches may be read.
        refused: returns the error that forbids reading topics selected by name, or None.
        watch_rules: calls its argument after each change of the access rules; returns a function
            that stops that.
        committed: returns the group's committed offset of a partition, or None.
        committed_only: leave out records of open and aborted transactions.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        listener: SubscriptionListener,
        ensure: Callable[[Sequence[str]], Awaitable[None]],
        allowed: Callable[[str], bool],
        committed: Callable[[TopicPartition], Awaitable[int | None]],
        *,
        refused: Callable[[Sequence[str]], SparrowError | None] = lambda _: None,
        watch_rules: Callable[[Callable[[], None]], Callable[[], None]] = lambda _: lambda: None,
        committed_only: bool = False,
    ) -> None:
        self._topics = topics
        self._listener = listener
        self._ensure = ensure
        self._allowed = allowed
        self._committed = committed
        self._refused = refused
        self._reader = Reader(committed=committed_only)
        self._selectors: dict[str, Selector] = {}
        self._meant_by: dict[str, Selector] = {}
        """The topics found at the last look, each with its selector: by name, else the first
        pattern.
        """
        self._partition_counts: dict[str, int] = {}
        """The number of partitions of each topic when it was selected: those are older than the
        subscription.
        """
        self._spent_offsets: set[TopicPartition] = set()
        self._owned: dict[TopicPartition, int] = {}
        """Partitions of this subscription, each with the epoch at which it was assigned."""
        self._unlocated: deque[TopicPartition] = deque()
        self._locating: asyncio.Task[None] | None = None
        self._membership: Membership | None = None
        self._epoch = 0
        self._wanted: list[str] = []
        self._is_closed = False
        self._looks = asyncio.Lock()
        """Allows one look at a time, so that no older result replaces a newer one."""
        self._looking: asyncio.Task[None] | None = None
        self._must_look = False
        """True if something has changed since the current look began."""
        self._unwatch = topics.watch(self._topic_changed)
        self._unwatch_rules = watch_rules(self._rules_changed)
        self._leaving: asyncio.Task[None] | None = None

    # ── start and close ───────────────────────────────────────────────────────────────────────────

    @property
    def member_id(self) -> str:
        return self._membership.member_id if self._membership else ""

    @property
    def member_epoch(self) -> int:
        return self._membership.epoch if self._membership else -1

    async def start(self, selectors: Sequence[Selector]) -> None:
        """Read all topics that the selectors name, outside any group."""
        await self._select(selectors)
        self._look_soon()

    async def start_in_group(
        self, selectors: Sequence[Selector], join: Callable[[list[str], Subscription], Membership]
    ) -> None:
        """Join a group; `join` gets the topics and the callbacks (this object)."""
        await self._select(selectors)
        self._wanted = sorted(self._meant_by)
        self._membership = join(self._wanted, self)

    async def close(self, *, leave: bool = True) -> None:
        """Stop. leave=False: the connection was lost; the membership stays until its session times
        out.
        """
        if self._is_closed:
            return
        self._stop()
        if self._membership is not None:
            if leave:
                await self._membership.leave()
            else:
                self._membership.detach()

    def _stop(self) -> None:
        self._is_closed = True
        self._unwatch()
        self._unwatch_rules()
        self._reader.close()
        self._owned.clear()
        for task in (self._locating, self._looking):
            if task is not None:
                task.cancel()

    # ── selecting ─────────────────────────────────────────────────────────────────────────────────

    async def update(self, add: Sequence[Selector], drop: Sequence[str]) -> None:
        """Add and drop selectors of a live subscription.

        Raises:
            InvalidArgument: a name to drop was not selected.
            NotAuthorized, UnknownTopic: a topic to add may not be read, or does not exist.
        """
        for name in drop:
            if name not in self._selectors:
                raise InvalidArgument(f"{name!r} is not subscribed to, so it cannot be dropped")
        await self._select(add, drop)
        self._reconcile()

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            self._selectors.pop(name, None)

    def _forget_dropped(self) -> None:
        """Forget the first offsets of topics that no selector names any more."""
        meant = self._selectors.keys() | self._meant_by.keys()
        self._spent_offsets = {key for key in self._spent_offsets if key[0] in meant}
        self._partition_counts = {
            name: count for name, count in self._partition_counts.items() if name in meant
        }

    async def _select(self, selectors: Sequence[Selector], drop: Sequence[str] = ()) -> None:
        patterns = {s.topic for s in (*self._selectors.values(), *selectors) if s.is_pattern}
        if len(patterns) > MAX_PATTERNS:
            raise InvalidArgument(
                f"a subscription has {MAX_PATTERNS} patterns at most, not {len(patterns)}; join "
                "some, or subscribe twice"
            )
        for number, selector in enumerate(selectors):
            check_start(selector.start)
            if selector.is_pattern:
                compile_pattern(selector.topic)
                if number % _COMPILED_PER_SLICE == _COMPILED_PER_SLICE - 1:
                    await asyncio.sleep(0)
        names = [selector.topic for selector in selectors if not selector.is_pattern]
        await self._ensure(names)
        refusal = self._refused(
            names
        )  # the rules may have changed while topics were created, and these were not checked then
        if refusal is not None:
            raise refusal
        for selector in selectors:
            self._selectors[selector.topic] = selector
        await self._look()
        for name in self._meant_by:
            topic = self._topics.find(name)
            if topic is not None:
                self._partition_counts.setdefault(name, len(topic.partitions))
        if drop:
            self._drop(drop)
            await self._look()
            self._forget_dropped()

    # ── resolving topics ──────────────────────────────────────────────────────────────────────────

    async def _look(self) -> None:
        """Find the topics of the selectors, in slices. Changes meanwhile are found by the next look
        (`_look_soon`).
        """
        async with self._looks:
            self._meant_by = await self._find_meant()

    async def _find_meant(self) -> dict[str, Selector]:
        selectors = list(self._selectors.values())
        meant = {s.topic: s for s in selectors if not s.is_pattern and self._topics.find(s.topic)}
        done = 0
        for selector in selectors:
            if not selector.is_pattern:
                continue
            if not self._topics.knows_pattern(selector.topic):
                done += max(len(self._topics), SLICE // _COMPILED_PER_SLICE)
            for name in await self._topics.learn_pattern(selector.topic):
                if name not in meant and self._allowed(name):
                    meant[name] = selector
                done += 1
                if done >= SLICE:
                    done = 0
                    await asyncio.sleep(0)
            if done >= SLICE:
                done = 0
                await asyncio.sleep(0)
        return {name: selector for name, selector in meant.items() if self._topics.find(name)}

    def _look_soon(self) -> None:
        """Look in the next iteration of the loop, and again as long as something changes
        meanwhile.
        """
        self._must_look = True
        if self._looking is None and not self._is_closed:
            self._looking = asyncio.get_running_loop().create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        try:
            while self._must_look:
                self._must_look = False
                await self._look()
                self._reconcile()
        finally:
            self._looking = None

    @property
    def _has_patterns(self) -> bool:
        return any(selector.is_pattern for selector in self._selectors.values())

    def _selector_of(self, topic: str) -> Selector:
        """Return the selector of a topic: by name, else the first pattern that matches."""
        exact = self._selectors.get(topic)
        if exact is not None and not exact.is_pattern:
            return exact
        return self._meant_by.get(topic) or Selector(topic)

    def _topic_changed(self, topic: Topic) -> None:
        if topic.is_deleted:
            self._partition_counts.pop(topic.name, None)
            lost = [key for key in self._owned if key[0] == topic.name]
            if lost:
                self._lose(lost, UnknownTopic.code)
        # Topics often come in crowds: look once for all that came in this iteration of the loop.
        if topic.name in self._selectors or self._has_patterns:
            self._look_soon()

    def _rules_changed(self) -> None:
        """Check the rights again: end if a named topic may not be read any more; drop topics of
        patterns that may not.
        """
        if self._is_closed:
            return
        refusal = self._refused([s.topic for s in self._selectors.values() if not s.is_pattern])
        if refusal is None:
            self._look_soon()
            return
        membership, self._membership = self._membership, None
        self._stop()
        if membership is not None:
            self._leaving = asyncio.get_running_loop().create_task(membership.leave())
        self._listener.ended(refusal)

    def _reconcile(self) -> None:
        """Compare the topics to read with those that are read, and add and drop partitions."""
        if self._is_closed:
            return
        wanted = sorted(name for name in self._meant_by if self._topics.find(name))
        if self._membership is not None:
            if wanted != self._wanted:
                self._wanted = wanted
                self._membership.update(wanted)
            return
        keys = {(name, p) for name in wanted for p in self._meant(name)}
        dropped = [key for key in self._owned if key not in keys]
        if dropped:
            self._lose(dropped, DROPPED)
        added = sorted(keys - self._owned.keys())
        if added:
            self._epoch += 1
            self.on_assign(self._epoch, added)

    def _meant(self, topic: str) -> Iterable[int]:
        """Return the partitions of a topic that its selector includes."""
        every = range(len(self._topics.get(topic).partitions))
        chosen = self._selector_of(topic).partitions
        return every if chosen is None else [index for index in every if index in chosen]

    # ── assignment ────────────────────────────────────────────────────────────────────────────────

    def on_assign(self, epoch: int, added: Sequence[TopicPartition]) -> None:
        """Accept assigned partitions; find the first offset of each, then read it."""
        if self._is_closed:
            return
        self._epoch = epoch
        for key in added:
            self._owned[key] = epoch
            self._unlocated.append(key)
        if self._locating is None or self._locating.done():
            self._locating = asyncio.get_running_loop().create_task(self._locate_all())

    def on_revoke(self, epoch: int, partitions: Sequence[TopicPartition]) -> None:
        """Give partitions back to the group; the listener's side confirms when it is done with
        them.
        """
        self._epoch = epoch
        self._forget(partitions)
        self._listener.revoked(epoch, list(partitions), "")

    def on_fenced(self, error: SparrowError) -> None:
        """End the subscription: the group has expelled this member."""
        if not self._is_closed:
            self._membership = None
            self._stop()
            self._listener.ended(error)

    def confirm_revoked(self, epoch: int, partitions: Sequence[TopicPartition]) -> None:
        """Tell the group that the client is done with revoked partitions."""
        if self._membership is not None:
            self._membership.confirm_revoked(epoch, partitions)

    def heartbeat(self) -> None:
        """Record a sign of life of the client."""
        if self._membership is not None:
            self._membership.heartbeat()

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commit offsets as this member; durable when it returns.

        Raises:
            InvalidArgument: the subscription is in no group.
            StaleMember: a partition is no longer assigned to this member.
        """
        if self._membership is None:
            raise InvalidArgument("only a member of a group commits; subscribe with a group")
        await self._membership.commit(offsets)

    def _lose(self, keys: list[TopicPartition], reason: str) -> None:
        self._forget(keys)
        self._epoch += self._membership is None
        self._listener.revoked(self._epoch, keys, reason)

    def _forget(self, keys: Sequence[TopicPartition]) -> None:
        for key in keys:
            self._owned.pop(key, None)
            self._reader.drop(key)

    async def _locate_all(self) -> None:
        """Find the offset of each new partition; announce and read those that are still assigned
        then.
        """
        while self._unlocated:
            added: list[tuple[str, int, int]] = []
            epoch = self._epoch
            while self._unlocated:
                key = self._unlocated.popleft()
                got_at = self._owned.get(key)
                try:
                    offset = await self._first_offset(key)
                except SparrowError as error:
                    if self._owned.get(key) == got_at is not None:
                        self._lose([key], error.code)
                    continue
                if got_at is not None and self._owned.get(key) == got_at:
                    added.append((*key, offset))
            # No await lies between this check and the announcement.
            current = [(t, p, o) for t, p, o in added if (t, p) in self._owned]
            for topic, partition, offset in current:
                self._reader.add(self._topics.get(topic).partition(partition), offset)
            if current:
                self._listener.assigned(max(epoch, self._epoch), current)

    async def _first_offset(self, key: TopicPartition) -> int:
        topic, index = key
        selector = self._selector_of(topic)
        explicit = selector.offsets.get(index)
        if explicit is not None and key not in self._spent_offsets:
            self._spent_offsets.add(key)
            return explicit
        partition = self._topics.get(topic).partition(index)
        await partition.until_current()  # the offsets of a group may be another broker's by now
        committed = await self._committed(key)
        if committed is not None:
            return committed
        start = selector.start
        if start.at == END and index >= self._partition_counts.get(topic, 0):
            start = StartPosition(BEGINNING)
        offset, _ = await locate(partition, start)
        return offset

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    @property
    def is_ready(self) -> bool:
        """True if `wait` would return at once."""
        return self._reader.is_ready

    async def wait(self) -> None:
        """Wait until there may be something to read, or the subscription ended: for callers that
        must find memory before they read.
        """
        await self._reader.wait()

    async def read(
        self, max_bytes: int, *, max_records: int = 0, max_wait_ms: int | None = None
    ) -> list[ReadDelivery]:
        """Return deliveries of at most about `max_bytes` and `max_records` (0: no limit), at least
        a batch; [] if nothing came in time (None: wait without end) or the subscription ended. See
        `reader` for what may be done with the result.
        """
        loop = asyncio.get_running_loop()
        deadline = None if max_wait_ms is None else loop.time() + max_wait_ms / 1000
        while not self._is_closed:
            remaining_ms = None if deadline is None else max(0, round((deadline - loop.time()) * 1000))
            found = await self._reader.read(max_bytes, max_records=max_records, max_wait_ms=remaining_ms)
            deliveries = [item for item in found if isinstance(item, ReadDelivery)]
            for item in found:
                if isinstance(item, Problem):
                    self._solve(item)
            if deliveries or (remaining_ms is not None and remaining_ms == 0):
                return deliveries
        return []

    def _solve(self, problem: Problem) -> None:
        """Handle a partition that could not be read: continue where its log begins or ends, or drop
        it; always report that.
        """
        key = (problem.topic, problem.partition)
        topic = self._topics.find(problem.topic)
        if key not in self._owned or topic is None:
            return
        if not isinstance(problem.error, OffsetOutOfRange):
            self._lose([key], problem.error.code)
            return
        partition = topic.partition(problem.partition)
        start, end = partition.start_offset, partition.visible_end
        offset = start if problem.offset < start else end
        self._listener.revoked(self._epoch, [key], problem.error.code)
        self._reader.add(partition, offset)
        self._listener.assigned(self._epoch, [(*key, offset)])
