"""What a queue keeps in memory, and what one call may cost, however it is used."""

from sparrow.broker.queues.facts import Facts
from sparrow.broker.queues.policy import QueuePolicy
from sparrow.broker.queues.ready import ReadyRanges
from sparrow.broker.queues.state import QueueState
from sparrow.broker.queues.values import DELAYED, DONE, LEASED, MARK_SHIFT, READY, STATE_MASK, Mark

HOUR_MS = 3_600_000
WALL_MS = 1_700_000_000_000


def make(**policy: object) -> QueueState:
    state = QueueState("q", QueuePolicy().changed(policy), has_dead_letters=True, jitter=lambda: 0.0)
    state.add_source(0, dict.fromkeys(state.lanes, 0))
    return state


def find_plain(state: QueueState, first: int, end: int) -> None:
    state.found(0, first, end, None, now_ms=1, wall_ms=WALL_MS)


def lease(state: QueueState, limit: int, now_ms: int = 1, lease_ms: int = 1000):
    return state.lanes[""].grant("c", limit, now_ms=now_ms, wall_ms=WALL_MS, lease_ms=lease_ms)


def test_leases_that_are_settled_long_before_they_end_leave_no_timers() -> None:
    state = make()
    lane = state.lanes[""]
    find_plain(state, 0, 40_000)
    for offset in range(40_000):
        lease(state, 1, lease_ms=12 * HOUR_MS)
        lane.acknowledge(0, lane.leased_runs("c", 0, offset, offset + 1))
    assert len(lane.lease_timers) < 20_000


def test_a_lease_that_is_extended_again_and_again_has_one_timer() -> None:
    state = make()
    lane = state.lanes[""]
    find_plain(state, 0, 10)
    lease(state, 10)
    for now_ms in range(1, 5000):
        lane.extend(0, lane.leased_runs("c", 0, 0, 10), now_ms + 12 * HOUR_MS)
    assert len(lane.lease_timers) < 10
    lane.tick(5000 + 11 * HOUR_MS, WALL_MS)
    assert lane.counts[LEASED] == 10
    lane.tick(5000 + 12 * HOUR_MS, WALL_MS)
    assert lane.counts[READY] == 10


def test_a_lease_that_is_shortened_ends_when_it_says() -> None:
    state = make()
    lane = state.lanes[""]
    find_plain(state, 0, 1)
    lease(state, 1)
    for due_ms in (12 * HOUR_MS, 500, 12 * HOUR_MS, 700):
        lane.extend(0, lane.leased_runs("c", 0, 0, 1), due_ms)
        lane.tick(100, WALL_MS)
    lane.tick(600, WALL_MS)
    assert lane.counts[LEASED] == 1
    lane.tick(700, WALL_MS)
    assert lane.counts[READY] == 1


def test_messages_that_are_handled_long_before_they_expire_leave_no_timers() -> None:
    state = make()
    lane = state.lanes[""]
    for first in range(0, 100_000, 100):
        facts = [Facts(first + n, WALL_MS, expires_at_ms=WALL_MS + 24 * HOUR_MS) for n in range(100)]
        state.found(0, first, first + 100, facts, now_ms=1, wall_ms=WALL_MS)
        lease(state, 100)
        lane.acknowledge(0, lane.leased_runs("c", 0, first, first + 100))
    assert len(lane.expiry_timers) < 40_000


def test_messages_that_come_back_one_by_one_share_what_is_remembered_of_them() -> None:
    state = make(delivery_limit=0)
    lane = state.lanes[""]
    find_plain(state, 0, 20_000)
    lease(state, 20_000)
    for offset in range(20_000):
        lane.back(0, lane.leased_runs("c", 0, offset, offset + 1), 1, 0, "the same trouble")
    assert len(lane.marks) == 1
    assert len(next(iter(lane.marks.values())).pieces) == 1
    assert len(list(lane.maps[0].runs(0, 20_000))) == 1


def test_who_leases_one_message_does_not_look_at_a_million_that_expired_singly(monkeypatch) -> None:
    state = make()
    lane = state.lanes[""]
    find_plain(state, 0, 1_000_000)
    lane.discard(0, 0, 999_999)
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


