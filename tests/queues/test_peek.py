"""Peeking reads no more than it shows, in any order of states, and survives unreadable batches."""

import pytest
from tests.queues.work import Work, ack, settle, take

from sparrow.base.errors import InvalidArgument
from sparrow.broker.queues import peek
from sparrow.broker.queues.rules.settlement import Verb


async def test_records_of_large_batches_are_peeked_without_reading_the_others(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"%d" % n * (n % 7 + 1) for n in range(5000)])
    consumer = await work.consumer("jobs")
    taken = await take(consumer, 1000)
    await ack(consumer, taken[::2])
    decoded = 0
    decode = peek.decode_batches

    def counting(*args, **kwargs):
        nonlocal decoded
        found = decode(*args, **kwargs)
        decoded += len(found.records)
        return found

    monkeypatch.setattr(peek, "decode_batches", counting)
    queues = work.broker.queues
    found = await queues.peek("jobs", 700, states=("ready", "leased"), skip=3800)
    offsets = [*range(4800, 5000), *range(1, 1000, 2)]
    assert [(each.offset, each.value) for each in found] == [(n, b"%d" % n * (n % 7 + 1)) for n in offsets]
    assert {each.state for each in found} == {"ready", "leased"}
    assert decoded <= 1000


async def test_skipped_records_are_counted_over_all_states(work: Work) -> None:
    await work.create("jobs")
    await work.publish("jobs", [b"%d" % n for n in range(10)])
    consumer = await work.consumer("jobs")
    await settle(consumer, Verb.NACK, await take(consumer, 3), delay_ms=60_000)
    peek = work.broker.queues.peek
    everything = [each.offset for each in await peek("jobs", 100)]
    assert everything == [3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    for skip in range(12):
        assert [each.offset for each in await peek("jobs", 4, skip=skip)] == everything[skip : skip + 4]
    with pytest.raises(InvalidArgument, match="leaves out"):
        await peek("jobs", skip=-1)
    assert await peek("jobs", skip=1 << 62) == []


async def test_no_more_bytes_are_read_than_may_be_shown_and_one_record_at_least(work: Work) -> None:
    await work.create("jobs")
    for _ in range(20):
        await work.publish("jobs", [bytes(10_000)])
    peek = work.broker.queues.peek
    assert 3 <= len(await peek("jobs", 20, max_bytes=30_000)) <= 4
    assert len(await peek("jobs", 20, max_bytes=1)) == 1


async def test_records_that_retention_took_are_left_out(work: Work) -> None:
    await work.create("jobs")
    for n in range(6):
        await work.publish("jobs", [b"%d" % n])
    await work.broker.topics.delete_records("jobs", {0: 3})
    assert [each.offset for each in await work.broker.queues.peek("jobs")] == [3, 4, 5]
