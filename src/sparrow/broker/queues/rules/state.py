"""State machine of a queue: its subscribers, its sources, and parents and children. Pure: time is
passed in, effects are collected.

Invariants (the tests' model checks them):

* a record that a subscriber acknowledged is never leased to it again;
* a record is leased by one consumer of a subscriber at a time;
* the delivery after which a record goes to the dead letters is exactly the `delivery_limit`-th;
* of the records of one key at most one is leased or waits to be tried again (order "key");
* a record with parents is ready only when each parent is finished by every subscriber (order
  "parented");
* a call that fails changes nothing.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Final

from sparrow.broker.queues.maps.range_map import RangeMap
from sparrow.broker.queues.rules.dependencies import Admission, Freed, ParentIndex
from sparrow.broker.queues.rules.record_state import (
    BLOCKED,
    DELAYED,
    DONE,
    LEASED,
    MOVING,
    OFFSET_MASK,
    READY,
    SOURCE_SHIFT,
    STATE_MASK,
    UNKNOWN,
    count_of,
)
from sparrow.broker.queues.rules.subscriber import (
    PARENT_CYCLE,
    PARENT_FAILED,
    PARENT_MISSING,
    DeadRecords,
    SubscriberState,
)
from sparrow.broker.queues.rules.timers import NEVER, Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.base.queue_policy import QueuePolicy
    from sparrow.broker.queues.rules.delivery_info import DeliveryInfo

ONE_OF: Final = ""
"""Name of the only subscriber of a queue of competing consumers."""
_CHECKED_AT_ONCE: Final = 10_000
_LOOK_AGAIN_MS: Final = 500
_FOLLOWS: Final = "a parent was not handled"
_ENDED: Final = (MOVING, DONE)


def _jitter() -> float:
    return random.uniform(-1, 1)  # noqa: S311 - spreads retries, guards nothing


class QueueState:
    """State of all records of a queue.

    Args:
        name: name of the queue.
        has_dead_letters: True if records that cannot be handled are moved to a dead-letter topic;
            else they are dropped.
        jitter: returns a random number from -1 to 1.
    """

    def __init__(
        self,
        name: str,
        policy: QueuePolicy,
        *,
        has_dead_letters: bool,
        jitter: Callable[[], float] = _jitter,
    ) -> None:
        self.name = name
        self.policy = policy
        self.scanned: list[int] = []
        """For each source, the offset up to which it was scanned."""
        self.failed: list[RangeMap] = []
        """For each source of a parented queue, the records that ended without being handled, as
        long as the log keeps them.
        """
        self.dirty_failed: set[tuple[int, int]] = set()
        self._parents = (
            ParentIndex(release_failed=policy.parent_failed == "release")
            if policy.order == "parented"
            else None
        )
        self._wait_timers = Timers(self._parents.is_waiting if self._parents is not None else None)
        """Monotonic time at which the wait for a parent that was never seen is over."""
        self.is_behind: Callable[[], bool] = lambda: False
        """Returns True if the logs hold records that were not scanned yet: a missing parent may be
        there.
        """
        self.subscribers = {
            name: self._new_subscriber(policy, has_dead_letters, jitter)
            for name in policy.subscribers or (ONE_OF,)
        }

    def _new_subscriber(
        self, policy: QueuePolicy, has_dead_letters: bool, jitter: Callable[[], float]
    ) -> SubscriberState:
        subscriber = SubscriberState(policy, has_dead_letters, self.scanned, jitter)
        if self._parents is not None:
            subscriber.is_waiting = self._parents.is_waiting  # type: ignore[method-assign]
        return subscriber

    # ── sources ───────────────────────────────────────────────────────────────────────────────────

    def add_source(self, log_start: int, starts: dict[str, int]) -> int:
        """Add a partition and return its number.

        Args:
            log_start: first offset of the log.
            starts: for each subscriber, the offset before which everything is finished.
        """
        for name, subscriber in self.subscribers.items():
            subscriber.add_source(starts[name])
        self.failed.append(RangeMap())
        self.scanned.append(log_start if self._parents is not None else min(starts.values()))
        return len(self.scanned) - 1

    def restart_source(self, source: int, start: int) -> None:
        """Forget the state of a source and begin at `start` (an administrator moves it)."""
        for subscriber in self.subscribers.values():
            subscriber.restart_source(source, start)
        self.scanned[source] = start

    def next_unscanned(self, source: int, end: int) -> int:
        """Return the first offset before `end` that must be scanned, or `end`. Records that all
        subscribers have finished need not be read again, unless their ids count.
        """
        offset = self.scanned[source]
        if self._parents is not None:
            return min(offset, end)
        while offset < end:
            passed = end
            for subscriber in self.subscribers.values():
                passed = min(passed, subscriber.finished_until(source, offset))
            if passed == offset:
                break
            offset = passed
        self._scanned_to(source, min(offset, end))
        return min(offset, end)

    def _scanned_to(self, source: int, end: int) -> None:
        self.scanned[source] = max(self.scanned[source], end)
        if self.policy.order == "key":
            for subscriber in self.subscribers.values():
                subscriber.scanned_to(source, self.scanned[source])

    @property
    def tells_ids(self) -> bool:
        """True if every record must be scanned before it may be finished."""
        return self._parents is not None

    def has_ready(self, count: int) -> bool:
        """Return True if each subscriber has as many ready records."""
        fewest = count
        for subscriber in self.subscribers.values():
            fewest = min(fewest, subscriber.counts[READY])
        return fewest >= count

    # ── what the scanner finds ────────────────────────────────────────────────────────────────────

    def found(
        self,
        source: int,
        first: int,
        end: int,
        infos: list[DeliveryInfo] | None,
        *,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Enter what the scanner found in [first, end), which follows what it scanned before.

        Args:
            infos: what the records there ask for, in order; None: all offsets are plain records.
        """
        if infos is None:
            for subscriber in self.subscribers.values():
                subscriber.enter_plain(source, first, end)
        elif self._parents is not None:
            for each, next_first in _with_holes(first, infos):
                self._gap(source, next_first, each.offset)
                self._found_parented(self._parents, source, each, now_ms, wall_ms)
            self._gap(source, infos[-1].offset + 1 if infos else first, end)
        else:
            for each, next_first in _with_holes(first, infos):
                self._gap(source, next_first, each.offset)
                self._enter(source, each, wall_ms, blocked=False)
            self._gap(source, infos[-1].offset + 1 if infos else first, end)
        self._scanned_to(source, end)
        self._settle_parents()

    def _gap(self, source: int, first: int, end: int) -> None:
        if first < end:
            for subscriber in self.subscribers.values():
                subscriber.enter_gap(source, first, end)

    def _enter(self, source: int, info: DeliveryInfo, wall_ms: int, *, blocked: bool) -> None:
        offset = info.offset
        expires_at_ms = info.expires_at_ms
        if self.policy.expiry_ms:
            by_policy = info.timestamp + self.policy.expiry_ms
            expires_at_ms = min(expires_at_ms, by_policy) if expires_at_ms else by_policy
        for name, subscriber in self.subscribers.items():
            if info.only_queue and info.only_queue not in (self.name, f"{self.name}/{name}"):
                subscriber.enter_gap(source, offset, offset + 1)
                continue
            if info.deliver_at_ms > wall_ms:
                subscriber.delay(source, offset, info.level, info.key, info.deliver_at_ms)
            else:
                subscriber.enter(source, offset, info.level, info.key, blocked=blocked)
            if expires_at_ms:
                subscriber.expire_at(source, offset, expires_at_ms)

    def _found_parented(
        self, parents: ParentIndex, source: int, info: DeliveryInfo, now_ms: int, wall_ms: int
    ) -> None:
        ref = source << SOURCE_SHIFT | info.offset
        if self._is_ended(source, info.offset):
            failed = bool(self.failed[source].get(info.offset))
            self._free(parents.add_finished(ref, info.message_id, failed=failed))
            return
        # Its parents were finished before it was delivered; the log may not keep them any more.
        was_delivered = any(
            count_of(subscriber.value_at(source, info.offset)) for subscriber in self.subscribers.values()
        )
        admission = parents.add(ref, info.message_id, () if was_delivered else info.parents)
        if admission is Admission.WAITS:
            self._wait_timers.add(now_ms + self.policy.parent_wait_ms, ref)
        self._enter(source, info, wall_ms, blocked=admission is Admission.WAITS)
        if admission is Admission.FAILED:
            self._give_up(ref, PARENT_FAILED, _FOLLOWS)
        elif admission in (Admission.SELF, Admission.CYCLE):
            self._give_up(ref, PARENT_CYCLE, "it is its own ancestor")

    # ── parents ───────────────────────────────────────────────────────────────────────────────────

    def _is_ended(self, source: int, offset: int) -> bool:
        """Return True if no record need wait for this one: each subscriber has finished it, or
        given it up.
        """
        return all(
            subscriber.value_at(source, offset) & STATE_MASK >= MOVING
            for subscriber in self.subscribers.values()
        )

    def _give_up(self, ref: int, reason: str, error: str) -> None:
        source, offset = ref >> SOURCE_SHIFT, ref & OFFSET_MASK
        for subscriber in self.subscribers.values():
            subscriber.give_up(source, offset, offset + 1, reason, error)

    def _settle_parents(self) -> None:
        """Unblock records that waited for records that ended meanwhile, then those that waited for
        these, and so on.
        """
        parents = self._parents
        if parents is None:
            return
        waiting = deque(self._take_finished())
        while waiting:
            source, first, end, failed = waiting.popleft()
            if failed:
                self._mark_failed(source, first, end)
            for offset in range(first, end):
                if not self._is_ended(source, offset):
                    continue
                has_failed = bool(self.failed[source].get(offset))
                self._free(parents.finish(source << SOURCE_SHIFT | offset, failed=has_failed))
            waiting.extend(self._take_finished())

    def _take_finished(self) -> list[tuple[int, int, int, bool]]:
        taken: list[tuple[int, int, int, bool]] = []
        for subscriber in self.subscribers.values():
            if subscriber.finished:
                taken += subscriber.finished
                subscriber.finished = []
        return taken

    def _mark_failed(self, source: int, first: int, end: int) -> None:
        self.failed[source].set(first, end, 1)
        self.dirty_failed.update(
            (source, page)
            for page in range(first >> RangeMap.PAGE_BITS, ((end - 1) >> RangeMap.PAGE_BITS) + 1)
        )

    def _free(self, freed: Iterable[Freed]) -> None:
        for ref, is_failed in freed:
            if is_failed:
                self._give_up(ref, PARENT_FAILED, _FOLLOWS)
            else:
                for subscriber in self.subscribers.values():
                    subscriber.unblock(ref >> SOURCE_SHIFT, ref & OFFSET_MASK)

    def _check_waiting(self, now_ms: int) -> None:
        """End the wait for parents that never came."""
        parents = self._parents
        assert parents is not None  # queues without parents have no timers
        suspects: list[int] = []
        for _, ref in self._wait_timers.pop_due(now_ms, _CHECKED_AT_ONCE):
            if not parents.is_waiting(ref):
                continue
            if parents.missing(ref):
                if self.is_behind():
                    self._wait_timers.add(now_ms + _LOOK_AGAIN_MS, ref)
                    continue
                self._give_up(ref, PARENT_MISSING, "a parent did not appear in time")
            else:
                suspects.append(ref)
                self._wait_timers.add(now_ms + max(self.policy.parent_wait_ms, 1000), ref)
        if suspects or parents.is_searching:
            self._give_up_cycles(suspects)

    def _give_up_cycles(self, suspects: Iterable[int]) -> None:
        parents = self._parents
        assert parents is not None
        for ref in parents.in_cycle(suspects):
            self._give_up(ref, PARENT_CYCLE, "it is its own ancestor, or a descendant of one that is")

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Do what is due by now. Call it before anything that depends on time."""
        for subscriber in self.subscribers.values():
            subscriber.tick(now_ms, wall_ms)
        if self._parents is not None:
            if self._wait_timers.earliest <= now_ms:
                self._check_waiting(now_ms)
            elif self._parents.is_searching:
                self._give_up_cycles(())
            self._settle_parents()

    def next_times(self) -> tuple[int, int]:
        """Return the (monotonic, wall) time at which to call `tick` again at the latest; NEVER: no
        need.
        """
        is_searching = self._parents is not None and self._parents.is_searching
        due_ms, due_wall_ms = 0 if is_searching else self._wait_timers.earliest, NEVER
        for subscriber in self.subscribers.values():
            its_due_ms, its_wall_ms = subscriber.next_times()
            due_ms, due_wall_ms = min(due_ms, its_due_ms), min(due_wall_ms, its_wall_ms)
        return due_ms, due_wall_ms

    # ── verbs ─────────────────────────────────────────────────────────────────────────────────────

    def settled(self) -> None:
        """Unblock records that waited for the outcome. Call it after each operation on a
        subscriber.
        """
        if self._parents is not None:
            self._settle_parents()

    def purge(self, ends: list[int]) -> int:
        """Finish everything before `ends` (one per source) that is not leased. Return the number of
        records, at most.
        """
        return sum(self.purge_range(source, 0, end) for source, end in enumerate(ends))

    def purge_range(self, source: int, first: int, end: int) -> int:
        """Finish the records [first, end) of a source that are not leased. Return their number, at
        most.

        Offsets before `end` that were not scanned yet count as records.
        """
        for subscriber in self.subscribers.values():
            subscriber.enter_plain(source, self.scanned[source], end)
        self._scanned_to(source, end)
        count = max(subscriber.discard(source, first, end) for subscriber in self.subscribers.values())
        for subscriber in self.subscribers.values():
            if not subscriber.counts[READY]:
                subscriber.ready.clear()
        self._settle_parents()
        return count

    def lost(self, source: int, log_start: int) -> None:
        """Finish the records before `log_start`, which retention deleted, done or not."""
        scanned = self.scanned[source]
        for subscriber in self.subscribers.values():
            if subscriber.starts[source] >= log_start:
                continue
            unseen = max(scanned, subscriber.starts[source])
            subscriber.tally.lost += sum(
                end - first
                for first, end, value in subscriber.maps[source].runs(unseen, log_start)
                if value == UNKNOWN
            )
            subscriber.enter_gap(source, unseen, log_start)
            subscriber.tally.lost += subscriber.discard(
                source, subscriber.starts[source], log_start, (READY, LEASED, DELAYED, BLOCKED, MOVING)
            )
        self._scanned_to(source, log_start)
        if self._parents is not None:
            self._settle_parents()
            self._parents.forget(source, log_start)
            for page in self.failed[source].pages():
                if page << RangeMap.PAGE_BITS >= log_start:
                    break
                self.dirty_failed.add((source, page))
            self.failed[source].forget_before(log_start)

    def forget_source(self, source: int) -> None:
        """Finish the records of a partition that is gone. No record waits for them any more."""
        for subscriber in self.subscribers.values():
            subscriber.forget_source(source)
        self._settle_parents()

    def reconfigure(self, policy: QueuePolicy, *, has_dead_letters: bool) -> None:
        """Set a policy with the same order, subscribers and expiry."""
        self.policy = policy
        for subscriber in self.subscribers.values():
            subscriber.policy = policy
            subscriber.has_dead_letters = has_dead_letters

    def sweep(self) -> None:
        """Free some memory of ids that the log does not keep any more. Call it periodically."""
        if self._parents is not None:
            self._parents.sweep()

    def take_dead_records(self) -> list[tuple[str, DeadRecords]]:
        """Return (subscriber, records) of all records that were given up since the last call."""
        taken: list[tuple[str, DeadRecords]] = []
        for name, subscriber in self.subscribers.items():
            if subscriber.dead_records:
                taken += [(name, each) for each in subscriber.dead_records]
                subscriber.dead_records = []
        return taken


def _with_holes(first: int, infos: list[DeliveryInfo]) -> Iterable[tuple[DeliveryInfo, int]]:
    """Yield each record with the offset behind the one before it."""
    for each in infos:
        yield each, first
        first = each.offset + 1
