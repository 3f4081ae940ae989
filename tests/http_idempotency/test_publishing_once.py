"""Publishes with the same key: nothing is stored twice, and every response equals the first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import (
    DiskFull,
    IdempotencyKeyReused,
    Overloaded,
    RecordTooLarge,
    SparrowError,
    StorageFailed,
    TooManyIdempotencyKeys,
)
from sparrow.broker.access.authz import ANONYMOUS, Principal
from sparrow.broker.config import BrokerConfig
from sparrow.broker.idempotency import keys, stored_publish
from sparrow.broker.idempotency.keys import PORTIONS
from sparrow.frontends.publisher import Message
from sparrow.records.builder import build_batch
from tests.http_idempotency.keyed import Keyed, key_of, placed, stored

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = [Message(b"%d" % n, b"k%d" % n if n % 2 else None, [("h", b"v")]) for n in range(50)]
DAY_S = 86_400


async def walk(keyed: Keyed) -> None:
    for _ in range(PORTIONS):
        await keyed.broker.idempotency.walk_portion()


async def settled(keyed: Keyed) -> None:
    """Wait until nothing is pending."""
    async with asyncio.timeout(10):
        while keyed.broker.idempotency._tasks:
            await asyncio.sleep(0)


async def test_the_same_key_again_stores_nothing_and_gives_the_same_answer(keyed: Keyed) -> None:
    first = await keyed.publish("a", MESSAGES)
    keyed.clock.advance(100)
    again = await keyed.publish("a", MESSAGES)

    assert not first.is_replay
    assert again.is_replay
    assert again.results == first.results
    assert (await keyed.counts()).total() == len(MESSAGES)


async def test_without_a_key_every_call_publishes(keyed: Keyed) -> None:
    for _ in range(2):
        answers = await keyed.once.publish(None, "t", MESSAGES, principal=ANONYMOUS)
        assert not answers.is_replay
    assert (await keyed.counts()).total() == 2 * len(MESSAGES)


async def test_the_answer_is_the_same_after_a_restart_and_after_the_topic_grew(keyed: Keyed) -> None:
    first = await keyed.publish("a", MESSAGES)
    await keyed.restart()
    await keyed.broker.topics.add_partitions("t", 9)
    again = await keyed.publish("a", MESSAGES)
    assert again.is_replay
    assert again.results == first.results
    assert (await keyed.counts()).total() == len(MESSAGES)


async def test_a_key_used_for_another_request_is_refused(keyed: Keyed) -> None:
    await keyed.publish("a", MESSAGES)
    with pytest.raises(IdempotencyKeyReused, match="'a' was used for another request"):
        await keyed.publish("a", [Message(b"other")])
    assert (await keyed.counts()).total() == len(MESSAGES)


async def test_equal_keys_of_two_principals_are_two_keys(keyed: Keyed) -> None:
    for name in ("alice", "bob"):
        answers = await keyed.publish("a", [Message(b"x")], principal=Principal(name))
        assert not answers.is_replay
    assert await keyed.counts() == {b"x": 2}


async def test_requests_that_come_together_store_one_copy(keyed: Keyed) -> None:
    outcomes = await asyncio.gather(*(keyed.publish("a", MESSAGES) for _ in range(20)))
    assert [each.is_replay for each in outcomes].count(False) == 1
    assert all(each.results == outcomes[0].results for each in outcomes)
    assert (await keyed.counts()).total() == len(MESSAGES)
    await settled(keyed)


async def test_a_caller_that_goes_away_leaves_its_publish_to_the_next(keyed: Keyed) -> None:
    await keyed.broker.topics.create("t")
    first = asyncio.create_task(keyed.publish("a", MESSAGES))
    while not keyed.broker.idempotency.in_use:
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first

    again = await keyed.publish("a", MESSAGES)
    assert again.is_replay
    assert (await keyed.counts()).total() == len(MESSAGES)


async def test_a_key_is_free_again_when_its_window_is_over(keyed: Keyed) -> None:
    first = await keyed.publish("a", [Message(b"x")])
    keyed.clock.advance(DAY_S - 1)
    assert (await keyed.publish("a", [Message(b"x")])).is_replay
    keyed.clock.advance(1)
    later = await keyed.publish("a", [Message(b"x")])
    assert not later.is_replay
    assert stored(later) != stored(first)
    await settled(keyed)
    assert len(keyed.broker.idempotency) == 1


async def test_keys_whose_window_is_over_leave_the_store(keyed: Keyed) -> None:
    for number in range(300):
        await keyed.publish(f"old {number}", [Message(b"x")])
    keyed.clock.advance(DAY_S // 2)
    await keyed.publish("young", [Message(b"y")])
    await settled(keyed)
    keyed.clock.advance(DAY_S // 2)
    await walk(keyed)
    assert len(await keyed.broker._meta.scan(stored_publish.KIND)) == 1
    assert len(keyed.broker.idempotency) == 1
    assert (await keyed.publish("young", [Message(b"y")])).is_replay


async def test_keys_are_counted_again_after_a_restart(keyed: Keyed) -> None:
    for number in range(100):
        await keyed.publish(f"{number}", [Message(b"x")])
    await keyed.stop()
    await keyed.start(until_counted=False)
    number = 100
    async with asyncio.timeout(10):
        while keyed.broker.idempotency.is_walking:
            await keyed.publish(f"{number}", [Message(b"x")])
            number += 1
    await settled(keyed)
    assert len(keyed.broker.idempotency) == number
    assert number > 101


async def test_no_more_keys_than_the_limit_are_kept(keyed: Keyed) -> None:
    await keyed.stop()
    keyed.config = BrokerConfig(idempotency_max_keys=20)
    await keyed.start()
    await walk(keyed)
    for number in range(18):
        await keyed.publish(f"{number}", [Message(b"x")])
    with pytest.raises(TooManyIdempotencyKeys, match="User:ANONYMOUS has 18 idempotency keys"):
        await keyed.publish("one more", [Message(b"x")])
    for number in range(2):
        await keyed.publish(f"{number}", [Message(b"x")], principal=Principal("bob"))
    with pytest.raises(TooManyIdempotencyKeys, match="20 idempotency keys are kept"):
        await keyed.publish("one more", [Message(b"x")], principal=Principal("bob"))

    assert (await keyed.publish("0", [Message(b"x")])).is_replay
    assert (await keyed.counts()).total() == 20
    keyed.clock.advance(DAY_S)
    await walk(keyed)
    assert not (await keyed.publish("one more", [Message(b"x")])).is_replay


async def test_partitions_remember_nothing_of_a_publish_with_a_key(keyed: Keyed) -> None:
    for number in range(20):
        await keyed.publish(f"{number}", MESSAGES)
    await settled(keyed)
    await keyed.restart()
    for partition in keyed.broker.parts.topic_registry.get("t").partitions:
        assert partition.producers() == []


# ── failures ──────────────────────────────────────────────────────────────────────────────────────


async def test_kept_response_includes_permanent_refusals(keyed: Keyed) -> None:
    await keyed.broker.topics.create("t", 1, {"max.message.bytes": "1000"})
    messages = [Message(b"a"), Message(b"b" * 2000), Message(b"c")]
    first = await keyed.publish("a", messages)
    await settled(keyed)
    await keyed.broker.topics.configure("t", {"max.message.bytes": "10000"})
    again = await keyed.publish("a", messages)

    for answers in (first, again):
        one, two, three = answers.results
        assert (placed(one).offset, placed(three).offset) == (0, 1)
        assert isinstance(two, RecordTooLarge)
    assert again.is_replay
    assert await keyed.counts() == {b"a": 1, b"c": 1}


async def test_a_publish_that_stored_nothing_gives_its_key_back(keyed: Keyed) -> None:
    await keyed.broker.topics.create("t", 1, {"max.message.bytes": "1000"})
    (refused,) = (await keyed.publish("a", [Message(b"b" * 2000)])).results
    assert isinstance(refused, RecordTooLarge)
    await settled(keyed)
    assert not (await keyed.publish("a", [Message(b"small")])).is_replay
    assert await keyed.counts() == {b"small": 1}


async def test_a_failure_that_passes_is_tried_again_by_the_next_request(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keyed.broker.topics.create("t", 2)
    full = keyed.broker.parts.topic_registry.get("t").partition(1)
    with monkeypatch.context() as failing:

        def refuse(*_: object, **__: object) -> None:
            raise DiskFull("there is no room")

        failing.setattr(full, "publish", refuse)
        messages = [Message(b"%d" % n, b"k%d" % n) for n in range(20)]
        first = (await keyed.publish("a", messages)).results
    assert any(isinstance(each, DiskFull) for each in first)
    await settled(keyed)

    again = await keyed.publish("a", messages)
    assert not again.is_replay
    for before, after in zip(first, stored(again), strict=True):
        assert isinstance(before, SparrowError) or before == after
    assert await keyed.counts() == {message.value: 1 for message in messages}
    assert (await keyed.publish("a", messages)).results == again.results


async def test_a_sync_that_failed_is_looked_into_and_not_repeated(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keyed.broker.topics.create("t", 1)
    log = keyed.broker.parts.topic_registry.get("t").partition(0).log

    def fail(_: int) -> asyncio.Future[None]:
        failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failing.set_exception, StorageFailed("the sync failed"))
        return failing

    def call_with_failure(_: int, then: Callable[[StorageFailed], None]) -> None:
        asyncio.get_running_loop().call_soon(then, StorageFailed("the sync failed"))

    with monkeypatch.context() as broken:
        broken.setattr(log, "durable", fail)
        broken.setattr(log, "when_durable", call_with_failure)
        (failed,) = (await keyed.publish("a", [Message(b"x")])).results
        assert isinstance(failed, StorageFailed)
        with pytest.raises(StorageFailed):
            await keyed.publish("a", [Message(b"x")])
    answers = await keyed.publish("a", [Message(b"x")])
    assert placed(answers.results[0]).offset == 0
    assert await keyed.counts() == {b"x": 1}


async def test_a_full_meta_store_refuses_the_key_and_publishes_nothing(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keyed.broker.topics.create("t", 1)
    await keyed.publish("first", [Message(b"x")])

    async def refuse(_: object) -> None:
        raise DiskFull("there is no room")

    with monkeypatch.context() as full:
        full.setattr(keyed.broker._meta, "write", refuse)
        with pytest.raises(DiskFull):
            await keyed.publish("a", [Message(b"y")])
    assert await keyed.counts() == {b"x": 1}
    assert len(keyed.broker.idempotency) == 1
    assert not (await keyed.publish("a", [Message(b"y")])).is_replay


async def test_a_topic_that_was_created_again_does_not_hinder_a_key_whose_answer_is_known(
    keyed: Keyed,
) -> None:
    first = await keyed.publish("a", MESSAGES)
    await settled(keyed)
    await keyed.broker.topics.delete("t")
    again = await keyed.publish("a", MESSAGES)
    assert again.is_replay
    assert again.results == first.results
    assert keyed.broker.parts.topic_registry.find("t") is None


async def test_the_fingerprint_and_not_the_text_alone_names_a_request(keyed: Keyed) -> None:
    await keyed.once.publish(key_of("a", b"1"), "t", [Message(b"x")], principal=ANONYMOUS)
    with pytest.raises(IdempotencyKeyReused):
        await keyed.once.publish(key_of("a", b"2"), "t", [Message(b"x")], principal=ANONYMOUS)


async def test_publishes_under_way_hold_a_bounded_amount_of_memory(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "MAX_RESERVED_BYTES", 10_000)
    outcomes = await asyncio.gather(
        *(keyed.publish(f"{n}", [Message(b"x" * 4000)]) for n in range(5)), return_exceptions=True
    )
    assert [isinstance(each, Overloaded) for each in outcomes] == [False, False, True, True, True]
    await settled(keyed)
    # a single message may have its full size
    large = await keyed.publish("large", [Message(b"x" * 20_000)])
    assert len(stored(large)) == 1


async def test_a_batch_of_somebody_else_with_the_same_producer_id_is_not_taken_for_ours(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keyed.broker.topics.create("t", 1)
    seen: list[int] = []

    async def crash(call: object, claimed: stored_publish.StoredPublish, runs: object) -> None:
        seen.append(claimed.producer_id)
        raise StorageFailed("the process died")

    with monkeypatch.context() as dying:
        dying.setattr(keyed.once, "_published", crash)
        with pytest.raises(StorageFailed):
            await keyed.publish("a", [Message(b"x")])
    now = keyed.clock.wall_ms()
    for epoch, count in ((7, 1), (0, 2)):
        foreign = build_batch(
            [b"foreign"] * count,
            timestamps=now,
            producer_id=seen[0],
            producer_epoch=epoch,
        )
        # Batches in a log may be like this; clients' batches of a producer have a sequence.
        await keyed.broker.records.publish("t", 0, foreign, is_built_here=True)
    answers = await keyed.publish("a", [Message(b"x")])
    assert placed(answers.results[0]).offset == 3
    assert await keyed.counts() == {b"foreign": 3, b"x": 1}
