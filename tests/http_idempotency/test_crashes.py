"""A publish with a key that a kill -9 cuts short anywhere, and is then repeated: each message is
stored once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.idempotency import stored_publish
from sparrow.broker.partition import Partition
from sparrow.frontends.publisher import Message, make_runs
from tests.http_idempotency.keyed import Keyed, key_of, stored

SINGLE = [Message(b"only one")]
MANY = [Message(b"%d" % n, b"k%d" % (n % 9) if n % 3 else None) for n in range(60)]
SMALL_BATCHES = {"max.message.bytes": "500"}
"""Enough messages that several go to each partition."""


def after_each_step(keyed: Keyed, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Call back whenever entries were written, or a batch was appended."""
    write, publish = keyed.broker._meta.write, Partition.publish

    async def written(writes: list[object]) -> None:
        await write(writes)
        then()

    def appended(*arguments: object, **named: object) -> object:
        promise = publish(*arguments, **named)
        then()
        return promise

    monkeypatch.setattr(keyed.broker._meta, "write", written)
    monkeypatch.setattr(Partition, "publish", appended)


async def copies_of(keyed: Keyed, messages: list[Message], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    copies: list[str] = []
    with monkeypatch.context() as watched:
        after_each_step(keyed, watched, lambda: copies.append(keyed.copied()))
        await keyed.publish("a", messages)
        await keyed.broker.idempotency.close()
    return copies


@pytest.mark.slow
@pytest.mark.parametrize("messages", [SINGLE, MANY], ids=["one", "many"])
async def test_a_publish_cut_short_anywhere_and_repeated_is_stored_once(
    keyed: Keyed, messages: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    await keyed.broker.topics.create("t", 4, SMALL_BATCHES)
    await keyed.publish("before", [Message(b"before")])
    copies = await copies_of(keyed, messages, monkeypatch)
    assert len(copies) >= 3
    for path in copies:
        later = Keyed(path, keyed.clock, keyed.config)
        await later.start()
        await later.broker.topics.add_partitions("t", 7)
        await later.broker.topics.configure("t", {"max.message.bytes": "100000"})
        await later.publish("other", [Message(b"other")])
        first = await later.publish("a", messages)
        assert await later.counts() == {m.value: 1 for m in messages} | {b"before": 1, b"other": 1}
        await later.restart()
        again = await later.publish("a", messages)
        assert again.is_replay
        assert again.results == first.results
        assert (await later.counts()).total() == len(messages) + 2
        await later.stop()


@pytest.mark.slow
async def test_crashes_in_a_row_store_no_second_copy(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    await keyed.broker.topics.create("t", 2, SMALL_BATCHES)
    copies = await copies_of(keyed, MANY[:20], monkeypatch)
    for path in copies[1:-1]:
        later = Keyed(path, keyed.clock, keyed.config)
        await later.start(until_counted=False)
        again = (await copies_of(later, MANY[:20], monkeypatch))[0]
        await later.stop()
        last = Keyed(again, keyed.clock, keyed.config)
        await last.start()
        await last.publish("a", MANY[:20])
        assert await last.counts() == {m.value: 1 for m in MANY[:20]}
        await last.stop()


@pytest.mark.parametrize("acks", [-1, 1])
async def test_an_answer_that_was_given_is_given_again_after_a_crash(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    await keyed.broker.topics.create("t", 4)
    copies: list[str] = []

    async def crash_before_it_is_kept(_: object) -> None:
        copies.append(keyed.copied())

    monkeypatch.setattr(keyed.broker.idempotency, "keep", crash_before_it_is_kept)
    first = await keyed.publish("a", MANY, acks=acks)
    await keyed.broker.idempotency.close()
    later = Keyed(copies[0], keyed.clock, keyed.config)
    await later.start()
    again = await later.publish("a", MANY, acks=acks)
    assert stored(again) == stored(first)
    assert again.is_replay  # the start had found all of its records
    assert (await later.counts()).total() == len(MANY)
    await later.stop()


async def test_the_time_at_which_the_topic_stamped_records_is_found_again(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keyed.broker.topics.create("t", 1, {"message.timestamp.type": "LogAppendTime"})

    async def forget(_: object) -> None: ...

    monkeypatch.setattr(keyed.broker.idempotency, "keep", forget)
    first = await keyed.publish("a", [Message(b"x", timestamp_ms=5)])
    keyed.clock.advance(10)
    await keyed.restart()
    assert (await keyed.publish("a", [Message(b"x", timestamp_ms=5)])).results == first.results
    assert stored(first)[0].timestamp_ms == 1_700_000_000_000


async def test_a_claim_whose_topic_was_created_again_publishes_to_the_new_topic(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keyed.broker.topics.create("t", 2)
    key = key_of("a", SINGLE)
    topic = keyed.broker.parts.topic_registry.get("t")
    terms = keyed.publisher.terms("t", -1, 7, principal=ANONYMOUS)
    runs = [(run.partition, len(run.indexes)) for run in make_runs(SINGLE, terms)]
    planned = stored_publish.plan(
        key, topic.id, terms, runs, producer_id=7, created_ms=terms.now_ms, ends={runs[0][0]: 0}
    )
    await keyed.broker.idempotency.claim(key, planned)
    await keyed.broker.topics.delete("t")
    answers = await keyed.publish("a", SINGLE)
    assert not answers.is_replay
    assert len(stored(answers)) == 1
    assert (await keyed.publish("a", SINGLE)).results == answers.results
    assert await keyed.counts() == {SINGLE[0].value: 1}