def test_more_than_was_asked_for_stays_ready_behind_what_expired() -> None:
    state = make()
    lane = state.lanes[""]
    find_plain(state, 0, 100)
    lane.discard(0, 0, 10)
    taken = [(g.first, g.end) for _ in range(3) for g in lease(state, 4)]
    assert taken == [(10, 14), (14, 18), (18, 22)]
    assert len(lane.ready) == 78


def test_runs_of_one_lease_that_are_restored_have_one_timer() -> None:
    state = make(delivery_limit=0)
    lane = state.lanes[""]
    mark = Mark("c", WALL_MS, WALL_MS, 500, "no luck")
    lane.restore(0, [(n, n + 1, DELAYED | 4 << 3 | 1 << 7, mark) for n in range(0, 4000, 2)])
    assert len(lane.lease_timers) == 1
    find_plain(state, 0, 4000)
    for _ in range(2):
        lane.tick(500, WALL_MS)
    assert lane.counts[READY] == 4000


def test_a_lease_of_many_pieces_ends_bit_by_bit() -> None:
    state = make(delivery_limit=0)
    lane = state.lanes[""]
    find_plain(state, 0, 10_000)
    lease(state, 10_000)
    for offset in range(0, 10_000, 2):
        lane.acknowledge(0, lane.leased_runs("c", 0, offset, offset + 1))
    ticks = 0
    while lane.counts[LEASED]:
        before = lane.counts[LEASED]
        lane.tick(2000, WALL_MS)
        assert before - lane.counts[LEASED] <= 1000
        assert lane.counts[LEASED] == 0 or lane.next_times()[0] == 2000
        ticks += 1
    assert (ticks, lane.counts[READY]) == (5, 5000)


def test_records_that_retention_took_are_lost_once() -> None:
    state = make()
    lane = state.lanes[""]
    lane.restore(0, [(2, 3, DONE, None), (4, 6, LEASED | 4 << 3 | 1 << 7, Mark("c", WALL_MS, WALL_MS, 500))])
    state.lost(0, 8)
    assert lane.tally.lost == 7
    assert (lane.unfinished, lane.marks) == (0, {})


def test_a_source_that_begins_anew_frees_the_keys_that_it_held() -> None:
    state = make(order="key")
    lane = state.lanes[""]

    def find() -> None:
        facts = [Facts(n, WALL_MS, key=7) for n in range(3)]
        state.found(0, 0, 3, facts, now_ms=1, wall_ms=WALL_MS)

    find()
    lease(state, 1)
    state.restart_source(0, 0)
    assert len(lane.keys) == 0
    find()
    assert [(g.first, g.end) for g in lease(state, 3)] == [(0, 1)]


def test_nobody_waits_in_vain_for_a_parent_that_is_in_the_log_and_not_looked_at_yet() -> None:
    state = make(order="parented", parent_wait_ms=100)
    state.add_source(0, {"": 0})
    lane = state.lanes[""]
    state.is_behind = lambda: True
    state.found(0, 0, 1, [Facts(0, WALL_MS, parents=(9,))], now_ms=1, wall_ms=WALL_MS)
    state.tick(1000, WALL_MS)
    assert lane.counts[READY] + lane.counts[DONE] + len(lane.doomed) == 0
    state.found(1, 0, 1, [Facts(0, WALL_MS, message_id=9)], now_ms=1000, wall_ms=WALL_MS)
    (parent,) = lease(state, 5)
    lane.acknowledge(1, lane.leased_runs("c", 1, parent.first, parent.end))
    state.settled()
    assert lane.value_at(0, 0) & STATE_MASK == READY


def test_a_parent_that_never_came_is_given_up_when_everything_was_looked_at() -> None:
    state = make(order="parented", parent_wait_ms=100)
    state.is_behind = lambda: True
    state.found(0, 0, 1, [Facts(0, WALL_MS, parents=(9,))], now_ms=1, wall_ms=WALL_MS)
    state.tick(1000, WALL_MS)
    state.is_behind = lambda: False
    state.tick(2000, WALL_MS)
    ((_, doomed),) = state.take_doomed()
    assert state.lanes[""].marks[state.lanes[""].value_at(0, 0) >> MARK_SHIFT].reason == "PARENT_MISSING"
    assert doomed.first == 0
