"""Bounds of the memory of a queue, and of the time of one call, however it is used."""

from collections.abc import Iterable

from sparrow.base.queue_policy import QueuePolicy
from sparrow.broker.queues.maps.range_map import RangeMap
from sparrow.broker.queues.persistence import pages
from sparrow.broker.queues.rules.delivery_info import DeliveryInfo
from sparrow.broker.queues.rules.kept_page import KeptPage, KeptRun
from sparrow.broker.queues.rules.leases import Lease
from sparrow.broker.queues.rules.ready import ReadyRanges
from sparrow.broker.queues.rules.record_state import (
    DELAYED,
    DONE,
    LEASE_SHIFT,
    LEASED,
    READY,
    STATE_MASK,
)
from sparrow.broker.queues.rules.state import QueueState
from sparrow.meta.store import Entry

HOUR_MS = 3_600_000
WALL_MS = 1_700_000_000_000


def make(**policy: object) -> QueueState:
    state = QueueState("q", QueuePolicy().changed(policy), has_dead_letters=True, jitter=lambda: 0.0)
    state.add_source(0, dict.fromkeys(state.subscribers, 0))
    return state


def find_plain(state: QueueState, first: int, end: int) -> None:
    state.found(0, first, end, None, now_ms=1, wall_ms=WALL_MS)


def lease(state: QueueState, limit: int, now_ms: int = 1, lease_ms: int = 1000):
    return state.subscribers[""].grant("c", limit, now_ms=now_ms, wall_ms=WALL_MS, lease_ms=lease_ms)


def kept_page(runs: Iterable[KeptRun]) -> KeptPage:
    """Return runs of the first page as a restart reads them, at the monotonic time 0."""
    held, leases, numbers = RangeMap(), {}, {None: 0}
    for first, end, value, lease in runs:
        if lease not in numbers:
            numbers[lease] = len(numbers)
            leases[numbers[lease]] = lease
        held.set(first, end, value | numbers[lease] << LEASE_SHIFT)
    value = pages.encode_page(held.columns(0), leases, lambda: (0, WALL_MS))
    assert value is not None
    return pages.decode_page(Entry(pages.PAGE, "q//t/0/0", value, 1), 0, 0, WALL_MS)


def test_leases_that_are_settled_long_before_they_end_leave_no_timers() -> None:
    state = make()
    subscriber = state.subscribers[""]
    find_plain(state, 0, 40_000)
    for offset in range(40_000):
        lease(state, 1, lease_ms=12 * HOUR_MS)
        subscriber.ack(0, subscriber.leased_runs("c", 0, offset, offset + 1))
    assert len(subscriber.leases.timers) < 20_000


def test_a_lease_that_is_extended_again_and_again_has_one_timer() -> None:
    state = make()
    subscriber = state.subscribers[""]
    find_plain(state, 0, 10)
    lease(state, 10)
    for now_ms in range(1, 5000):
        subscriber.extend(0, subscriber.leased_runs("c", 0, 0, 10), now_ms + 12 * HOUR_MS)
    assert len(subscriber.leases.timers) < 10
    subscriber.tick(5000 + 11 * HOUR_MS, WALL_MS)
    assert subscriber.counts[LEASED] == 10
    subscriber.tick(5000 + 12 * HOUR_MS, WALL_MS)
    assert subscriber.counts[READY] == 10


def test_a_lease_that_is_shortened_ends_when_it_says() -> None:
    state = make()
    subscriber = state.subscribers[""]
    find_plain(state, 0, 1)
    lease(state, 1)
    for due_ms in (12 * HOUR_MS, 500, 12 * HOUR_MS, 700):
        subscriber.extend(0, subscriber.leased_runs("c", 0, 0, 1), due_ms)
        subscriber.tick(100, WALL_MS)
    subscriber.tick(600, WALL_MS)
    assert subscriber.counts[LEASED] == 1
    subscriber.tick(700, WALL_MS)
    assert subscriber.counts[READY] == 1


def test_messages_that_are_handled_long_before_they_expire_leave_no_timers() -> None:
    state = make()
    subscriber = state.subscribers[""]
    for first in range(0, 100_000, 100):
        infos = [DeliveryInfo(first + n, WALL_MS, expires_at_ms=WALL_MS + 24 * HOUR_MS) for n in range(100)]
        state.found(0, first, first + 100, infos, now_ms=1, wall_ms=WALL_MS)
        lease(state, 100)
        subscriber.ack(0, subscriber.leased_runs("c", 0, first, first + 100))
    assert len(subscriber.expiry_timers) < 40_000


def test_messages_returned_one_by_one_share_their_state() -> None:
    state = make(delivery_limit=0)
    subscriber = state.subscribers[""]
    find_plain(state, 0, 20_000)
    lease(state, 20_000)
    for offset in range(20_000):
        subscriber.nack(0, subscriber.leased_runs("c", 0, offset, offset + 1), 1, 0, "the same trouble")
    assert len(subscriber.leases.by_number) == 1
    assert len(next(iter(subscriber.leases.by_number.values())).pieces) == 1
    assert len(list(subscriber.maps[0].runs(0, 20_000))) == 1


