"""Removal of one batch from a log: the remaining data, and a crash at any step."""

from __future__ import annotations

import contextlib

import pytest

from sparrow.base.errors import InvalidArgument, OffsetOutOfRange, SparrowError
from sparrow.records.batch import parse_header
from sparrow.records.control import ControlType, build_marker
from sparrow.records.record import decode
from sparrow.storage.store import LogConfig
from tests.corrupt import bad
from tests.storage.batches import append, keyed, read_batches, wrap
from tests.storage.test_compaction import COMPACT, Site

PLAIN = LogConfig(segment_bytes=800, index_interval_bytes=150)


def fill(site: Site, before: int = 4, behind: int = 4) -> int:
    """Append good batches around an unreadable one. Return the base offset of that."""
    for number in range(before):
        append(site.log, wrap(bad.good(f"a{number}.")))
    offset = append(site.log, wrap(bad.record_lengths())).base_offset
    for number in range(behind):
        append(site.log, wrap(bad.good(f"b{number}.")))
    return offset


@pytest.mark.parametrize("behind", [0, 1, 20])
@pytest.mark.parametrize("inside", [0, 2])
async def test_an_empty_batch_takes_the_place_and_all_others_stay_as_they_are(
    behind: int, inside: int
) -> None:
    site = Site(config=PLAIN)
    offset = fill(site, behind=behind)
    before = await read_batches(site.log)
    removed = await site.log.remove_batch(offset + inside)
    assert (removed.base_offset, removed.last_offset, removed.record_count) == (offset, offset + 2, 3)
    assert "cannot be read" in removed.reason
    after = await read_batches(site.log)
    assert [a for a, b in zip(after, before, strict=True) if a != b] == [after[4]]
    header = parse_header(after[4])
    assert (header.base_offset, header.last_offset, header.record_count) == (offset, offset + 2, 0)
    assert decode(after[4]) == []
    append(site.log, wrap(bad.good("c")))
    assert site.log.end_offset == (4 + 1 + behind + 1) * 3
    for at in range(offset, offset + 3):
        assert (await site.log.read(at, 1)).base_offset == offset


async def test_removal_refuses_readable_batches_missing_ones_and_markers() -> None:
    site = Site(config=PLAIN)
    offset = fill(site)
    marker = append(site.log, wrap(build_marker(ControlType.ABORT, 7, 0, 0))).base_offset
    before = await read_batches(site.log)
    with pytest.raises(InvalidArgument, match="can be read"):
        await site.log.remove_batch(0)
    with pytest.raises(InvalidArgument, match="transaction"):
        await site.log.remove_batch(marker, force=True)
    for nowhere in (-1, site.log.end_offset):
        with pytest.raises(OffsetOutOfRange):
            await site.log.remove_batch(nowhere)
    assert await read_batches(site.log) == before
    assert (await site.log.remove_batch(0, force=True)).reason == ""
    await site.log.remove_batch(offset)
    with pytest.raises(InvalidArgument, match="no records"):
        await site.log.remove_batch(offset)


async def test_producer_and_transaction_fields_stay() -> None:
    site = Site(config=PLAIN)
    fields = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 5, "transactional": True}
    append(site.log, keyed([(b"k", b"v"), (b"k", b"w")], **fields))
    was = parse_header((await read_batches(site.log))[0])
    await site.log.remove_batch(0, force=True)
    now = parse_header((await read_batches(site.log))[0])
    assert (now.producer_id, now.producer_epoch, now.base_sequence) == (7, 2, 5)
    assert now.is_transactional
    assert (now.last_offset_delta, now.max_timestamp) == (was.last_offset_delta, was.max_timestamp)


@pytest.mark.parametrize("ends_by", ["kill", "power"])
async def test_a_removal_may_end_at_any_step(ends_by: str) -> None:
    step, is_finished = 0, False
    outcomes = set()
    while not is_finished:
        site = Site(step, config=PLAIN)
        offset = fill(site)
        await site.log.durable(site.log.end_offset)
        before = await read_batches(site.log)
        site.fs.calls_left = step
        with contextlib.suppress(SparrowError):
            await site.log.remove_batch(offset)
        is_finished, site.fs.calls_left = site.fs.calls_left >= 0, None
        site.fs.kill() if ends_by == "kill" else site.fs.crash()
        site.open()
        after = await read_batches(site.log)
        changed = [number for number, (a, b) in enumerate(zip(after, before, strict=True)) if a != b]
        outcomes.add(bool(changed))
        if changed:
            assert changed == [4]
            assert parse_header(after[4]).record_count == 0
        assert append(site.log, wrap(bad.good("c"))).base_offset == 27
        assert not [path for path in site.fs.paths() if path.endswith((".cleaned", ".swap", ".tmp"))]
        await site.store.close()
        step += 1
    assert outcomes == {True, False}
    assert step > 20


async def test_compaction_keeps_an_unreadable_batch_as_it_is_and_continues() -> None:
    for kind, make in bad.KINDS.items():
        site = Site(config=COMPACT)
        for value in (b"1", b"2"):
            append(site.log, keyed([(b"k", value)]))
        rotten = append(site.log, wrap(make())).base_offset
        for value in (b"3", b"4"):
            append(site.log, keyed([(b"k", value)]))
        site.roll()
        kept = next(b for b in await read_batches(site.log) if parse_header(b).base_offset == rotten)
        assert await site.log.compact(site.clock.wall_ms()) > 0, kind
        after = await read_batches(site.log)
        assert kept in after
        assert [decode(b)[0].value for b in after if b != kept] == [b"4", b"roll"]
        (error,) = site.log.kept_unreadable
        assert (error.topic, error.partition, error.base_offset) == ("orders", 0, rotten)
