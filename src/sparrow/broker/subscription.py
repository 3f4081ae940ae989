"""A subscription: selectors in, deliveries out, alone or as a member of a group.

It resolves names and patterns to partitions (topics that come later included), finds where to begin, reads them through one
`Reader`, and tells its listener what it got and lost. In a group the coordinator decides which partitions these are;
alone it is all of them.

Where a partition begins, first that applies: an explicit offset of the selector (used once), the group's committed offset,
the selector's `start`. A partition that came into being after the subscription begins at its beginning where `start` says
"end", because nothing in it is older than the wish to read it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sparrow.base.errors import InvalidArgument, OffsetOutOfRange, SparrowError, UnknownTopic
from sparrow.broker.positions import AT_END, BEGINNING, END, Start, check_start, locate
from sparrow.broker.reader import Delivery, Key, Problem, Reader
from sparrow.broker.topic_names import compile_pattern

if TYPE_CHECKING:
    from sparrow.broker.groups.native.coordinator import Membership
    from sparrow.broker.topics import Topic, Topics

DROPPED = "DROPPED"


@dataclass(frozen=True, slots=True)
class Selector:
    """What to subscribe to: a topic by name, or all that match a pattern."""

    topic: str
    is_pattern: bool = False
    start: Start = AT_END
    offsets: Mapping[int, int] = field(default_factory=dict)
    """Explicit positions by partition."""
    partitions: frozenset[int] | None = None
    """Only these of the topic's partitions; None: all. Not in a group, which shares them out."""


class SubscriptionListener(Protocol):
    """Who is told of changes. Called on the loop; must not block."""

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:
        """Partitions (topic, partition, first offset) that are read from here on."""
        ...

    def revoked(self, epoch: int, partitions: list[Key], reason: str) -> None:
        """Partitions that are read no more; reason "" asks for `Subscription.confirm_revoked`."""
        ...

    def ended(self, error: SparrowError) -> None:
        """The subscription is over."""
        ...


