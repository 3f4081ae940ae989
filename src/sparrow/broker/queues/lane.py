"""What one subscriber of a queue is to get, gets, and has done: the rules of leases, returns, delays and dead letters.

A queue of competing consumers has one lane; one that several subscribers must accept has a lane for each. The lane is pure: time
comes in with each call (monotonic for leases, wall for `deliver-at` and `expires-at`), and what must happen outside is collected in
`dirty` (what to persist), `doomed` (what to move to the dead letters) and `finished` (for those that wait for it).

Everything works on ranges. A record is looked at by itself only if it has a fate of its own: a key, a delay, a parent.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import LeasedByAnother, LeaseExpired, NotLeased
from sparrow.broker.queues.keys import KeyLines
from sparrow.broker.queues.ranges import RangeMap
from sparrow.broker.queues.ready import ReadyRanges
from sparrow.broker.queues.timers import Timers
from sparrow.broker.queues.values import (
    BELOW_MARK,
    BLOCKED,
    COUNT_MASK,
    COUNT_SHIFT,
    DELAYED,
    DONE,
    GAP,
    LEASED,
    LEVEL_MASK,
    LEVEL_SHIFT,
    MARK_SHIFT,
    MOVING,
    NO_LEVEL,
    OFFSET_MASK,
    READY,
    SOURCE_SHIFT,
    STATE_MASK,
    UNKNOWN,
    Mark,
    count_of,
    level_of,
    must_be_kept,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    from sparrow.broker.queues.policy import QueuePolicy

DELIVERY_LIMIT: Final = "DELIVERY_LIMIT"
REJECTED: Final = "REJECTED"
PARENT_FAILED: Final = "PARENT_FAILED"
PARENT_MISSING: Final = "PARENT_MISSING"
PARENT_CYCLE: Final = "PARENT_CYCLE"
REDRIVE: Final = "REDRIVE"
"""Not why a record died: of those that are MOVING back to where they came from."""
LEASE_ENDED: Final = "the lease ended before the record was settled"
_MAX_COUNT: Final = 255
_MAX_SHARED: Final = 256
_LONGEST_STRIDE: Final = 1 << 20
_NEVER_DELIVERED: Final = Mark("", -1, -1)
_DUE_AT_ONCE: Final = 1000
"""Timers of each kind that fire in one turn: a few milliseconds of work."""
_PLAIN: Final = READY | NO_LEVEL << LEVEL_SHIFT
_WAITING: Final = (READY, DELAYED, BLOCKED)
_MAX_ERROR: Final = 4096

Run = tuple[int, int, int]
"""First offset, end, value."""


class Grant(NamedTuple):
    """Records [first, end) of a source that a consumer has leased just now."""

    source: int
    first: int
    end: int
    deliveries: int
    """This one included."""
    level: int = NO_LEVEL
    mark: int = 0
    """The number of the lease's mark: tells this lease from a later one of the same records."""


class Doomed(NamedTuple):
    """Records that are to be moved to the dead letters."""

    source: int
    first: int
    end: int


@dataclass(slots=True)
class Tally:
    """What happened since the broker started."""

    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    rejected: int = 0
    expired: int = 0
    dropped: int = 0
    dead: int = 0
    lost: int = 0