def test_a_lease_of_one_message_does_not_scan_a_million_that_expired_singly(monkeypatch) -> None:
    state = make()
    subscriber = state.subscribers[""]
    find_plain(state, 0, 1_000_000)
    subscriber.discard(0, 0, 999_999)
    pops = 0
    pop = ReadyRanges.pop

    def counted(ready: ReadyRanges, *arguments: object):
        nonlocal pops
        pops += 1
        return pop(ready, *arguments)

    monkeypatch.setattr(ReadyRanges, "pop", counted)
    (grant,) = lease(state, 1)
    assert (grant.first, grant.end) == (999_999, 1_000_000)
    assert pops < 50


def test_surplus_records_stay_ready_behind_expired_ones() -> None:
    state = make()
    subscriber = state.subscribers[""]
    find_plain(state, 0, 100)
    subscriber.discard(0, 0, 10)
    taken = [(g.first, g.end) for _ in range(3) for g in lease(state, 4)]
    assert taken == [(10, 14), (14, 18), (18, 22)]
    assert subscriber.ready.records == 78


def test_runs_of_one_lease_that_are_restored_have_one_timer() -> None:
    state = make(delivery_limit=0)
    subscriber = state.subscribers[""]
    lease = Lease("c", WALL_MS, WALL_MS, 500, "no luck")
    subscriber.restore(
        0, [kept_page([(n, n + 1, DELAYED | 4 << 3 | 1 << 7, lease) for n in range(0, 4000, 2)])]
    )
    assert len(subscriber.leases.timers) == 1
    find_plain(state, 0, 4000)
    for _ in range(2):
        subscriber.tick(500, WALL_MS)
    assert subscriber.counts[READY] == 4000


def test_a_lease_of_many_pieces_ends_bit_by_bit() -> None:
    state = make(delivery_limit=0)
    subscriber = state.subscribers[""]
    find_plain(state, 0, 10_000)
    lease(state, 10_000)
    for offset in range(0, 10_000, 2):
        subscriber.ack(0, subscriber.leased_runs("c", 0, offset, offset + 1))
    ticks = 0
    while subscriber.counts[LEASED]:
        before = subscriber.counts[LEASED]
        subscriber.tick(2000, WALL_MS)
        assert before - subscriber.counts[LEASED] <= 1000
        assert subscriber.counts[LEASED] == 0 or subscriber.next_times()[0] == 2000
        ticks += 1
    assert (ticks, subscriber.counts[READY]) == (5, 5000)


def test_records_that_retention_took_are_lost_once() -> None:
    state = make()
    subscriber = state.subscribers[""]
    lease = Lease("c", WALL_MS, WALL_MS, 500)
    subscriber.restore(0, [kept_page([(2, 3, DONE, None), (4, 6, LEASED | 4 << 3 | 1 << 7, lease)])])
    state.lost(0, 8)
    assert subscriber.tally.lost == 7
    assert (subscriber.unfinished, subscriber.leases.by_number) == (0, {})


def test_a_source_that_begins_again_frees_its_keys() -> None:
    state = make(order="key")
    subscriber = state.subscribers[""]

    def find() -> None:
        infos = [DeliveryInfo(n, WALL_MS, key=7) for n in range(3)]
        state.found(0, 0, 3, infos, now_ms=1, wall_ms=WALL_MS)

    find()
    lease(state, 1)
    state.restart_source(0, 0)
    assert len(subscriber.key_order) == 0
    find()
    assert [(g.first, g.end) for g in lease(state, 3)] == [(0, 1)]


def test_no_child_is_given_up_while_its_parent_is_in_the_log_and_not_scanned_yet() -> None:
    state = make(order="parented", parent_wait_ms=100)
    state.add_source(0, {"": 0})
    subscriber = state.subscribers[""]
    state.is_behind = lambda: True
    state.found(0, 0, 1, [DeliveryInfo(0, WALL_MS, parents=(9,))], now_ms=1, wall_ms=WALL_MS)
    state.tick(1000, WALL_MS)
    assert subscriber.counts[READY] + subscriber.counts[DONE] + len(subscriber.dead_records) == 0
    state.found(1, 0, 1, [DeliveryInfo(0, WALL_MS, message_id=9)], now_ms=1000, wall_ms=WALL_MS)
    (parent,) = lease(state, 5)
    subscriber.ack(1, subscriber.leased_runs("c", 1, parent.first, parent.end))
    state.settled()
    assert subscriber.value_at(0, 0) & STATE_MASK == READY


def test_a_parent_that_never_came_is_given_up_when_everything_was_looked_at() -> None:
    state = make(order="parented", parent_wait_ms=100)
    state.is_behind = lambda: True
    state.found(0, 0, 1, [DeliveryInfo(0, WALL_MS, parents=(9,))], now_ms=1, wall_ms=WALL_MS)
    state.tick(1000, WALL_MS)
    state.is_behind = lambda: False
    state.tick(2000, WALL_MS)
    ((_, dead_records),) = state.take_dead_records()
    assert (
        state.subscribers[""].leases.by_number[state.subscribers[""].value_at(0, 0) >> LEASE_SHIFT].reason
        == "PARENT_MISSING"
    )
    assert dead_records.first == 0
