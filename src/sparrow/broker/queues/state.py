"""The state machine of a queue: its lanes, its sources, and who waits for whom. Pure: time in, effects out.

What holds always (the tests' model holds it to this):

* a record that was acknowledged in a lane is never leased there again;
* a record is leased by one consumer of a lane at a time;
* the delivery after which a record goes to the dead letters is exactly the `delivery_limit`-th;
* of the records of one key at most one is leased or waits to be tried again (order "key");
* a record with parents is ready only when each parent is finished in every lane (order "parented");
* a call that fails changes nothing.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Final

from sparrow.broker.queues.lane import PARENT_CYCLE, PARENT_FAILED, PARENT_MISSING, Doomed, Lane
from sparrow.broker.queues.parents import Admission, Freed, ParentIndex
from sparrow.broker.queues.ranges import RangeMap
from sparrow.broker.queues.timers import Timers
from sparrow.broker.queues.values import (
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.broker.queues.facts import Facts
    from sparrow.broker.queues.policy import QueuePolicy

ONE_OF: Final = ""
"""The lane of a queue of competing consumers."""
_CHECKED_AT_ONCE: Final = 10_000
_LOOK_AGAIN_MS: Final = 500
_FOLLOWS: Final = "a parent was not handled"
_ENDED: Final = (MOVING, DONE)


def _jitter() -> float:
    return random.uniform(-1, 1)  # noqa: S311 - spreads retries, guards nothing


class QueueState:
    """Everything that a queue knows of its records.

    Args:
        name: the queue's.
        has_dead_letters: whether records that cannot be handled are moved somewhere; else they are dropped.
        jitter: a random number from -1 to 1 at each call.
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
        """Of each source: up to where it was scanned."""
        self.failed: list[RangeMap] = []
        """Of each source, where there are parents: records that ended without being handled, as long as the log keeps them."""
        self.dirty_failed: set[tuple[int, int]] = set()
        self._parents = (
            ParentIndex(release_failed=policy.parent_failed == "release")
            if policy.order == "parented"
            else None
        )
        self._wait_timers = Timers(self._parents.is_waiting if self._parents is not None else None)
        """Monotonic: when a record has waited long enough for a parent that nobody has seen."""
        self.is_behind: Callable[[], bool] = lambda: False
        """Whether there is more in the logs than was found by now: a parent that is missing may be there."""
        self.lanes = {
            subscriber: self._new_lane(policy, has_dead_letters, jitter)
            for subscriber in policy.subscribers or (ONE_OF,)
        }

    def _new_lane(self, policy: QueuePolicy, has_dead_letters: bool, jitter: Callable[[], float]) -> Lane:
        lane = Lane(policy, has_dead_letters, self.scanned, jitter)
        if self._parents is not None:
            lane.is_waiting = self._parents.is_waiting  # type: ignore[method-assign]
        return lane

    # ── sources ───────────────────────────────────────────────────────────────────────────────────

    def add_source(self, log_start: int, starts: dict[str, int]) -> int:
        """One more partition; returns its number.

        Args:
            log_start: where the log begins.
            starts: of each lane, before what everything is finished.
        """
        for subscriber, lane in self.lanes.items():
            lane.add_source(starts[subscriber])
        self.failed.append(RangeMap())
        self.scanned.append(log_start if self._parents is not None else min(starts.values()))
        return len(self.scanned) - 1

    def restart_source(self, source: int, start: int) -> None:
        """Forget what is known of a source and begin at `start` (an administrator moves it)."""
        for lane in self.lanes.values():
            lane.restart_source(source, start)
        self.scanned[source] = start

    def next_unscanned(self, source: int, end: int) -> int:
        """The first offset before `end` that the scanner must look at: what all lanes have finished need not be read again, unless
        the ids in it count. `end` when there is none."""
        offset = self.scanned[source]
        if self._parents is not None:
            return min(offset, end)
        while offset < end:
            passed = min(self._finished_until(lane, source, offset, end) for lane in self.lanes.values())
            if passed == offset:
                break
            offset = passed
        self._scanned_to(source, min(offset, end))
        return min(offset, end)

    def _scanned_to(self, source: int, end: int) -> None:
        self.scanned[source] = max(self.scanned[source], end)
        if self.policy.order == "key":
            for lane in self.lanes.values():
                lane.scanned_to(source, self.scanned[source])

    @staticmethod
    def _finished_until(lane: Lane, source: int, offset: int, end: int) -> int:
        if offset < lane.starts[source]:
            return min(end, lane.starts[source])
        for first, stop, value in lane.maps[source].runs(offset, min(end, offset + 64 * RangeMap.PAGE)):
            if value & STATE_MASK < DONE:
                return first
            offset = stop
        return offset

    @property
    def tells_ids(self) -> bool:
        """Whether every record must be looked at before it may be finished."""
        return self._parents is not None

    @property
    def ready(self) -> int:
        """Ready records of the lane that has fewest."""
        return min(lane.counts[READY] for lane in self.lanes.values())

    # ── what the scanner finds ────────────────────────────────────────────────────────────────────

    def found(
        self, source: int, first: int, end: int, facts: list[Facts] | None, *, now_ms: int, wall_ms: int
    ) -> None:
        """The scanner has looked at [first, end), which follows what it looked at before.

        Args:
            facts: of the records there, in order; None: all offsets are plain records.
        """
        if facts is None:
            for lane in self.lanes.values():
                lane.enter_plain(source, first, end)
        elif self._parents is not None:
            for each, next_first in _with_holes(first, facts):
                self._gap(source, next_first, each.offset)
                self._found_parented(self._parents, source, each, now_ms, wall_ms)
            self._gap(source, facts[-1].offset + 1 if facts else first, end)
        else:
            for each, next_first in _with_holes(first, facts):
                self._gap(source, next_first, each.offset)
                self._enter(source, each, wall_ms, blocked=False)
            self._gap(source, facts[-1].offset + 1 if facts else first, end)
        self._scanned_to(source, end)
        self._settle_parents()

    def _gap(self, source: int, first: int, end: int) -> None:
        if first < end:
            for lane in self.lanes.values():
                lane.enter_gap(source, first, end)

    def _enter(self, source: int, facts: Facts, wall_ms: int, *, blocked: bool) -> None:
        offset = facts.offset
        expires_at_ms = facts.expires_at_ms
        if self.policy.expiry_ms:
            by_policy = facts.timestamp + self.policy.expiry_ms
            expires_at_ms = min(expires_at_ms, by_policy) if expires_at_ms else by_policy
        for subscriber, lane in self.lanes.items():
            if facts.only_queue and facts.only_queue not in (self.name, f"{self.name}/{subscriber}"):
                lane.enter_gap(source, offset, offset + 1)
                continue
            if facts.deliver_at_ms > wall_ms:
                lane.delay(source, offset, facts.level, facts.key, facts.deliver_at_ms)
            else:
                lane.enter(source, offset, facts.level, facts.key, blocked=blocked)
            if expires_at_ms:
                lane.expire_at(source, offset, expires_at_ms)

    def _found_parented(
        self, parents: ParentIndex, source: int, facts: Facts, now_ms: int, wall_ms: int
    ) -> None:
        ref = source << SOURCE_SHIFT | facts.offset
        if self._is_ended(source, facts.offset):
            failed = bool(self.failed[source].get(facts.offset))
            self._free(parents.add_finished(ref, facts.message_id, failed=failed))
            return
        # Before it was delivered its parents were finished; the log may not keep them any more.
        was_delivered = any(count_of(lane.value_at(source, facts.offset)) for lane in self.lanes.values())
        admission = parents.add(ref, facts.message_id, () if was_delivered else facts.parents)
        if admission is Admission.WAITS:
            self._wait_timers.add(now_ms + self.policy.parent_wait_ms, ref)
        self._enter(source, facts, wall_ms, blocked=admission is Admission.WAITS)
        if admission is Admission.FAILED:
            self._doom(ref, PARENT_FAILED, _FOLLOWS)
        elif admission in (Admission.SELF, Admission.CYCLE):
            self._doom(ref, PARENT_CYCLE, "it is its own ancestor")

    # ── parents ───────────────────────────────────────────────────────────────────────────────────

    def _is_ended(self, source: int, offset: int) -> bool:
        """Whether nobody need wait for a record: each lane has finished it, or given it up."""
        return all(lane.value_at(source, offset) & STATE_MASK >= MOVING for lane in self.lanes.values())

    def _doom(self, ref: int, reason: str, error: str) -> None:
        source, offset = ref >> SOURCE_SHIFT, ref & OFFSET_MASK
        for lane in self.lanes.values():
            lane.doom(source, offset, offset + 1, reason, error)

    def _settle_parents(self) -> None:
        """Let go what waited for records that ended meanwhile, and what waited for those, and so on."""
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
        for lane in self.lanes.values():
            if lane.finished:
                taken += lane.finished
                lane.finished = []
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
                self._doom(ref, PARENT_FAILED, _FOLLOWS)
            else:
                for lane in self.lanes.values():
                    lane.unblock(ref >> SOURCE_SHIFT, ref & OFFSET_MASK)

    def _check_waiting(self, now_ms: int) -> None:
        """End the wait for parents that never came."""
        parents = self._parents
        assert parents is not None  # whoever has no parents has no timers
        suspects: list[int] = []
        for _, ref in self._wait_timers.pop_due(now_ms, _CHECKED_AT_ONCE):
            if not parents.is_waiting(ref):
                continue
            if parents.missing(ref):
                if self.is_behind():
                    self._wait_timers.add(now_ms + _LOOK_AGAIN_MS, ref)
                    continue
                self._doom(ref, PARENT_MISSING, "a parent did not appear in time")
            else:
                suspects.append(ref)
                self._wait_timers.add(now_ms + max(self.policy.parent_wait_ms, 1000), ref)
        if suspects or parents.is_searching:
            self._doom_cycles(suspects)

    def _doom_cycles(self, suspects: Iterable[int]) -> None:
        parents = self._parents
        assert parents is not None
        for ref in parents.in_cycle(suspects):
            self._doom(ref, PARENT_CYCLE, "it is its own ancestor, or a descendant of one that is")

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Do what is due by now; call it before anything that depends on time."""
        for lane in self.lanes.values():
            lane.tick(now_ms, wall_ms)
        if self._parents is not None:
            due = self._wait_timers.next_time()
            if due is not None and due <= now_ms:
                self._check_waiting(now_ms)
            elif self._parents.is_searching:
                self._doom_cycles(())
            self._settle_parents()

    def next_times(self) -> tuple[int | None, int | None]:
        """(monotonic, wall) time at which to call `tick` again at the latest; None: no need."""
        times = [lane.next_times() for lane in self.lanes.values()]
        is_searching = self._parents is not None and self._parents.is_searching
        times.append((0 if is_searching else self._wait_timers.next_time(), None))
        return (
            min((now for now, _ in times if now is not None), default=None),
            min((wall for _, wall in times if wall is not None), default=None),
        )

    # ── verbs ─────────────────────────────────────────────────────────────────────────────────────

    def settled(self) -> None:
        """Call it after each verb of a lane: what waited for the outcome goes on."""
        if self._parents is not None:
            self._settle_parents()

    def purge(self, ends: list[int]) -> int:
        """Finish everything before `ends` (of each source) that is not leased; returns how many records these were, at most."""
        return sum(self.purge_range(source, 0, end) for source, end in enumerate(ends))

    def purge_range(self, source: int, first: int, end: int) -> int:
        """Finish the records [first, end) of a source that are not leased; returns how many these were, at most.

        What was not scanned yet, before `end`, is taken for records.
        """
        for lane in self.lanes.values():
            lane.enter_plain(source, self.scanned[source], end)
        self._scanned_to(source, end)
        count = max(lane.discard(source, first, end) for lane in self.lanes.values())
        for lane in self.lanes.values():
            if not lane.counts[READY]:
                lane.ready.clear()
        self._settle_parents()
        return count

    def lost(self, source: int, log_start: int) -> None:
        """Retention took the records before `log_start`, done or not."""
        scanned = self.scanned[source]
        for lane in self.lanes.values():
            if lane.starts[source] >= log_start:
                continue
            unseen = max(scanned, lane.starts[source])
            lane.tally.lost += sum(
                end - first
                for first, end, value in lane.maps[source].runs(unseen, log_start)
                if value == UNKNOWN
            )
            lane.enter_gap(source, unseen, log_start)
            lane.tally.lost += lane.discard(
                source, lane.starts[source], log_start, (READY, LEASED, DELAYED, BLOCKED, MOVING)
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
        """The partition is gone, and with it its records; nobody waits for them."""
        for lane in self.lanes.values():
            lane.forget_source(source)
        self._settle_parents()

    def reconfigure(self, policy: QueuePolicy, *, has_dead_letters: bool) -> None:
        """A policy whose order, subscribers and expiry are the same."""
        self.policy = policy
        for lane in self.lanes.values():
            lane.policy = policy
            lane.has_dead_letters = has_dead_letters

    def sweep(self) -> None:
        """Give back some memory of ids that the log does not keep any more; now and then."""
        if self._parents is not None:
            self._parents.sweep()

    def take_doomed(self) -> list[tuple[str, Doomed]]:
        """(subscriber, records) that became due for the dead letters since the last call."""
        taken: list[tuple[str, Doomed]] = []
        for subscriber, lane in self.lanes.items():
            if lane.doomed:
                taken += [(subscriber, each) for each in lane.doomed]
                lane.doomed = []
        return taken


def _with_holes(first: int, facts: list[Facts]) -> Iterable[tuple[Facts, int]]:
    """Each record with the offset behind the one before it."""
    for each in facts:
        yield each, first
        first = each.offset + 1