class Lane:
    """The records of one subscriber, over all sources of the queue.

    Args:
        scanned: of each source, up to where it was scanned; the queue's own list, live.
        jitter: a random number from -1 to 1 at each call.
    """

    def __init__(
        self, policy: QueuePolicy, has_dead_letters: bool, scanned: Sequence[int], jitter: Callable[[], float]
    ) -> None:
        self.policy = policy
        self.has_dead_letters = has_dead_letters
        self._scanned = scanned
        self._jitter = jitter
        self.maps: list[RangeMap] = []
        self.starts: list[int] = []
        """Of each source: everything before is finished."""
        self.ready = ReadyRanges()
        self.keys = KeyLines()
        self.marks: dict[int, Mark] = {}
        self._last_mark = 0
        self.counts = [0] * 8
        """Records by state; those of UNKNOWN, DONE and GAP mean nothing."""
        self.holders: dict[str, int] = {}
        """Leased records of each consumer."""
        self._shared_marks: dict[tuple[int, int, str, str], int] = {}
        """Marks that records which come back one by one may have in common: else each of a million would have its own."""
        self.lease_timers = Timers(self.marks.__contains__)
        """Monotonic: when a mark is due."""
        self.delivery_timers = Timers(self._is_unfinished)
        """Wall: when a record may be delivered first."""
        self.expiry_timers = Timers(self._is_unfinished)
        """Wall: when a record expires."""
        self._overdue: dict[int, int] = {}
        """Leased records whose time to expire came meanwhile, and when that was: they expire when they come back."""
        self._horizons: dict[int, int] = {}
        """After a restart, of each source: before which offset records of unknown keys are leased, or wait to be tried again."""
        self._held_back = array("q")
        """Ref and key of each record that was found meanwhile: they come after those."""
        self._let_go_at = 0
        self._delayed_keys: dict[int, int] = {}
        self.tally = Tally()
        self.dirty: set[tuple[int, int]] = set()
        """(source, page) that differ from what was persisted last."""
        self.moved_starts: set[int] = set()
        """Sources whose start did."""
        self.doomed: list[Doomed] = []
        self.finished: list[tuple[int, int, int, bool]] = []
        """(source, first, end, failed), for queues with parents."""
        self.tells_finished = policy.order == "parented"
        self.orders_keys = policy.order == "key"

    # ── sources ───────────────────────────────────────────────────────────────────────────────────

    def add_source(self, start: int) -> None:
        """One more source, of which everything from `start` on is to be done."""
        self.maps.append(RangeMap())
        self.starts.append(start)

    def restart_source(self, source: int, start: int) -> None:
        """Forget everything of a source and begin at `start`; nothing of it may be leased."""
        self.forget_source(source)
        self.dirty.update((source, page) for page in self.maps[source].pages())
        self.maps[source] = RangeMap()
        self.starts[source] = start
        self.moved_starts.add(source)

    def forget_source(self, source: int) -> None:
        """The source is gone: what is not finished ends, leased or not."""
        self.discard(
            source,
            self.starts[source],
            self.end_of(source),
            (READY, LEASED, DELAYED, BLOCKED, MOVING),
        )
        self.ready.clear(source)
        if self._horizons.pop(source, 0):
            self._let_go()

    @property
    def leased(self) -> int:
        return self.counts[LEASED]

    @property
    def unfinished(self) -> int:
        """Records that were scanned and are not done."""
        return sum(self.counts[READY : MOVING + 1])

    # ── what the scanner finds ────────────────────────────────────────────────────────────────────

    def enter_plain(self, source: int, first: int, end: int) -> None:
        """Records [first, end) were found, of which there is nothing to know."""
        first = max(first, self.starts[source])
        if first >= end:
            return
        for a, b, value in list(self.maps[source].runs(first, end)):
            if value == UNKNOWN:
                self._change(source, a, b, UNKNOWN, _PLAIN)
                self.ready.push(NO_LEVEL, source, a, b)
            elif value & STATE_MASK == READY:  # it came back before the broker was restarted
                self.ready.push(level_of(value), source, a, b)
            elif value & STATE_MASK == BLOCKED:  # by what the queue's policy does not ask for any more
                self._change(source, a, b, value, READY | value & ~STATE_MASK)
                self.ready.push(level_of(value), source, a, b)

    def enter_gap(self, source: int, first: int, end: int) -> None:
        """There are no records in [first, end), or none for this subscriber."""
        first = max(first, self.starts[source])
        if first >= end:
            return
        for a, b, value in list(self.maps[source].runs(first, end)):
            if value == UNKNOWN:
                self._change(source, a, b, UNKNOWN, GAP)
        self.advance(source)

    def value_at(self, source: int, offset: int) -> int:
        """The value of a record; DONE before the start."""
        return DONE if offset < self.starts[source] else self.maps[source].get(offset)

    def enter(self, source: int, offset: int, level: int, key: int, *, blocked: bool) -> None:
        """A record was found that is delayed by nothing but its parents (`blocked`) or its key."""
        if offset < self.starts[source]:
            return
        value = self.maps[source].get(offset)
        state = value & STATE_MASK
        if state == UNKNOWN:
            self._gate(source, offset, UNKNOWN, level << LEVEL_SHIFT, key, blocked=blocked)
        elif state in (READY, BLOCKED):  # it came back before the broker was restarted
            self._gate(source, offset, value, value & ~STATE_MASK, key, blocked=blocked)
        elif key and self.orders_keys and (state in (LEASED, DELAYED) or self.is_set_aside(value)):
            self.keys.enter(key, source << SOURCE_SHIFT | offset)

    def delay(self, source: int, offset: int, level: int, key: int, deliver_at_ms: int) -> None:
        """A record was found that waits for its time."""
        if self.value_at(source, offset) != UNKNOWN:  # it was delivered before, so its time has come
            self.enter(source, offset, level, key, blocked=False)
            return
        ref = source << SOURCE_SHIFT | offset
        self._change(source, offset, offset + 1, UNKNOWN, DELAYED | level << LEVEL_SHIFT)
        self.delivery_timers.add(deliver_at_ms, ref)
        if key and self.orders_keys:
            self._delayed_keys[ref] = key

    def expire_at(self, source: int, offset: int, expires_at_ms: int) -> None:
        """A record that was found expires; call it after `enter` or `delay`."""
        if self.value_at(source, offset) & STATE_MASK in (READY, LEASED, DELAYED, BLOCKED):
            self.expiry_timers.add(expires_at_ms, source << SOURCE_SHIFT | offset)

    def _gate(self, source: int, offset: int, old: int, rest: int, key: int, *, blocked: bool) -> None:
        """A record may be delivered unless parents or an earlier record of its key keep it."""
        if key and self.orders_keys:
            ref = source << SOURCE_SHIFT | offset
            if self._horizons or self._held_back:
                self._held_back.extend((ref, key))
                blocked = True
            elif not self.keys.enter(key, ref):
                blocked = True
        new = (BLOCKED if blocked else READY) | rest
        if new != old:
            self._change(source, offset, offset + 1, old, new)
        if not blocked:
            self.ready.push(level_of(rest), source, offset, offset + 1)

    def scanned_to(self, source: int, end: int) -> None:
        """The scanner is that far: once it has met all that was in flight when the broker stopped, others of the same keys line up."""
        if self._horizons:
            if self._horizons.get(source, end + 1) > end:
                return
            del self._horizons[source]
        if self._held_back:
            self._let_go()

    def _let_go(self) -> None:
        """Let some of those that were held back take their places behind the ones that were in flight."""
        if self._horizons:
            return
        at = self._let_go_at
        some = self._held_back[at : at + 2 * _DUE_AT_ONCE]
        self._let_go_at += len(some)
        for ref, key in zip(some[::2], some[1::2], strict=True):
            source, offset = ref >> SOURCE_SHIFT, ref & OFFSET_MASK
            value = self.value_at(source, offset)
            if value & STATE_MASK == BLOCKED and self.keys.enter(key, ref):
                self.unblock(source, offset)
        if self._let_go_at == len(self._held_back):
            self._held_back, self._let_go_at = array("q"), 0

    def unblock(self, source: int, offset: int) -> bool:
        """What a record waited for is done; whether it waited."""
        value = self.value_at(source, offset)
        if value & STATE_MASK != BLOCKED:
            return False
        self._change(source, offset, offset + 1, value, READY | value & ~STATE_MASK)
        self.ready.push(level_of(value), source, offset, offset + 1)
        return True

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    def room(self, consumer: str, prefetch: int) -> int:
        """How many more records a consumer may lease now.

        Args:
            prefetch: the consumer's own limit, 0 for none.
        """
        room = self.policy.max_leased - self.counts[LEASED]
        limits = [limit for limit in (prefetch, self.policy.prefetch) if limit]
        return min(room, min(limits) - self.holders.get(consumer, 0)) if limits else room

    def grant(
        self,
        consumer: str,
        limit: int,
        *,
        now_ms: int,
        wall_ms: int,
        lease_ms: int,
        sources: Container[int] | None = None,
    ) -> list[Grant]:
        """Lease up to `limit` records to a consumer, in order of priority, then of age."""
        grants: list[Grant] = []
        marks: dict[int, int] = {}
        stride = 0
        """How much further to look where nothing is ready any more."""
        while limit > 0:
            found = self.ready.pop(limit + stride, sources)
            if found is None:
                break
            level, source, first, end = found
            stride = min(2 * (limit + stride), _LONGEST_STRIDE)
            for a, until, value in list(self.maps[source].runs(first, end)):
                if value & STATE_MASK != READY:  # it expired or was purged since
                    continue
                b = min(until, a + limit)
                stride = 0
                history = value >> MARK_SHIFT
                number = marks.get(history)
                if number is None:
                    number = marks[history] = self._lease_mark(consumer, history, now_ms + lease_ms, wall_ms)
                count = min(count_of(value) + 1, _MAX_COUNT)
                leased = LEASED | value & LEVEL_MASK | count << COUNT_SHIFT | number << MARK_SHIFT
                self._change(source, a, b, value, leased)
                grants.append(Grant(source, a, b, count, level, number))
                limit -= b - a
                self.tally.delivered += b - a
                if count > 1:
                    self.tally.redelivered += b - a
                if not limit:
                    self.ready.push(level, source, b, end)
                    break
        return grants

    def still_leased(self, grant: Grant) -> bool:
        """Whether nothing of a grant was settled, undone or lost since."""
        mark = self.marks.get(grant.mark)
        return mark is not None and all(
            value >> MARK_SHIFT == grant.mark and value & STATE_MASK == LEASED
            for _, _, value in self.maps[grant.source].runs(grant.first, grant.end)
        )

    def _lease_mark(self, consumer: str, history: int, due_ms: int, wall_ms: int) -> int:
        before = self.marks.get(history)
        number = self._mark(
            Mark(
                consumer,
                before.first_ms if before else wall_ms,
                wall_ms,
                due_ms,
                before.error if before else "",
            )
        )
        self._time(number)
        return number

    def _time(self, number: int) -> None:
        """Have a mark looked at when it is due. One whose time is put off keeps its timer, so that timers do not pile up."""
        mark = self.marks[number]
        if not mark.timer_ms or mark.due_ms < mark.timer_ms:
            mark.timer_ms = mark.due_ms
            self.lease_timers.add(mark.due_ms, number)

    def _shared_mark(self, old: int, due_ms: int, error: str, reason: str = "") -> int:
        """A mark for records that were delivered together (mark `old`, 0: never) and now come back, or die, in the same way.

        Args:
            error: "": the one that is known.
        """
        error = error[:_MAX_ERROR]
        key = (old, due_ms, error, reason)
        number = self._shared_marks.get(key, 0)
        if number in self.marks:
            return number
        before = self.marks.get(old) or _NEVER_DELIVERED
        number = self._mark(
            Mark(before.consumer, before.first_ms, before.last_ms, due_ms, error or before.error, reason)
        )
        if due_ms:
            self._time(number)
        if len(self._shared_marks) >= _MAX_SHARED:
            self._shared_marks.clear()
        self._shared_marks[key] = number
        return number

    def _mark(self, mark: Mark) -> int:
        self._last_mark += 1
        self.marks[self._last_mark] = mark
        return self._last_mark

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    def leased_runs(self, consumer: str, source: int, first: int, end: int, delivery: int = 0) -> list[Run]:
        """The runs of [first, end), all of which the consumer must have leased (holes between records aside).

        Args:
            delivery: what their delivery count must be; 0: any.

        Raises:
            NotLeased, LeaseExpired, LeasedByAnother
        """
        if not self.starts[source] <= first < end:
            raise NotLeased(_not_leased(first, end))
        leased: list[Run] = []
        for run in self.maps[source].runs(first, end):
            value = run[2]
            state = value & STATE_MASK
            if state == LEASED:
                if self.marks[value >> MARK_SHIFT].consumer != consumer:
                    raise LeasedByAnother(f"the record at offset {run[0]} is leased by another consumer")
                if delivery and count_of(value) != delivery:
                    raise LeaseExpired(
                        f"the lease of the record at offset {run[0]} ended, and the record was delivered again"
                    )
                leased.append(run)
            elif state != GAP:
                # Who asks again takes "not leased" for done: so of what was delivered and is to be delivered again only its lease is over, whoever had it since.
                mark = self.marks.get(value >> MARK_SHIFT)
                was_here = mark is not None and mark.consumer == consumer
                if was_here or (state != DONE and count_of(value)):
                    raise LeaseExpired(
                        f"the lease of the record at offset {run[0]} ended; it was not settled in time"
                    )
                raise NotLeased(_not_leased(run[0], run[1]))
        if not leased:
            raise NotLeased(_not_leased(first, end))
        return leased

    def acknowledge(self, source: int, runs: Iterable[Run]) -> None:
        """Leased runs are done."""
        for first, end, value in runs:
            self._finish(source, first, end, value)
            self.tally.acknowledged += end - first
        self.advance(source)

    def back(self, source: int, runs: Iterable[Run], now_ms: int, delay_ms: int, error: str) -> None:
        """Leased runs were not handled: ready again after a delay (-1: by the policy), or dead at the limit."""
        limit = self.policy.delivery_limit
        for first, end, value in runs:
            if limit and count_of(value) >= limit:
                self._doom(source, (first, end, value), DELIVERY_LIMIT, error)
                continue
            wait_ms = delay_ms
            if delay_ms < 0:
                wait_ms = self.policy.backoff_after(count_of(value), self._jitter())
            self._come_back(source, (first, end, value), now_ms + wait_ms if wait_ms else 0, error)
        self.advance(source)

    def _come_back(self, source: int, run: Run, due_ms: int, error: str) -> None:
        first, end, value = run
        number = self._shared_mark(value >> MARK_SHIFT, due_ms, error)
        state = DELAYED if due_ms else READY
        self._change(
            source, first, end, value, state | value & (LEVEL_MASK | COUNT_MASK) | number << MARK_SHIFT
        )
        if not due_ms:
            self._push(source, first, end, value)
        self._is_back(source, first, end)

    def _is_back(self, source: int, first: int, end: int) -> None:
        """Records are not leased any more: those whose time to expire came meanwhile expire at the next tick."""
        for ref in self._overdue_of(source, first, end):
            self.expiry_timers.add(self._overdue.pop(ref), ref)

    def _overdue_of(self, source: int, first: int, end: int) -> list[int]:
        overdue = self._overdue
        if not overdue:
            return []
        low, high = source << SOURCE_SHIFT | first, source << SOURCE_SHIFT | end
        if len(overdue) < end - first:
            return [ref for ref in overdue if low <= ref < high]
        return [ref for ref in range(low, high) if ref in overdue]

    def _push(self, source: int, first: int, end: int, value: int) -> None:
        """Records are ready again. Those that the scanner did not reach yet, after a restart, it will find."""
        end = min(end, self._scanned[source])
        if first < end:
            self.ready.push(level_of(value), source, first, end)

    def take_back(self, source: int, runs: Iterable[Run]) -> None:
        """Leased runs were not delivered, or not begun: ready again, and this delivery does not count."""
        for first, end, value in runs:
            back = READY | value & LEVEL_MASK
            count = count_of(value) - 1
            if count:
                number = self._shared_mark(value >> MARK_SHIFT, 0, "")
                back |= count << COUNT_SHIFT | number << MARK_SHIFT
            self._change(source, first, end, value, back)
            self._push(source, first, end, value)
            self._is_back(source, first, end)

    def undo(self, grants: Iterable[Grant]) -> None:
        """Grants that were not delivered, as if they had never been made. What became something else meanwhile stays so."""
        for grant in grants:
            runs = [
                run
                for run in self.maps[grant.source].runs(
                    max(grant.first, self.starts[grant.source]), grant.end
                )
                if run[2] & STATE_MASK == LEASED and run[2] >> MARK_SHIFT == grant.mark
            ]
            self.take_back(grant.source, runs)
            count = sum(end - first for first, end, _ in runs)
            self.tally.delivered -= count
            if grant.deliveries > 1:
                self.tally.redelivered -= count

    def reject(self, source: int, runs: Iterable[Run], reason: str) -> None:
        """Leased runs can never be handled."""
        for first, end, value in runs:
            self.tally.rejected += end - first
            self._doom(source, (first, end, value), REJECTED, reason)
        self.advance(source)

    def extend(self, source: int, runs: Iterable[Run], due_ms: int) -> None:
        """Leased runs are leased until `due_ms`."""
        for first, end, value in runs:
            mark = self.marks[value >> MARK_SHIFT]
            if mark.records == end - first:
                mark.due_ms, mark.kept = due_ms, None
                self._time(value >> MARK_SHIFT)
                self._touch(source, first, end)
                continue
            number = self._mark(Mark(mark.consumer, mark.first_ms, mark.last_ms, due_ms, mark.error))
            self._time(number)
            self._change(source, first, end, value, value & BELOW_MARK | number << MARK_SHIFT)

    def held_by(self, consumer: str) -> list[tuple[int, Run]]:
        """(source, run) of everything that a consumer has leased."""
        held: list[tuple[int, Run]] = []
        if not self.holders.get(consumer):
            return held
        for number, mark in self.marks.items():
            if mark.consumer == consumer:
                held.extend((source, run) for source, run in self._runs_of(number, mark, LEASED))
        return held

    def _runs_of(self, number: int, mark: Mark, state: int) -> list[tuple[int, Run]]:
        return [
            (source, run)
            for source, first, end in mark.pieces
            for run in self.maps[source].runs(max(first, self.starts[source]), end)
            if run[2] >> MARK_SHIFT == number and run[2] & STATE_MASK == state
        ]

    # ── the end of a record ───────────────────────────────────────────────────────────────────────

    def doom(self, source: int, first: int, end: int, reason: str, error: str) -> None:
        """Records that are not leased go to the dead letters (with their parents)."""
        for a, b, value in list(self.maps[source].runs(max(first, self.starts[source]), end)):
            if value & STATE_MASK in (UNKNOWN, *_WAITING):
                self._doom(source, (a, b, value), reason, error)

    def _doom(self, source: int, run: Run, reason: str, error: str) -> None:
        first, end, value = run
        if not self.has_dead_letters:
            self.tally.dropped += end - first
            self._finish(source, first, end, value, failed=True)
            return
        number = self._shared_mark(value >> MARK_SHIFT, 0, error, reason)
        moving = MOVING | value & (LEVEL_MASK | COUNT_MASK) | number << MARK_SHIFT
        self._change(source, first, end, value, moving)
        self.doomed.append(Doomed(source, first, end))
        self._ended(source, first, end, failed=True)

    def moved(self, source: int, first: int, end: int) -> None:
        """The dead letters of these records are kept (or the records are gone)."""
        for a, b, value in list(self.maps[source].runs(max(first, self.starts[source]), end)):
            if value & STATE_MASK == MOVING:
                is_redrive = self.marks[value >> MARK_SHIFT].reason == REDRIVE
                self._change(source, a, b, value, DONE)
                if is_redrive:
                    self._ended(source, a, b, failed=False)
                else:
                    self.tally.dead += b - a
        self.advance(source)

    # ── sending back ──────────────────────────────────────────────────────────────────────────────

    def set_aside(self, source: int, first: int, end: int) -> list[tuple[int, int]]:
        """Take records that are ready, or were not looked at yet, from the consumers, to move them elsewhere; which were there.

        No delivery is counted. `moved` finishes them, `put_back` undoes it.
        """
        taken: list[tuple[int, int]] = []
        # What has an order must be looked at first.
        takes = (READY,) if self.orders_keys or self.tells_finished else (UNKNOWN, READY)
        for a, b, value in list(self.maps[source].runs(max(first, self.starts[source]), end)):
            state = value & STATE_MASK
            if state not in takes:
                continue
            number = self._shared_mark(value >> MARK_SHIFT, 0, "", REDRIVE)
            kept = value & (LEVEL_MASK | COUNT_MASK) if state == READY else NO_LEVEL << LEVEL_SHIFT
            self._change(source, a, b, value, MOVING | kept | number << MARK_SHIFT)
            taken.append((a, b))
        return taken

    def is_set_aside(self, value: int) -> bool:
        """Whether a record of this value was set aside."""
        return value & STATE_MASK == MOVING and self.marks[value >> MARK_SHIFT].reason == REDRIVE

    def put_back(self, source: int, ranges: Iterable[tuple[int, int]]) -> None:
        """What was set aside of these ranges [first, end) is ready as before."""
        for first, end in ranges:
            for run in list(self.maps[source].runs(max(first, self.starts[source]), end)):
                if self.is_set_aside(run[2]):
                    self._put_back(source, run)
        # The ranges may lie there still: nobody looks for them when they are set aside.
        self.ready.clear(source)
        scanned = self._scanned[source]
        for a, b, value in self.maps[source].runs(self.starts[source], max(scanned, self.starts[source])):
            if value & STATE_MASK == READY:
                self.ready.push(level_of(value), source, a, b)

    def _put_back(self, source: int, run: Run) -> None:
        first, end, value = run
        self._is_back(source, first, end)
        back = READY | value & (LEVEL_MASK | COUNT_MASK)
        if value & COUNT_MASK:
            number = self._shared_mark(value >> MARK_SHIFT, 0, "")
            self._change(source, first, end, value, back | number << MARK_SHIFT)
            return
        scanned = min(max(first, self._scanned[source]), end)
        if first < scanned:
            self._change(source, first, scanned, value, back)
        if scanned < end:  # the scanner has yet to look at them
            self._change(source, scanned, end, value, UNKNOWN)

    def finished_in(self, source: int, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [first, end) of which nothing is left to do."""
        start = min(max(first, self.starts[source]), end)
        if first < start:
            yield first, start
        for a, b, value in self.maps[source].runs(start, end):
            if value & STATE_MASK >= DONE:
                yield a, b

    def end_of(self, source: int) -> int:
        """Nothing is known of records from here on."""
        pages = self.maps[source].pages()
        return max(self.starts[source], (pages[-1] + 1) * RangeMap.PAGE) if pages else self.starts[source]

    def discard(self, source: int, first: int, end: int, states: Container[int] = _WAITING) -> int:
        """Finish records that nobody handled: purged, or deleted by retention; returns how many."""
        runs = [
            run
            for run in self.maps[source].runs(max(first, self.starts[source]), end)
            if run[2] & STATE_MASK in states
        ]
        runs.sort(key=_blocked_first)
        count = 0
        for a, b, value in runs:
            self._finish(source, a, b, value)
            count += b - a
        self.advance(source)
        return count

    def _finish(self, source: int, first: int, end: int, value: int, *, failed: bool = False) -> None:
        self._change(source, first, end, value, DONE)
        self._ended(source, first, end, failed=failed)

    def _ended(self, source: int, first: int, end: int, *, failed: bool) -> None:
        """Nobody need wait for these any more."""
        for ref in self._overdue_of(source, first, end):
            del self._overdue[ref]
        if self.tells_finished:
            self.finished.append((source, first, end, failed))
        if self.orders_keys:
            for offset in range(first, end):
                ref = source << SOURCE_SHIFT | offset
                self._delayed_keys.pop(ref, None)
                heir = self.keys.leave(ref)
                while heir is not None and not self.unblock(heir >> SOURCE_SHIFT, heir & OFFSET_MASK):
                    heir = self.keys.leave(heir)

    def advance(self, source: int) -> None:
        """Move the start behind what is finished."""
        start = self.starts[source]
        # Nearly always, where the order is not that of the log:
        if self.maps[source].get(start) & STATE_MASK < DONE:
            return
        while True:
            moved = start
            for _, end, value in self.maps[source].runs(start, start + 16 * RangeMap.PAGE):
                if value & STATE_MASK < DONE:
                    break
                moved = end
            if moved == start:
                break
            start = moved
        if start == self.starts[source]:
            return
        page = self.starts[source] >> RangeMap.PAGE_BITS
        self.starts[source] = start
        self.moved_starts.add(source)
        if start >> RangeMap.PAGE_BITS != page:
            self.dirty.update((source, each) for each in range(page, start >> RangeMap.PAGE_BITS))
            self.maps[source].forget_before(start)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def tick(self, now_ms: int, wall_ms: int, limit: int = _DUE_AT_ONCE) -> None:
        """Whatever is due by now, at most about `limit` of each kind; `next_times` tells when to come again."""
        room = limit
        for time_ms, number in self.lease_timers.pop_due(now_ms, limit):
            room = self._due(number, time_ms, now_ms, room)
        for _, ref in self.delivery_timers.pop_due(wall_ms, limit):
            self._deliverable(ref)
        for time_ms, ref in self.expiry_timers.pop_due(wall_ms, limit):
            self._expired(ref, time_ms)
        if self._held_back:
            self._let_go()

    def next_times(self) -> tuple[int | None, int | None]:
        """(monotonic, wall) time of what is due next."""
        walls = [
            time
            for time in (self.delivery_timers.next_time(), self.expiry_timers.next_time())
            if time is not None
        ]
        due_ms = self.lease_timers.next_time()
        if self._held_back and not self._horizons:
            due_ms = 0
        return due_ms, min(walls, default=None)

    def _is_unfinished(self, ref: int) -> bool:
        return self.value_at(ref >> SOURCE_SHIFT, ref & OFFSET_MASK) & STATE_MASK < DONE

    def _due(self, number: int, time_ms: int, now_ms: int, room: int) -> int:
        """A mark's timer fires. At most `room` runs are dealt with, the others at the next tick; how many may still be."""
        mark = self.marks.get(number)
        if mark is None or time_ms != mark.timer_ms:  # settled, or another timer runs
            return room
        mark.timer_ms = 0
        if mark.due_ms > now_ms:  # extended
            self._time(number)
            return room
        for index, (source, first, end) in enumerate(mark.pieces):
            runs = self.maps[source].runs(max(first, self.starts[source]), end)
            due = list(islice((run for run in runs if _waits_with(run[2], number)), max(room, 0) + 1))
            room -= len(due)
            if room < 0:
                mark.pieces[: index + 1] = [(source, due[-1][0], end)]
                mark.timer_ms = now_ms
                self.lease_timers.add(now_ms, number)
                due.pop()
            for run in due:
                self._run_due(source, run, now_ms)
            if room < 0:
                return 0
        return room

    def _run_due(self, source: int, run: Run, now_ms: int) -> None:
        first, end, value = run
        if value & STATE_MASK == LEASED:
            self.back(source, [run], now_ms, -1, LEASE_ENDED)
        else:
            self._change(source, first, end, value, READY | value & ~STATE_MASK)
            self._push(source, first, end, value)

    def _deliverable(self, ref: int) -> None:
        source, offset = ref >> SOURCE_SHIFT, ref & OFFSET_MASK
        key = self._delayed_keys.pop(ref, 0)
        value = self.value_at(source, offset)
        if value & STATE_MASK == DELAYED and not value & COUNT_MASK:
            self._gate(source, offset, value, value & ~STATE_MASK, key, blocked=self.is_waiting(ref))

    def is_waiting(self, ref: int) -> bool:  # noqa: ARG002 - for queues with parents
        """Whether a record waits for a parent; `QueueState` puts its index here."""
        return False

    def _expired(self, ref: int, time_ms: int) -> None:
        source, offset = ref >> SOURCE_SHIFT, ref & OFFSET_MASK
        value = self.value_at(source, offset)
        state = value & STATE_MASK
        if state in _WAITING:
            self.tally.expired += 1
            self._finish(source, offset, offset + 1, value, failed=True)
            self.advance(source)
        elif state == LEASED or self.is_set_aside(value):
            self._overdue[ref] = time_ms

    # ── every change of a record ──────────────────────────────────────────────────────────────────

    def _change(self, source: int, first: int, end: int, old: int, new: int) -> None:
        count = end - first
        counts = self.counts
        counts[old & STATE_MASK] -= count
        counts[new & STATE_MASK] += count
        keeps_mark = old >> MARK_SHIFT == new >> MARK_SHIFT
        if old >> MARK_SHIFT and not keeps_mark:
            self._unmark(old, count)
        if new >> MARK_SHIFT and not keeps_mark:
            mark = self.marks[new >> MARK_SHIFT]
            mark.add(source, first, end)
            if new & STATE_MASK == LEASED:
                self.holders[mark.consumer] = self.holders.get(mark.consumer, 0) + count
        self.maps[source].set(first, end, new)
        if must_be_kept(old) or must_be_kept(new):
            self._touch(source, first, end)

    def _unmark(self, old: int, count: int) -> None:
        number = old >> MARK_SHIFT
        mark = self.marks[number]
        mark.records -= count
        if not mark.records:
            del self.marks[number]
        if old & STATE_MASK == LEASED:
            left = self.holders[mark.consumer] - count
            if left:
                self.holders[mark.consumer] = left
            else:
                del self.holders[mark.consumer]

    def _touch(self, source: int, first: int, end: int) -> None:
        page, last = first >> RangeMap.PAGE_BITS, (end - 1) >> RangeMap.PAGE_BITS
        if page == last:
            self.dirty.add((source, page))
        else:
            self.dirty.update((source, each) for each in range(page, last + 1))

    # ── coming back after a restart ───────────────────────────────────────────────────────────────

    def restore(self, source: int, runs: Iterable[tuple[int, int, int, Mark | None]]) -> None:
        """Runs as they were persisted, their values without marks; before anything is scanned. `due_ms` of a mark is monotonic time."""
        numbers: dict[int, int] = {}
        for first, end, value, mark in runs:
            number = 0
            if mark is not None:
                number = numbers.get(id(mark), 0) or self._mark(mark)
                numbers[id(mark)] = number
            self._change(source, first, end, self.maps[source].get(first), value | number << MARK_SHIFT)
            if value & STATE_MASK == MOVING:
                self.doomed.append(Doomed(source, first, end))
            elif mark is not None and mark.due_ms:
                self._time(number)
            if self.orders_keys and value & STATE_MASK in (LEASED, DELAYED, MOVING):
                self._horizons[source] = end
        self.dirty.clear()
        self.advance(source)


def _waits_with(value: int, mark: int) -> bool:
    """Whether records of this value are leased, or delayed, with a mark."""
    return value >> MARK_SHIFT == mark and value & STATE_MASK in (LEASED, DELAYED)


def _blocked_first(run: Run) -> bool:
    """Else the end of the one that blocks them would make them ready meanwhile."""
    return run[2] & STATE_MASK != BLOCKED


def _not_leased(first: int, end: int) -> str:
    where = (
        f"record at offset {first} is"
        if end - first == 1
        else f"records from offset {first} to {end - 1} are"
    )
    return f"the {where} not leased (settled before, or never delivered)"
