"""The conformance suite of `LogStore`. Subclass it, and give `open_store`, which opens the same
store again and again.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import LogDamaged, OffsetOutOfRange, SparrowError
from sparrow.records.batch import split
from sparrow.records.control import ControlType, build_marker
from sparrow.storage.store import LogConfig, LogId, LogStore, PartitionLog
from tests.storage.batches import NOW_MS, append, batch, kept, numbered, offsets_of, payload, read_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.storage.store import Appended
    from tests.storage.batches import Batch

TOPIC_ID = uuid.UUID("018bcfe5-6800-7000-8000-000000000001")
ORDERS = LogId("orders", TOPIC_ID, 0)
SMALL_SEGMENTS = LogConfig(segment_bytes=1000, index_interval_bytes=150)


def fill(log: PartitionLog, count: int = 40) -> list[Batch]:
    """Append `count` batches of one to three records."""
    batches = [numbered(number, 1 + number % 3) for number in range(count)]
    for each in batches:
        append(log, each)
    return batches


async def filled(log: PartitionLog, count: int = 40) -> list[Batch]:
    """Fill as `fill`, over any store."""
    batches = [numbered(number, 1 + number % 3) for number in range(count)]
    for each in batches:
        await kept(log, each)
    return batches


class LogStoreConformance:
    """The suite."""

    @pytest.fixture
    def open_store(self) -> Callable[[], LogStore]:
        raise NotImplementedError

    @pytest.fixture
    def lose_end(self) -> Callable[[LogId], None] | None:
        """Make the closed store's medium lose a part of what a log had on stable storage; None: the
        test has no access to it.
        """
        return None

    @pytest.fixture
    async def store(self, open_store: Callable[[], LogStore]) -> LogStore:
        return open_store()

    # ── appending ──

    async def test_a_new_log_is_empty(self, store: LogStore) -> None:
        log = store.open(ORDERS, LogConfig())
        assert (log.start_offset, log.end_offset, log.durable_offset) == (0, 0, 0)
        assert (log.size_bytes, log.max_timestamp, log.last_append_ms) == (0, -1, -1)
        assert log.saved_state() == (0, b"")
        assert log.read_nowait(0, 1000) is not None
        await store.close()

    async def test_appends_get_contiguous_offsets(self, store: LogStore) -> None:
        log = store.open(ORDERS, LogConfig())
        first = await kept(log, numbered(0, 3))
        second = await kept(log, numbered(1, 2), numbered(2, 1))
        assert (first.base_offset, first.last_offset) == (0, 2)
        assert (second.base_offset, second.last_offset) == (3, 5)
        assert log.end_offset == 6
        await store.close()

    async def test_batches_are_kept_as_they_are_but_for_the_stamp(self, store: LogStore) -> None:
        log = store.open(ORDERS, LogConfig())
        sent = [numbered(0, 3), numbered(1)]
        await log.append(sent, leader_epoch=7)
        found = await read_batches(log)
        assert [payload(each) for each in found] == [payload(bytes(data)) for _, data in sent]
        assert [int.from_bytes(each[12:16], "big") for each in found] == [7, 7]
        await store.close()

    async def test_a_later_owner_has_no_smaller_epoch(self, open_store: Callable[[], LogStore]) -> None:
        store = open_store()
        epoch = store.leader_epoch
        assert epoch >= 0
        await store.close()
        again = open_store()
        assert again.leader_epoch >= epoch
        await again.close()

    async def test_bytes_may_be_reused_when_append_returns(self, store: LogStore) -> None:
        log = store.open(ORDERS, LogConfig())
        header, data = numbered(0)
        buffer = bytearray(data)
        promised = log.append([(header, memoryview(buffer))])
        buffer[:] = bytes(len(buffer))
        await promised
        assert [payload(each) for each in await read_batches(log)] == [payload(bytes(data))]
        await store.close()

    async def test_an_append_of_nothing_promises_nothing(self, store: LogStore) -> None:
        log = store.open(ORDERS, LogConfig())
        await kept(log, numbered(0, 2))
        assert (await kept(log)).base_offset == log.end_offset == 2
        await store.close()

    async def test_appends_are_kept_in_the_order_in_which_they_were_asked_for(self, store: LogStore) -> None:
        log = store.open(ORDERS, SMALL_SEGMENTS)
        seen: list[tuple[int, bool]] = []

        def note(promised: asyncio.Future[Appended]) -> None:
            seen.append((promised.result().base_offset, log.end_offset > promised.result().last_offset))

        promises = [log.append([numbered(number, 2)]) for number in range(30)]
        for promised in promises:
            promised.add_done_callback(note)
        await asyncio.gather(*promises)
        await asyncio.sleep(0)
        assert seen == [(2 * number, True) for number in range(30)]
        assert log.end_offset == 60
        assert [payload(each) for each in await read_batches(log)] == [
            payload(bytes(numbered(number, 2)[1])) for number in range(30)
        ]
        await store.close()

    async def test_closing_settles_pending_appends(self, open_store: Callable[[], LogStore]) -> None:
        store = open_store()
        promises = [store.open(ORDERS, LogConfig()).append([numbered(0)])]
        await store.close()
        again = open_store()
        assert all(promised.done() for promised in promises)
        held = sum(1 for promised in promises if promised.exception() is None)
        assert again.open(ORDERS, LogConfig()).end_offset == held
        await again.close()

    # ── reading ──

    async def test_a_read_at_the_end_passes_over_nothing_that_is_appended_meanwhile(
        self, store: LogStore
    ) -> None:
        log = store.open(ORDERS, LogConfig())
        for number in range(20):
            await kept(log, numbered(number))
            end = log.end_offset
            reading = asyncio.create_task(log.read(end, 1000))
            await asyncio.sleep(0)
            await kept(log, numbered(number))
            chunk = await reading
            assert chunk.data or chunk.next_offset == end
        await store.close()

    async def test_the_size_of_the_whole_log_is_exact_and_that_of_parts_an_estimate(
        self, store: LogStore
    ) -> None:
        log = store.open(ORDERS, SMALL_SEGMENTS)
        await filled(log)
        end = log.end_offset
        assert await log.estimate_size(0, end) == await log.estimate_size(0, end + 100) == log.size_bytes
        assert await log.estimate_size(end, end) == await log.estimate_size(5, 3) == 0
        step_bytes = SMALL_SEGMENTS.index_interval_bytes + 2 * max(map(len, await read_batches(log)))
        for start in range(0, end, 7):
            for stop in range(start, end, 11):
                exact = sum(
                    len(each)
                    for each in await read_batches(log)
                    for base, last in [_range(each)]
                    if start <= base and last < stop
                )
                assert abs(await log.estimate_size(start, stop) - exact) <= 2 * step_bytes
        await store.close()

    async def test_a_reopened_log_gives_the_same_estimates(self, open_store: Callable[[], LogStore]) -> None:
        store = open_store()
        log = store.open(ORDERS, SMALL_SEGMENTS)
        await filled(log)
        ranges = [(start, start + 20) for start in range(0, log.end_offset, 9)]
        before = [await log.estimate_size(*place) for place in ranges]
        offsets = [await log.estimate_offset(start, 700) for start, _ in ranges]
        await store.close()
        again = open_store()
        log = again.open(ORDERS, SMALL_SEGMENTS)
        assert [await log.estimate_size(*place) for place in ranges] == before
        assert [await log.estimate_offset(start, 700) for start, _ in ranges] == offsets
        await again.close()

    async def test_an_estimated_offset_is_the_end_of_a_batch_and_always_further(
        self, store: LogStore
    ) -> None:
        log = store.open(ORDERS, SMALL_SEGMENTS)
        await filled(log)
        ends = {last + 1 for each in await read_batches(log) for _, last in [_range(each)]}
        for max_bytes in (1, 300, 900, 2500, 1 << 30):
            offset = 0
            while offset < log.end_offset:
                further = await log.estimate_offset(offset, max_bytes)
                assert further > offset
                assert further in ends
                offset = further
        assert (
            await log.estimate_offset(0, 1 << 30)
            == await log.estimate_offset(log.end_offset, 1)
            == log.end_offset
        )
        with pytest.raises(OffsetOutOfRange):
            await log.estimate_offset(log.end_offset + 1, 1)
        await log.delete_records(20)
        assert 20 < await log.estimate_offset(0, 1) < log.end_offset
        assert await log.estimate_size(0, 20) == 0
        await store.close()

    async def test_every_offset_is_read_with_the_batch_that_holds_it(self, store: LogStore) -> None:
        log = store.open(ORDERS, SMALL_SEGMENTS)
        await filled(log)
        ranges = [(base, last) for each in await read_batches(log) for base, last in [_range(each)]]
        for base, last in ranges:
            for offset in range(base, last + 1):
                assert offsets_of(await log.read(offset, 1))[0] == (base, last)
        await store.close()

    async def test_a_read_gives_whole_batches_within_the_limit(self, store: LogStore) -> None:
        log = store.open(ORDERS, LogConfig())
        sizes = [header.size_bytes for header, _ in await filled(log, 10)]
        for limit in range(sum(sizes[:3]) - 2, sum(sizes[:3]) + 3):
            chunk = await log.read(0, limit)
            assert len(chunk.data) == (sum(sizes[:3]) if limit >= sum(sizes[:3]) else sum(sizes[:2]))
            assert chunk.base_offset == 0
            assert chunk.records == chunk.next_offset
        await store.close()

    async def test_a_first_batch_over_the_limit_is_read_whole(self, store: LogStore) -> None:
        log = store.open(ORDERS, LogConfig())
        await kept(log, batch(bytes(100_000)))
        await kept(log, numbered(1))
        chunk = await log.read(0, 10)
        assert offsets_of(chunk) == [(0, 0)]
        await store.close()

    async def test_reading_at_the_end_is_empty_and_beyond_is_refused(self, store: LogStore) -> None:
        log = store.open(ORDERS, LogConfig())
        await kept(log, numbered(0, 3))
        chunk = await log.read(3, 1000)
        assert (len(chunk.data), chunk.base_offset, chunk.next_offset, chunk.records) == (0, 3, 3, 0)
        for offset in (-1, 4):
            with pytest.raises(OffsetOutOfRange):
                log.read_nowait(offset, 1000)
            with pytest.raises(OffsetOutOfRange):
                await log.read(offset, 1000)
        await store.close()

    async def test_headers_come_from_the_batch_that_holds_the_offset(self, store: LogStore) -> None:
        log = store.open(ORDERS, SMALL_SEGMENTS)
        await filled(log)
        everything = list(log.headers(0))
        assert [header.base_offset for header in everything] == [
            _range(each)[0] for each in await read_batches(log)
        ]
        last = everything[-3]
        assert list(log.headers(last.last_offset)) == everything[-3:]
        assert list(log.headers(log.end_offset)) == []
        await store.close()

    async def test_control_batches_come_with_the_headers(self, store: LogStore) -> None:
        log = store.open(ORDERS, SMALL_SEGMENTS)
        await filled(log)
        first = log.end_offset
        marker = build_marker(ControlType.ABORT, 7, 0, 1)
        await log.append(list(split(marker)))
        await filled(log)
        found = list(log.headers_and_markers(0))
        assert [header for header, _ in found] == list(log.headers(0))
        ((header, data),) = [(header, data) for header, data in found if data]
        assert header.base_offset == first
        assert data[16:] == marker[16:]
        assert list(log.producer_batches(0)) == [(header, data)]
        assert list(log.headers_and_markers(first + 1)) == found[found.index((header, data)) + 1 :]
        await store.close()

    async def test_offset_for_timestamp_is_the_first_record_not_older(self, store: LogStore) -> None:
        log = store.open(ORDERS, SMALL_SEGMENTS)
        times = [[NOW_MS + 10 * number, NOW_MS + 10 * number - 25, NOW_MS] for number in range(30)]
        for each in times:
            await kept(log, batch(b"a" * 30, b"b", b"c", timestamps=each))
        flat = [time for each in times for time in each]
        assert log.max_timestamp == max(flat)
        for wanted in range(NOW_MS - 30, max(flat) + 2, 5):
            expected = next(((number, time) for number, time in enumerate(flat) if time >= wanted), None)
            assert await log.offset_for_timestamp(wanted) == expected
        await store.close()

    # ── durability ──

    async def test_durable_waits_for_everything_before_the_offset(self, store: LogStore) -> None:
        log = store.open(ORDERS, SMALL_SEGMENTS)
        await filled(log)
        half, end = log.durable(log.end_offset // 2), log.durable(log.end_offset)
        await asyncio.gather(half, end)
        assert log.durable_offset == log.end_offset
        assert log.durable(log.end_offset).done()
        with pytest.raises(OffsetOutOfRange):
            log.durable(log.end_offset + 1)
        await store.close()

    async def test_durability_is_reported_to_a_function_too(self, store: LogStore) -> None:
        log = store.open(ORDERS, SMALL_SEGMENTS)
        await filled(log)
        end = log.end_offset
        errors: list[SparrowError | None] = []
        log.when_durable(end, errors.append)
        log.when_durable(end // 2, errors.append)
        await log.durable(end)
        assert errors == [None, None]
        log.when_durable(end, errors.append)
        assert errors == [None, None, None]
        with pytest.raises(OffsetOutOfRange):
            log.when_durable(end + 1, errors.append)
        await store.close()

    async def test_a_clean_restart_finds_everything(self, open_store: Callable[[], LogStore]) -> None:
        store = open_store()
        log = store.open(ORDERS, SMALL_SEGMENTS)
        sent = await filled(log)
        end = log.end_offset
        await store.close()
        again = open_store()
        assert again.clean_start
        assert again.ids() == [ORDERS]
        log = again.open(ORDERS, SMALL_SEGMENTS)
        assert (log.start_offset, log.end_offset, log.durable_offset) == (0, end, end)
        assert log.max_timestamp == NOW_MS
        assert [payload(each) for each in await read_batches(log)] == [
            payload(bytes(data)) for _, data in sent
        ]
        await kept(log, numbered(99))
        assert len(await read_batches(log)) == len(sent) + 1
        await again.close()

    async def test_a_log_that_was_never_written_is_not_listed(
        self, open_store: Callable[[], LogStore]
    ) -> None:
        store = open_store()
        store.open(ORDERS, LogConfig())
        assert store.ids() == []
        await store.close()
        again = open_store()
        assert again.ids() == []
        await again.close()

    async def test_the_checkpoint_gives_its_state_back(self, open_store: Callable[[], LogStore]) -> None:
        store = open_store()
        log = store.open(ORDERS, SMALL_SEGMENTS)
        await filled(log, 10)
        at = log.end_offset
        await log.checkpoint(b"fold of ten")
        assert log.uncheckpointed_bytes == 0
        await filled(log, 5)
        assert log.uncheckpointed_bytes > 0
        assert log.saved_state() == (at, b"fold of ten")
        await store.close()
        again = open_store()
        log = again.open(ORDERS, SMALL_SEGMENTS)
        assert log.saved_state() == (at, b"fold of ten")
        assert len(list(log.headers(at))) == 5
        await again.close()

    # ── cutting ──

    async def test_delete_records_moves_the_start_for_good(self, open_store: Callable[[], LogStore]) -> None:
        store = open_store()
        log = store.open(ORDERS, SMALL_SEGMENTS)
        await filled(log)
        assert await log.delete_records(17) == 17
        assert await log.delete_records(9) == 17
        with pytest.raises(OffsetOutOfRange):
            await log.read(16, 100)
        assert offsets_of(await log.read(17, 1))[0][1] >= 17
        size = log.size_bytes
        assert await log.enforce_retention(NOW_MS) > 0
        assert log.size_bytes < size
        await store.close()
        again = open_store()
        log = again.open(ORDERS, SMALL_SEGMENTS)
        assert log.start_offset == 17
        assert await log.delete_records(10**9) == log.end_offset == log.start_offset
        await again.close()

    # ── retention ──

    async def test_retention_by_size_drops_the_oldest_segments(self, store: LogStore) -> None:
        log = store.open(ORDERS, LogConfig(segment_bytes=1000, retention_bytes=3000, retention_ms=-1))
        await filled(log, 100)
        size = log.size_bytes
        freed = await log.enforce_retention(NOW_MS)
        assert log.size_bytes == size - freed
        assert 3000 <= log.size_bytes < 4200
        first = (await read_batches(log))[0]
        assert _range(first)[0] == log.start_offset > 0
        await store.close()

    async def test_retention_by_time_may_take_everything(self, open_store: Callable[[], LogStore]) -> None:
        store = open_store()
        log = store.open(ORDERS, LogConfig(segment_bytes=1000, retention_ms=1000))
        await filled(log)
        assert await log.enforce_retention(NOW_MS + 1000) == 0
        assert await log.enforce_retention(NOW_MS + 1001) > 0
        assert (log.size_bytes, log.start_offset) == (0, log.end_offset)
        end = log.end_offset
        await store.close()
        again = open_store()
        log = again.open(ORDERS, LogConfig())
        assert (log.start_offset, log.end_offset) == (end, end)
        assert (await kept(log, numbered(1))).base_offset == end
        await again.close()

    async def test_log_without_delete_keeps_old_records(self, store: LogStore) -> None:
        log = store.open(ORDERS, LogConfig(segment_bytes=1000, retention_ms=1000, delete=False))
        await filled(log)
        assert await log.enforce_retention(NOW_MS + 10**9) == 0
        assert log.start_offset == 0
        await store.close()

    # ── many logs ──

    async def test_partitions_do_not_mix(self, open_store: Callable[[], LogStore]) -> None:
        store = open_store()
        ids = [LogId("orders", TOPIC_ID, partition) for partition in range(5)]
        for number, log_id in enumerate(ids):
            await kept(store.open(log_id, LogConfig()), numbered(number))
        assert sorted(store.ids(), key=str) == ids
        await store.close()
        again = open_store()
        for number, log_id in enumerate(ids):
            found = await read_batches(again.open(log_id, LogConfig()))
            assert [payload(each) for each in found] == [payload(bytes(numbered(number)[1]))]
        await again.close()

    async def test_a_deleted_log_is_gone_and_its_name_is_free(
        self, open_store: Callable[[], LogStore]
    ) -> None:
        store = open_store()
        log = store.open(ORDERS, LogConfig())
        await filled(log)
        await store.delete(log)
        assert store.ids() == []
        other = LogId("orders", uuid.UUID(int=2), 0)
        log = store.open(other, LogConfig())
        assert log.end_offset == 0
        await kept(log, numbered(1))
        await store.close()
        again = open_store()
        assert again.ids() == [other]
        assert again.open(other, LogConfig()).end_offset == 1
        await again.close()

    async def test_purge_removes_a_log_that_is_not_open(self, open_store: Callable[[], LogStore]) -> None:
        store = open_store()
        await filled(store.open(ORDERS, LogConfig()))
        await store.close()
        again = open_store()
        await again.purge(LogId("orders", uuid.UUID(int=2), 0))
        assert again.ids() == [ORDERS]
        await again.purge(ORDERS)
        assert again.ids() == []
        await again.close()

    async def test_a_log_of_another_topic_of_that_name_is_not_taken(
        self, open_store: Callable[[], LogStore]
    ) -> None:
        store = open_store()
        await filled(store.open(ORDERS, LogConfig()))
        await store.close()
        again = open_store()
        log = again.open(LogId("orders", uuid.UUID(int=2), 0), LogConfig())
        assert log.end_offset == 0
        await again.close()

    async def test_log_that_lost_durable_records_is_not_opened_and_others_are(
        self, open_store: Callable[[], LogStore], lose_end: Callable[[LogId], None] | None
    ) -> None:
        if lose_end is None:
            pytest.skip("this store wraps another, whose medium the test does not reach")
        store = open_store()
        other = LogId("orders", TOPIC_ID, 1)
        logs = [store.open(each, SMALL_SEGMENTS) for each in (ORDERS, other)]
        for log in logs:
            for number in range(20):
                await log.append([numbered(number)])
        end = logs[0].end_offset
        await store.close()
        lose_end(ORDERS)
        store = open_store()
        for _ in range(2):
            with pytest.raises(LogDamaged, match=f"{end - 1} of orders-0"):
                store.open(ORDERS, SMALL_SEGMENTS)
        assert [damage.log for damage in store.damages.known()] == ["orders-0"]
        log = store.open(other, SMALL_SEGMENTS)
        assert log.end_offset == end
        assert (await log.append([numbered(1)])).base_offset == end
        await store.close()

    async def test_free_bytes_is_the_free_space(self, store: LogStore) -> None:
        assert 0 < store.free_bytes() <= store.total_bytes()
        assert store.location
        assert store.refusal() is None
        await store.close()


def _range(data: bytes) -> tuple[int, int]:
    from sparrow.records.batch import parse_header

    header = parse_header(data)
    return header.base_offset, header.last_offset
