"""Delivery state of one subscriber of a queue: leases, retries, delays and dead letters.

A queue of competing consumers has one subscriber; a queue whose records several subscribers must
acknowledge has one `SubscriberState` for each. The class is pure: time is passed to each call
(monotonic for leases, wall for `deliver-at` and `expires-at`), and effects are collected in `dirty`
(what to persist), `dead_records` (what to move to the dead letters) and `finished` (records whose
children may go on).

Everything works on ranges. A record is handled by itself only if it differs from its neighbours by
a key, a delay or a parent. Leases are in `leases.py`, the order of keys in `key_order.py`.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import LeasedByAnother, LeaseExpired, NotLeased
from sparrow.broker.queues.maps.range_map import RangeMap
from sparrow.broker.queues.rules.key_order import KeyOrder
from sparrow.broker.queues.rules.leases import LeaseTable
from sparrow.broker.queues.rules.ready import ReadyRanges
from sparrow.broker.queues.rules.record_state import (
    BELOW_LEASE,
    BLOCKED,
    COUNT_MASK,
    COUNT_SHIFT,
    DELAYED,
    DONE,
    GAP,
    LEASE_SHIFT,
    LEASED,
    LEVEL_MASK,
    LEVEL_SHIFT,
    MOVING,
    NO_LEVEL,
    OFFSET_MASK,
    PERSISTED,
    READY,
    SOURCE_SHIFT,
    STATE_MASK,
    UNKNOWN,
    count_of,
    level_of,
)
from sparrow.broker.queues.rules.settlement import DELIVERY_LIMIT, REJECTED
from sparrow.broker.queues.rules.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    from sparrow.base.queue_policy import QueuePolicy
    from sparrow.broker.queues.rules.kept_page import KeptPage
    from sparrow.broker.queues.rules.leases import Lease

PARENT_FAILED: Final = "PARENT_FAILED"
PARENT_MISSING: Final = "PARENT_MISSING"
PARENT_CYCLE: Final = "PARENT_CYCLE"
REDRIVE: Final = "REDRIVE"
"""No reason of a death: marks records that are MOVING back to where they came from."""
LEASE_ENDED: Final = "the lease ended before the record was settled"
_MAX_COUNT: Final = 255
_LONGEST_STRIDE: Final = 1 << 20
_DUE_AT_ONCE: Final = 1000
"""Maximum number of timers of each kind that fire in one call of `tick`: a few milliseconds of
work.
"""
_PLAIN: Final = READY | NO_LEVEL << LEVEL_SHIFT
_WAITING: Final = (READY, DELAYED, BLOCKED)

Run = tuple[int, int, int]
"""(first offset, end, value)."""


class Grant(NamedTuple):
    """Records [first, end) of a source that a consumer has just leased."""

    source: int
    first: int
    end: int
    deliveries: int
    """Number of deliveries, this one included."""
    level: int = NO_LEVEL
    lease: int = 0
    """Number of the lease, which distinguishes it from a later lease of the same records."""


class DeadRecords(NamedTuple):
    """Records that are to be moved to the dead letters."""

    source: int
    first: int
    end: int


@dataclass(slots=True)
class Tally:
    """Counts of events since the broker started."""

    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    rejected: int = 0
    expired: int = 0
    dropped: int = 0
    dead: int = 0
    lost: int = 0


class SubscriberState:
    """State of the records of one subscriber, over all sources of the queue.

    Args:
        scanned: offset up to which each source was scanned; the queue's own list, live.
        jitter: returns a random number from -1 to 1.
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
        """For each source, the offset before which everything is finished."""
        self._kept: list[deque[tuple[int, int]]] = []
        """For each source (page, number of records) of what was restored and not scanned yet."""
        self.ready = ReadyRanges()
        self.key_order = KeyOrder()
        self.leases = LeaseTable()
        self.counts = [0] * 8
        """Number of records in each state. The entries of UNKNOWN, DONE and GAP have no meaning."""
        self.delivery_timers = Timers(self._is_unfinished)
        """Wall time from which a record may be delivered."""
        self.expiry_timers = Timers(self._is_unfinished)
        """Wall time at which a record expires."""
        self._overdue: dict[int, int] = {}
        """Expiry times of leased records that passed during the lease. These records expire when
        the lease ends.
        """
        self.tally = Tally()
        self.dirty: set[tuple[int, int]] = set()
        """Pages (source, page) that differ from their last persisted form."""
        self.moved_starts: set[int] = set()
        """Sources whose start differs from the last persisted one."""
        self.dead_records: list[DeadRecords] = []
        self.finished: list[tuple[int, int, int, bool]] = []
        """(source, first, end, failed) of finished records, for queues with parents."""
        self.tells_finished = policy.order == "parented"
        self.orders_keys = policy.order == "key"

    # ── sources ───────────────────────────────────────────────────────────────────────────────────

    def add_source(self, start: int) -> None:
        """Add a source of which everything from `start` on is to be delivered."""
        self.maps.append(RangeMap())
        self.starts.append(start)
        self._kept.append(deque())

    def restart_source(self, source: int, start: int) -> None:
        """Forget everything of a source and begin at `start`. Nothing of it may be leased."""
        self.forget_source(source)
        self.dirty.update((source, page) for page in self.maps[source].pages())
        self.maps[source] = RangeMap()
        self.starts[source] = start
        self.moved_starts.add(source)

    def forget_source(self, source: int) -> None:
        """Finish everything of a source that is gone, leased or not."""
        self.discard(
            source,
            self.starts[source],
            self.end_of(source),
            (READY, LEASED, DELAYED, BLOCKED, MOVING),
        )
        self._kept[source].clear()
        self.ready.clear(source)
        self.key_order.forget_source(source)
        self._admit_deferred()

    @property
    def leased(self) -> int:
        return self.counts[LEASED]

    @property
    def unfinished(self) -> int:
        """Number of records that were scanned and are not done."""
        return sum(self.counts[READY : MOVING + 1])

    # ── what the scanner finds ────────────────────────────────────────────────────────────────────

    def enter_plain(self, source: int, first: int, end: int) -> None:
        """Make the records [first, end), which ask for nothing special, ready."""
        first = max(first, self.starts[source])
        if first >= end:
            return
        for a, b, value in list(self.maps[source].runs(first, end)):
            if value == UNKNOWN:
                self._change(source, a, b, UNKNOWN, _PLAIN)
                self.ready.push(NO_LEVEL, source, a, b)
            elif value & STATE_MASK == READY:  # came back before a restart
                self.ready.push(level_of(value), source, a, b)
            # blocked by an order that the queue's policy does not ask for any more
            elif value & STATE_MASK == BLOCKED:
                self._change(source, a, b, value, READY | value & ~STATE_MASK)
                self.ready.push(level_of(value), source, a, b)

    def enter_gap(self, source: int, first: int, end: int) -> None:
        """Note that there are no records in [first, end), or none for this subscriber."""
        first = max(first, self.starts[source])
        if first >= end:
            return
        for a, b, value in list(self.maps[source].runs(first, end)):
            if value == UNKNOWN:
                self._change(source, a, b, UNKNOWN, GAP)
        self.advance(source)

    def value_at(self, source: int, offset: int) -> int:
        """Return the value of a record; DONE before the start."""
        return DONE if offset < self.starts[source] else self.maps[source].get(offset)

    def enter(self, source: int, offset: int, level: int, key: int, *, blocked: bool) -> None:
        """Enter a record that may be delivered unless its parents (`blocked`) or its key keep it
        back.
        """
        if offset < self.starts[source]:
            return
        value = self.maps[source].get(offset)
        state = value & STATE_MASK
        if state == UNKNOWN:
            self._gate(source, offset, UNKNOWN, level << LEVEL_SHIFT, key, blocked=blocked)
        elif state in (READY, BLOCKED):  # came back before a restart
            self._gate(source, offset, value, value & ~STATE_MASK, key, blocked=blocked)
        elif key and self.orders_keys and (state in (LEASED, DELAYED) or self.is_redriving(value)):
            self.key_order.enter_now(key, source << SOURCE_SHIFT | offset)

    def delay(self, source: int, offset: int, level: int, key: int, deliver_at_ms: int) -> None:
        """Enter a record that must not be delivered before `deliver_at_ms`."""
        # Delivered before, so its time has come.
        if self.value_at(source, offset) != UNKNOWN:
            self.enter(source, offset, level, key, blocked=False)
            return
        ref = source << SOURCE_SHIFT | offset
        self._change(source, offset, offset + 1, UNKNOWN, DELAYED | level << LEVEL_SHIFT)
        self.delivery_timers.add(deliver_at_ms, ref)
        if key and self.orders_keys:
            self.key_order.delay(ref, key)

    def expire_at(self, source: int, offset: int, expires_at_ms: int) -> None:
        """Have a record expire. Call it after `enter` or `delay`."""
        if self.value_at(source, offset) & STATE_MASK in (READY, LEASED, DELAYED, BLOCKED):
            self.expiry_timers.add(expires_at_ms, source << SOURCE_SHIFT | offset)

    def _gate(self, source: int, offset: int, old: int, rest: int, key: int, *, blocked: bool) -> None:
        """Make a record ready, or block it if parents or an earlier record of its key keep it
        back.
        """
        if key and self.orders_keys and not self.key_order.enter(key, source << SOURCE_SHIFT | offset):
            blocked = True
        new = (BLOCKED if blocked else READY) | rest
        if new != old:
            self._change(source, offset, offset + 1, old, new)
        if not blocked:
            self.ready.push(level_of(rest), source, offset, offset + 1)

    def scanned_to(self, source: int, end: int) -> None:
        """Note how far the scanner is. Once it has met all records that were in flight before a
        restart, deferred records of the same keys may follow.
        """
        self.key_order.scanned_to(source, end)
        self._admit_deferred()

    def _admit_deferred(self) -> None:
        """Let some deferred records join their keys, behind the records that were in flight."""
        for ref, key in self.key_order.take_deferred(_DUE_AT_ONCE):
            source, offset = ref >> SOURCE_SHIFT, ref & OFFSET_MASK
            value = self.value_at(source, offset)
            if value & STATE_MASK == BLOCKED and self.key_order.enter_now(key, ref):
                self.unblock(source, offset)

    def unblock(self, source: int, offset: int) -> bool:
        """Make a blocked record ready. Return False if it was not blocked."""
        value = self.value_at(source, offset)
        if value & STATE_MASK != BLOCKED:
            return False
        self._change(source, offset, offset + 1, value, READY | value & ~STATE_MASK)
        self.ready.push(level_of(value), source, offset, offset + 1)
        return True

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    def room(self, consumer: str, prefetch: int) -> int:
        """Return how many more records a consumer may lease now.

        Args:
            prefetch: the consumer's own limit, 0 for none.
        """
        room = self.policy.max_leased - self.counts[LEASED]
        limit = self.policy.prefetch
        if prefetch and (not limit or prefetch < limit):
            limit = prefetch
        return min(room, limit - self.leases.leased_counts.get(consumer, 0)) if limit else room

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
        """Lease up to `limit` records to a consumer, by priority, then by age."""
        grants: list[Grant] = []
        leases: dict[int, int] = {}
        stride = 0
        """Number of offsets to look at beyond the limit, where popped ranges turned out not to be
        ready.
        """
        while limit > 0 and self.ready.records:
            found = self.ready.pop(limit + stride, sources)
            if found is None:
                break
            level, source, first, end = found
            stride = min(2 * (limit + stride), _LONGEST_STRIDE)
            for a, until, value in list(self.maps[source].runs(first, end)):
                if value & STATE_MASK != READY:  # expired or purged since
                    continue
                b = min(until, a + limit)
                stride = 0
                history = value >> LEASE_SHIFT
                number = leases.get(history)
                if number is None:
                    number = leases[history] = self.leases.deliver(
                        consumer, history, now_ms + lease_ms, wall_ms
                    )
                count = min(count_of(value) + 1, _MAX_COUNT)
                leased = LEASED | value & LEVEL_MASK | count << COUNT_SHIFT | number << LEASE_SHIFT
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
        """Return True if all records of a grant still have its lease."""
        if grant.lease not in self.leases.by_number:
            return False
        for _, _, value in self.maps[grant.source].runs(grant.first, grant.end):
            if value >> LEASE_SHIFT != grant.lease or value & STATE_MASK != LEASED:
                return False
        return True

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    def leased_runs(self, consumer: str, source: int, first: int, end: int, delivery: int = 0) -> list[Run]:
        """Return the runs of [first, end), all of which the consumer must have leased. Gaps between
        records are skipped.

        Args:
            delivery: the delivery count that the records must have; 0: any.

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
                if self.leases.by_number[value >> LEASE_SHIFT].consumer != consumer:
                    raise LeasedByAnother(f"the record at offset {run[0]} is leased by another consumer")
                if delivery and count_of(value) != delivery:
                    raise LeaseExpired(
                        f"the lease of the record at offset {run[0]} ended, and the record was "
                        "delivered again"
                    )
                leased.append(run)
            elif state != GAP:
                # A client that repeats a request takes "not leased" for "done". So a record that
                # was delivered and will be delivered again gets LeaseExpired, even if another
                # consumer had it since.
                lease = self.leases.by_number.get(value >> LEASE_SHIFT)
                was_here = lease is not None and lease.consumer == consumer
                if was_here or (state != DONE and count_of(value)):
                    raise LeaseExpired(
                        f"the lease of the record at offset {run[0]} ended; it was not settled in time"
                    )
                raise NotLeased(_not_leased(run[0], run[1]))
        if not leased:
            raise NotLeased(_not_leased(first, end))
        return leased

    def ack(self, source: int, runs: Iterable[Run]) -> None:
        """Finish leased runs."""
        for first, end, value in runs:
            self._finish(source, first, end, value)
            self.tally.acknowledged += end - first
        self.advance(source)

    def nack(self, source: int, runs: Iterable[Run], now_ms: int, delay_ms: int, error: str) -> None:
        """Retry leased runs after a delay (-1: by the policy), or give them up at the delivery
        limit.
        """
        limit = self.policy.delivery_limit
        for first, end, value in runs:
            if limit and count_of(value) >= limit:
                self._give_up(source, (first, end, value), DELIVERY_LIMIT, error)
                continue
            wait_ms = delay_ms
            if delay_ms < 0:
                wait_ms = self.policy.backoff_after(count_of(value), self._jitter())
            self._retry(source, (first, end, value), now_ms + wait_ms if wait_ms else 0, error)
        self.advance(source)

    def _retry(self, source: int, run: Run, due_ms: int, error: str) -> None:
        first, end, value = run
        number = self.leases.share(value >> LEASE_SHIFT, due_ms, error)
        state = DELAYED if due_ms else READY
        self._change(
            source, first, end, value, state | value & (LEVEL_MASK | COUNT_MASK) | number << LEASE_SHIFT
        )
        if not due_ms:
            self._push(source, first, end, value)
        self._lease_ended(source, first, end)

    def _lease_ended(self, source: int, first: int, end: int) -> None:
        """Have records expire at the next tick if their expiry time passed during the lease."""
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
        """Add records to the ready ranges. After a restart the scanner adds those that it did not
        meet yet.
        """
        end = min(end, self._scanned[source])
        if first < end:
            self.ready.push(level_of(value), source, first, end)

    def release(self, source: int, runs: Iterable[Run]) -> None:
        """Make leased runs ready that were not delivered, or not begun. This delivery does not
        count.
        """
        for first, end, value in runs:
            back = READY | value & LEVEL_MASK
            count = count_of(value) - 1
            if count:
                number = self.leases.share(value >> LEASE_SHIFT, 0, "")
                back |= count << COUNT_SHIFT | number << LEASE_SHIFT
            self._change(source, first, end, value, back)
            self._push(source, first, end, value)
            self._lease_ended(source, first, end)

    def release_grants(self, grants: Iterable[Grant]) -> None:
        """Release grants that were not delivered, and take them out of the tally. Skip records that
        do not have the lease of the grant any more.
        """
        for grant in grants:
            runs = [
                run
                for run in self.maps[grant.source].runs(
                    max(grant.first, self.starts[grant.source]), grant.end
                )
                if run[2] & STATE_MASK == LEASED and run[2] >> LEASE_SHIFT == grant.lease
            ]
            self.release(grant.source, runs)
            count = sum(end - first for first, end, _ in runs)
            self.tally.delivered -= count
            if grant.deliveries > 1:
                self.tally.redelivered -= count

    def reject(self, source: int, runs: Iterable[Run], reason: str) -> None:
        """Give up leased runs that can never be handled."""
        for first, end, value in runs:
            self.tally.rejected += end - first
            self._give_up(source, (first, end, value), REJECTED, reason)
        self.advance(source)

    def extend(self, source: int, runs: Iterable[Run], due_ms: int) -> None:
        """Have the lease of leased runs end at `due_ms`."""
        for first, end, value in runs:
            number = self.leases.extend(value >> LEASE_SHIFT, end - first, due_ms)
            if number == value >> LEASE_SHIFT:
                self._touch(source, first, end)
            else:
                self._change(source, first, end, value, value & BELOW_LEASE | number << LEASE_SHIFT)

    def leased_by(self, consumer: str) -> list[tuple[int, Run]]:
        """Return (source, run) of everything that a consumer has leased."""
        return [
            (source, run)
            for number, lease in self.leases.of_consumer(consumer)
            for source, run in self._runs_of(number, lease, LEASED)
        ]

    def _runs_of(self, number: int, lease: Lease, state: int) -> list[tuple[int, Run]]:
        return [
            (source, run)
            for source, first, end in lease.pieces
            for run in self.maps[source].runs(max(first, self.starts[source]), end)
            if run[2] >> LEASE_SHIFT == number and run[2] & STATE_MASK == state
        ]

    # ── the end of a record ───────────────────────────────────────────────────────────────────────

    def give_up(self, source: int, first: int, end: int, reason: str, error: str) -> None:
        """Give up records that are not leased (as their parents were): they go to the dead
        letters.
        """
        for a, b, value in list(self.maps[source].runs(max(first, self.starts[source]), end)):
            if value & STATE_MASK in (UNKNOWN, *_WAITING):
                self._give_up(source, (a, b, value), reason, error)

    def _give_up(self, source: int, run: Run, reason: str, error: str) -> None:
        first, end, value = run
        if not self.has_dead_letters:
            self.tally.dropped += end - first
            self._finish(source, first, end, value, failed=True)
            return
        number = self.leases.share(value >> LEASE_SHIFT, 0, error, reason)
        moving = MOVING | value & (LEVEL_MASK | COUNT_MASK) | number << LEASE_SHIFT
        self._change(source, first, end, value, moving)
        self.dead_records.append(DeadRecords(source, first, end))
        self._end(source, first, end, failed=True)

    def finish_move(self, source: int, first: int, end: int) -> None:
        """Finish MOVING records: their copies are persisted, or the records are gone."""
        for a, b, value in list(self.maps[source].runs(max(first, self.starts[source]), end)):
            if value & STATE_MASK == MOVING:
                is_redrive = self.leases.by_number[value >> LEASE_SHIFT].reason == REDRIVE
                self._change(source, a, b, value, DONE)
                if is_redrive:
                    self._end(source, a, b, failed=False)
                else:
                    self.tally.dead += b - a
        self.advance(source)

    # ── sending back ──────────────────────────────────────────────────────────────────────────────

    def start_redrive(self, source: int, first: int, end: int) -> list[tuple[int, int]]:
        """Take records that are ready, or not scanned yet, from the consumers, to move them
        elsewhere. Return the ranges that were taken.

        No delivery is counted. Afterwards call `finish_move`, or `cancel_redrive`.
        """
        taken: list[tuple[int, int]] = []
        # Records of an ordered queue must be scanned first.
        takes = (READY,) if self.orders_keys or self.tells_finished else (UNKNOWN, READY)
        for a, b, value in list(self.maps[source].runs(max(first, self.starts[source]), end)):
            state = value & STATE_MASK
            if state not in takes:
                continue
            number = self.leases.share(value >> LEASE_SHIFT, 0, "", REDRIVE)
            kept = value & (LEVEL_MASK | COUNT_MASK) if state == READY else NO_LEVEL << LEVEL_SHIFT
            self._change(source, a, b, value, MOVING | kept | number << LEASE_SHIFT)
            taken.append((a, b))
        return taken

    def is_redriving(self, value: int) -> bool:
        """Return True if a record of this value was taken by `start_redrive`."""
        return value & STATE_MASK == MOVING and self.leases.by_number[value >> LEASE_SHIFT].reason == REDRIVE

    def cancel_redrive(self, source: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Make the records of these ranges [first, end) ready again that `start_redrive` took."""
        for first, end in ranges:
            for run in list(self.maps[source].runs(max(first, self.starts[source]), end)):
                if self.is_redriving(run[2]):
                    self._cancel_redrive(source, run)
        # `start_redrive` leaves its ranges in `ready`, so they may be there still.
        self.ready.clear(source)
        scanned = self._scanned[source]
        for a, b, value in self.maps[source].runs(self.starts[source], max(scanned, self.starts[source])):
            if value & STATE_MASK == READY:
                self.ready.push(level_of(value), source, a, b)

    def _cancel_redrive(self, source: int, run: Run) -> None:
        first, end, value = run
        self._lease_ended(source, first, end)
        back = READY | value & (LEVEL_MASK | COUNT_MASK)
        if value & COUNT_MASK:
            number = self.leases.share(value >> LEASE_SHIFT, 0, "")
            self._change(source, first, end, value, back | number << LEASE_SHIFT)
            return
        scanned = min(max(first, self._scanned[source]), end)
        if first < scanned:
            self._change(source, first, scanned, value, back)
        if scanned < end:  # the scanner will find them
            self._change(source, scanned, end, value, UNKNOWN)

    def finished_in(self, source: int, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of [first, end) that are finished."""
        start = min(max(first, self.starts[source]), end)
        if first < start:
            yield first, start
        for a, b, value in self.maps[source].runs(start, end):
            if value & STATE_MASK >= DONE:
                yield a, b

    def end_of(self, source: int) -> int:
        """Return the offset from which on nothing is known of records."""
        pages = self.maps[source].pages()
        return max(self.starts[source], (pages[-1] + 1) * RangeMap.PAGE) if pages else self.starts[source]

    def discard(self, source: int, first: int, end: int, states: Container[int] = _WAITING) -> int:
        """Finish records without a delivery (purged, or deleted by retention). Return their
        number.
        """
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
        self._end(source, first, end, failed=failed)

    def _end(self, source: int, first: int, end: int, *, failed: bool) -> None:
        """Unblock records that waited for these."""
        if self._overdue:
            for ref in self._overdue_of(source, first, end):
                del self._overdue[ref]
        if self.tells_finished:
            self.finished.append((source, first, end, failed))
        if self.orders_keys:
            for offset in range(first, end):
                ref = source << SOURCE_SHIFT | offset
                next_ref = self.key_order.leave(ref)
                while next_ref is not None and not self.unblock(
                    next_ref >> SOURCE_SHIFT, next_ref & OFFSET_MASK
                ):
                    next_ref = self.key_order.leave(next_ref)

    def finished_until(self, source: int, offset: int) -> int:
        """Return the first offset from `offset` on whose record is not finished."""
        offset = max(offset, self.starts[source])
        ranges = self.maps[source]
        while True:
            value, end = ranges.run_at(offset)
            if value & STATE_MASK < DONE:
                return offset
            offset = end

    def advance(self, source: int) -> None:
        """Move the start behind finished records."""
        start = self.finished_until(source, self.starts[source])
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
        """Do what is due by now, at most about `limit` of each kind. `next_times` returns when to
        call it again.
        """
        room = limit
        if now_ms >= self.leases.timers.earliest:
            for time_ms, number in self.leases.timers.pop_due(now_ms, limit):
                room = self._due(number, time_ms, now_ms, room)
        if wall_ms >= self.delivery_timers.earliest:
            for _, ref in self.delivery_timers.pop_due(wall_ms, limit):
                self._deliverable(ref)
        if wall_ms >= self.expiry_timers.earliest:
            for time_ms, ref in self.expiry_timers.pop_due(wall_ms, limit):
                self._expired(ref, time_ms)
        if self.orders_keys:
            self._admit_deferred()

    def next_times(self) -> tuple[int, int]:
        """Return the (monotonic, wall) time of the next due event, or NEVER."""
        due_ms = 0 if self.orders_keys and self.key_order.has_admissible else self.leases.timers.earliest
        return due_ms, min(self.delivery_timers.earliest, self.expiry_timers.earliest)

    def _is_unfinished(self, ref: int) -> bool:
        return self.value_at(ref >> SOURCE_SHIFT, ref & OFFSET_MASK) & STATE_MASK < DONE

    def _due(self, number: int, time_ms: int, now_ms: int, room: int) -> int:
        """Handle the timer of a lease: return its runs to the queue, at most `room`, and the others
        at the next tick. Return the room that is left.
        """
        lease = self.leases.fire(number, time_ms, now_ms)
        if lease is None:
            return room
        for index, (source, first, end) in enumerate(lease.pieces):
            runs = self.maps[source].runs(max(first, self.starts[source]), end)
            due = list(islice((run for run in runs if _waits_with(run[2], number)), max(room, 0) + 1))
            room -= len(due)
            if room < 0:
                self.leases.fire_again(number, index + 1, (source, due[-1][0], end), now_ms)
                due.pop()
            for run in due:
                self._run_due(source, run, now_ms)
            if room < 0:
                return 0
        return room

    def _run_due(self, source: int, run: Run, now_ms: int) -> None:
        first, end, value = run
        if value & STATE_MASK == LEASED:
            self.nack(source, [run], now_ms, -1, LEASE_ENDED)
        else:
            self._change(source, first, end, value, READY | value & ~STATE_MASK)
            self._push(source, first, end, value)

    def _deliverable(self, ref: int) -> None:
        source, offset = ref >> SOURCE_SHIFT, ref & OFFSET_MASK
        key = self.key_order.end_delay(ref)
        value = self.value_at(source, offset)
        if value & STATE_MASK == DELAYED and not value & COUNT_MASK:
            self._gate(source, offset, value, value & ~STATE_MASK, key, blocked=self.is_waiting(ref))

    def is_waiting(self, ref: int) -> bool:  # noqa: ARG002 - for queues with parents
        """Return True if a record waits for a parent. `QueueState` replaces this method by its
        index.
        """
        return False

    def _expired(self, ref: int, time_ms: int) -> None:
        source, offset = ref >> SOURCE_SHIFT, ref & OFFSET_MASK
        value = self.value_at(source, offset)
        state = value & STATE_MASK
        if state in _WAITING:
            self.tally.expired += 1
            self._finish(source, offset, offset + 1, value, failed=True)
            self.advance(source)
        elif state == LEASED or self.is_redriving(value):
            self._overdue[ref] = time_ms

    # ── every change of a record ──────────────────────────────────────────────────────────────────

    def _change(self, source: int, first: int, end: int, old: int, new: int) -> None:
        count = end - first
        counts = self.counts
        counts[old & STATE_MASK] -= count
        counts[new & STATE_MASK] += count
        keeps_lease = old >> LEASE_SHIFT == new >> LEASE_SHIFT
        if old >> LEASE_SHIFT and not keeps_lease:
            self.leases.leave(old, count)
        if new >> LEASE_SHIFT and not keeps_lease:
            self.leases.join(new, source, first, end)
        self.maps[source].set(first, end, new)
        if old & PERSISTED[old & STATE_MASK] or new & PERSISTED[new & STATE_MASK]:
            self._touch(source, first, end)

    def _touch(self, source: int, first: int, end: int) -> None:
        page, last = first >> RangeMap.PAGE_BITS, (end - 1) >> RangeMap.PAGE_BITS
        if page == last:
            self.dirty.add((source, page))
        else:
            self.dirty.update((source, each) for each in range(page, last + 1))

    # ── coming back after a restart ───────────────────────────────────────────────────────────────

    def restore(self, source: int, pages: Iterable[KeptPage]) -> None:
        """Enter what was kept of a source, before anything of it is scanned. `due_ms` of a lease is
        monotonic time.
        """
        for page in pages:
            values = [UNKNOWN] * len(page.values)
            numbers: dict[int, int] = {}
            known = 0
            for kind, (records, pieces) in enumerate(page.extents()):
                if not kind or not records:
                    continue
                value, lease = page.values[kind], page.leases[kind]
                if lease is not None:
                    number = numbers.get(id(lease), 0) or self.leases.add(lease)
                    numbers[id(lease)] = number
                    value |= number << LEASE_SHIFT
                    self.leases.join_again(value, records, [(source, *piece) for piece in pieces])
                values[kind] = value
                known += records
                self._restored(source, value, records, pieces[-1][1])
            kinds = page.kinds
            self.maps[source].set_page(page.number, page.starts, array("q", map(values.__getitem__, kinds)))
            self._kept[source].append((page.number, known))
            if any(value & STATE_MASK == MOVING for value in values):
                self._move_again(source, page)
        self.advance(source)

    def kept_from(self, source: int, offset: int) -> int:
        """Return the number of records at and behind `offset`, up to which was scanned, whose state
        came back at the last start.
        """
        kept, page = self._kept[source], offset >> RangeMap.PAGE_BITS
        while kept and kept[0][0] < page:
            kept.popleft()
        if not kept or kept[0][0] > page:
            return sum(records for _, records in kept)
        runs = self.maps[source].runs(offset, page + 1 << RangeMap.PAGE_BITS)
        here = sum(end - first for first, end, value in runs if value)
        return here + sum(records for _, records in kept) - kept[0][1]

    def _restored(self, source: int, value: int, records: int, end: int) -> None:
        """Count records of one value that came back, the last of them before `end`."""
        state, number = value & STATE_MASK, value >> LEASE_SHIFT
        self.counts[state] += records
        if number and state != MOVING and self.leases.by_number[number].due_ms:
            self.leases.arm(number)
        if self.orders_keys and state in (LEASED, DELAYED, MOVING):
            self.key_order.set_horizon(source, end)

    def _move_again(self, source: int, page: KeptPage) -> None:
        for first, end, value, _ in page.runs():
            if value & STATE_MASK == MOVING:
                self.dead_records.append(DeadRecords(source, first, end))


def _waits_with(value: int, lease: int) -> bool:
    """Return True if records of this value are leased, or delayed, with a lease."""
    return value >> LEASE_SHIFT == lease and value & STATE_MASK in (LEASED, DELAYED)


def _blocked_first(run: Run) -> bool:
    """Sort blocked runs first: else the end of the record that blocks them would make them
    ready.
    """
    return run[2] & STATE_MASK != BLOCKED


def _not_leased(first: int, end: int) -> str:
    where = (
        f"record at offset {first} is"
        if end - first == 1
        else f"records from offset {first} to {end - 1} are"
    )
    return f"the {where} not leased (settled before, or never delivered)"