class Subscription:
    """Made by `Broker.subscribe`. Loop thread only; one `read` or `wait` at a time.

    Args:
        ensure: makes sure that topics selected by name exist and may be read, or raises.
        allowed: whether a topic that a pattern matches may be read.
        refused: why the subscription may not go on with topics selected by name, or None.
        watch_rules: calls back after each change of the access rules; returns what ends it.
        committed: the group's committed offset of a partition, or None.
        committed_only: leave out records of transactions that are open or were aborted.
    """

    def __init__(
        self,
        topics: Topics,
        listener: SubscriptionListener,
        ensure: Callable[[Sequence[str]], Awaitable[None]],
        allowed: Callable[[str], bool],
        committed: Callable[[Key], int | None],
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
        self._partition_counts: dict[str, int] = {}
        """Partitions of each topic at the time it was selected: what is older than the subscription."""
        self._spent_offsets: set[Key] = set()
        self._owned: dict[Key, int] = {}
        """Partitions that are ours, each with the epoch at which we got it."""
        self._to_place: deque[Key] = deque()
        self._placing: asyncio.Task[None] | None = None
        self._membership: Membership | None = None
        self._epoch = 0
        self._wanted: list[str] = []
        self._is_closed = False
        self._is_reconciling = False
        self._unwatch = topics.watch(self._topic_changed)
        self._unwatch_rules = watch_rules(self._rules_changed)
        self._leaving: asyncio.Task[None] | None = None

    # ── life ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def member_id(self) -> str:
        return self._membership.member_id if self._membership else ""

    @property
    def member_epoch(self) -> int:
        return self._membership.epoch if self._membership else -1

    async def start(self, selectors: Sequence[Selector]) -> None:
        """Read all that the selectors mean, outside any group."""
        await self._select(selectors)
        asyncio.get_running_loop().call_soon(self._reconcile)

    async def start_in_group(
        self, selectors: Sequence[Selector], join: Callable[[list[str], Subscription], Membership]
    ) -> None:
        """Become a member of a group; `join` gets the topics and the callbacks (this object)."""
        await self._select(selectors)
        self._wanted = self._matching_topics()
        self._membership = join(self._wanted, self)

    async def close(self, *, leave: bool = True) -> None:
        """Stop. leave=False: the connection was lost; the membership stays until its session times out."""
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
        if self._placing is not None:
            self._placing.cancel()

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
        await self._select(add)
        if drop:
            self._drop(drop)
        self._reconcile()

    def _drop(self, names: Sequence[str]) -> None:
        """A topic that no selector means any more begins anew when it is selected again."""
        for name in names:
            self._selectors.pop(name, None)
        self._spent_offsets = {key for key in self._spent_offsets if self._is_selected(key[0])}
        self._partition_counts = {
            name: count for name, count in self._partition_counts.items() if self._is_selected(name)
        }

    def _is_selected(self, topic: str) -> bool:
        return topic in self._selectors or any(
            s.is_pattern and compile_pattern(s.topic).match(topic) for s in self._selectors.values()
        )

    async def _select(self, selectors: Sequence[Selector]) -> None:
        for selector in selectors:
            check_start(selector.start)
            if selector.is_pattern:
                compile_pattern(selector.topic)
        names = [selector.topic for selector in selectors if not selector.is_pattern]
        await self._ensure(names)
        refusal = self._refused(
            names
        )  # the rules may have changed while topics were made, and nobody looked at these then
        if refusal is not None:
            raise refusal
        for selector in selectors:
            self._selectors[selector.topic] = selector
        for name in self._matching_topics():
            topic = self._topics.find(name)
            if topic is not None:
                self._partition_counts.setdefault(name, len(topic.partitions))

    def _matching_topics(self) -> list[str]:
        """Names of the topics that are meant now."""
        names: set[str] = set()
        for selector in self._selectors.values():
            if selector.is_pattern:
                names.update(t.name for t in self._topics.matching(selector.topic) if self._allowed(t.name))
            elif self._topics.find(selector.topic) is not None:
                names.add(selector.topic)
        return sorted(names)

    def _selector_of(self, topic: str) -> Selector:
        """The selector that means a topic: by name, else the first pattern."""
        exact = self._selectors.get(topic)
        if exact is not None and not exact.is_pattern:
            return exact
        patterns = (s for s in self._selectors.values() if s.is_pattern)
        return next((s for s in patterns if compile_pattern(s.topic).match(topic)), Selector(topic))

    def _topic_changed(self, topic: Topic) -> None:
        if topic.is_deleted:
            self._partition_counts.pop(topic.name, None)
            lost = [key for key in self._owned if key[0] == topic.name]
            if lost:
                self._lose(lost, UnknownTopic.code)
        # Topics often come in crowds: look once for all that came in this turn of the loop.
        if self._is_selected(topic.name) and not self._is_reconciling:
            self._is_reconciling = True
            asyncio.get_running_loop().call_soon(self._reconcile)

    def _rules_changed(self) -> None:
        """What was allowed when it began may not be any more: it ends, or goes on without what a pattern may not match now."""
        if self._is_closed:
            return
        refusal = self._refused([s.topic for s in self._selectors.values() if not s.is_pattern])
        if refusal is None:
            asyncio.get_running_loop().call_soon(self._reconcile)
            return
        membership, self._membership = self._membership, None
        self._stop()
        if membership is not None:
            self._leaving = asyncio.get_running_loop().create_task(membership.leave())
        self._listener.ended(refusal)

    def _reconcile(self) -> None:
        """Compare what is meant with what is read."""
        self._is_reconciling = False
        if self._is_closed:
            return
        wanted = self._matching_topics()
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
        """Which of its partitions."""
        every = range(len(self._topics.get(topic).partitions))
        chosen = self._selector_of(topic).partitions
        return every if chosen is None else [index for index in every if index in chosen]

    # ── gaining and losing partitions ─────────────────────────────────────────────────────────────

    def on_assign(self, epoch: int, added: Sequence[Key]) -> None:
        """The group (or ourselves) gave us partitions; find where each begins, then read it."""
        if self._is_closed:
            return
        self._epoch = epoch
        for key in added:
            self._owned[key] = epoch
            self._to_place.append(key)
        if self._placing is None or self._placing.done():
            self._placing = asyncio.get_running_loop().create_task(self._place())

    def on_revoke(self, epoch: int, partitions: Sequence[Key]) -> None:
        """The group takes partitions back; the listener's side confirms when it is done with them."""
        self._epoch = epoch
        self._forget(partitions)
        self._listener.revoked(epoch, list(partitions), "")

    def on_fenced(self, error: SparrowError) -> None:
        """The group put us out."""
        if not self._is_closed:
            self._membership = None
            self._stop()
            self._listener.ended(error)

    def confirm_revoked(self, epoch: int, partitions: Sequence[Key]) -> None:
        """The client is done with what was revoked."""
        if self._membership is not None:
            self._membership.confirm_revoked(epoch, partitions)

    def heartbeat(self) -> None:
        """The client gave a sign of life."""
        if self._membership is not None:
            self._membership.heartbeat()

    async def commit(self, offsets: Mapping[Key, tuple[int, str]]) -> None:
        """Commit as this member; durable when it returns.

        Raises:
            InvalidArgument: not a member of a group.
            StaleMember: a partition is not ours any more.
        """
        if self._membership is None:
            raise InvalidArgument("only a member of a group commits; subscribe with a group")
        await self._membership.commit(offsets)

    def _lose(self, keys: list[Key], reason: str) -> None:
        self._forget(keys)
        self._epoch += self._membership is None
        self._listener.revoked(self._epoch, keys, reason)

    def _forget(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._owned.pop(key, None)
            self._reader.drop(key)

    async def _place(self) -> None:
        """Find the offset of each new partition; announce and read those that are still ours then."""
        while self._to_place:
            added: list[tuple[str, int, int]] = []
            epoch = self._epoch
            while self._to_place:
                key = self._to_place.popleft()
                got_at = self._owned.get(key)
                try:
                    offset = await self._first_offset(key)
                except SparrowError as error:
                    if self._owned.get(key) == got_at is not None:
                        self._lose([key], error.code)
                    continue
                if got_at is not None and self._owned.get(key) == got_at:
                    added.append((*key, offset))
            # Nothing awaits between this check and the announcement.
            current = [(t, p, o) for t, p, o in added if (t, p) in self._owned]
            for topic, partition, offset in current:
                self._reader.add(self._topics.get(topic).partition(partition), offset)
            if current:
                self._listener.assigned(max(epoch, self._epoch), current)

    async def _first_offset(self, key: Key) -> int:
        topic, index = key
        selector = self._selector_of(topic)
        explicit = selector.offsets.get(index)
        if explicit is not None and key not in self._spent_offsets:
            self._spent_offsets.add(key)
            return explicit
        committed = self._committed(key)
        if committed is not None:
            return committed
        start = selector.start
        if start.at == END and index >= self._partition_counts.get(topic, 0):
            start = Start(BEGINNING)
        offset, _ = await locate(self._topics.get(topic).partition(index), start)
        return offset

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    async def wait(self) -> None:
        """Until there may be something to read, or the subscription ended: for who must look for room before it reads."""
        await self._reader.wait()

    async def read(
        self, max_bytes: int, *, max_records: int = 0, max_wait_ms: int | None = None
    ) -> list[Delivery]:
        """What there is, at most about `max_bytes` and `max_records` (0: no limit), at least a batch; [] when nothing came in
        time (None: wait for ever) or the subscription ended. See `reader` for what may be done with the result."""
        loop = asyncio.get_running_loop()
        deadline = None if max_wait_ms is None else loop.time() + max_wait_ms / 1000
        while not self._is_closed:
            remaining_ms = None if deadline is None else max(0, round((deadline - loop.time()) * 1000))
            found = await self._reader.read(max_bytes, max_records=max_records, max_wait_ms=remaining_ms)
            deliveries = [item for item in found if isinstance(item, Delivery)]
            for item in found:
                if isinstance(item, Problem):
                    self._solve(item)
            if deliveries or (remaining_ms is not None and remaining_ms == 0):
                return deliveries
        return []

    def _solve(self, problem: Problem) -> None:
        """A partition could not be read: go on where its log begins or ends, or give it up; never silently."""
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
