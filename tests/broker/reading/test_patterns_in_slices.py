"""Patterns over many topics hold the loop for a bounded number of names at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.names import compile_pattern
from sparrow.broker.reading import subscription
from sparrow.broker.reading.subscription import MAX_PATTERNS, Selector, Subscription
from sparrow.broker.topics import name_matches, registry
from sparrow.broker.topics.name_matches import NameMatches

SLICE = 10
TOPICS = 200


class Counter:
    """Counter of the names that patterns were matched with, in all and in one iteration of the
    loop.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.most_in_a_slice = 0
        self._watching: asyncio.Task[None] | None = None

    def compiled(self, pattern: str) -> Any:
        return _Counted(compile_pattern(pattern), self)

    def watch(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            before = self.asked
            await asyncio.sleep(0)
            self.most_in_a_slice = max(self.most_in_a_slice, self.asked - before)

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()


class _Counted:
    def __init__(self, compiled: Any, counter: Counter) -> None:
        self._compiled = compiled
        self._counter = counter

    def fullmatch(self, name: str) -> Any:
        self._counter.asked += 1
        return self._compiled.fullmatch(name)

    match = fullmatch


class Listener:
    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.error: SparrowError | None = None

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:
        self.topics |= {topic for topic, _, _ in added}

    def revoked(self, epoch: int, partitions: list[tuple[str, int]], reason: str) -> None:
        self.topics -= {topic for topic, _ in partitions}

    def ended(self, error: SparrowError) -> None:
        self.error = error


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    counter = Counter()
    monkeypatch.setattr(name_matches, "SLICE", SLICE)
    monkeypatch.setattr(subscription, "SLICE", SLICE)
    monkeypatch.setattr(registry, "compile_pattern", counter.compiled)
    monkeypatch.setattr(subscription, "compile_pattern", counter.compiled)
    return counter


@pytest_asyncio.fixture
async def broker(tmp_path: Path, counter: Counter) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=1)) as broker:
        for number in range(TOPICS):
            await broker.topics.create(f"topic-{number}")
        counter.watch()
        await asyncio.sleep(0)
        yield broker
        counter.stop()


async def subscribe(broker: Broker, *patterns: str, group: str = "") -> tuple[Subscription, Listener]:
    listener = Listener()
    selectors = [Selector(pattern, is_pattern=True) for pattern in patterns]
    return await broker.records.subscribe(selectors, listener=listener, group=group), listener


async def until(listener: Listener, expected: set[str]) -> None:
    async with asyncio.timeout(10):
        while listener.topics != expected:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("group", ["", "readers"])
async def test_a_new_pattern_is_matched_in_slices(broker: Broker, counter: Counter, group: str) -> None:
    subscribed, listener = await subscribe(broker, "*7", group=group)
    await until(listener, {f"topic-{number}" for number in range(7, TOPICS, 10)})
    assert counter.asked == TOPICS
    assert counter.most_in_a_slice <= SLICE
    await subscribed.close()


async def test_a_topic_that_comes_costs_one_match_for_each_pattern(broker: Broker, counter: Counter) -> None:
    first, listener = await subscribe(broker, "*7")
    second, _ = await subscribe(broker, "*7")
    asked = counter.asked
    assert asked == TOPICS  # the second subscription used the kept result
    await broker.topics.create("new-7")
    await broker.topics.create("new-8")
    await until(listener, {*(f"topic-{number}" for number in range(7, TOPICS, 10)), "new-7"})
    assert counter.asked == asked + 2
    await first.close()
    await second.close()


async def test_many_patterns_are_matched_in_slices_too(broker: Broker, counter: Counter) -> None:
    patterns = [f"topic-{number}*" for number in range(10, 60)]
    subscribed, listener = await subscribe(broker, *patterns)
    await until(
        listener,
        {f"topic-{n}" for n in range(TOPICS) if n >= 10 and str(n)[:2] in {p[6:8] for p in patterns}},
    )
    assert counter.asked == len(patterns) * TOPICS
    assert counter.most_in_a_slice <= 2 * SLICE  # the end of one pattern and the begin of the next
    await subscribed.close()


@pytest.mark.parametrize("seed", range(5))
async def test_topics_that_come_and_go_meanwhile_are_seen(broker: Broker, seed: int) -> None:
    choose = random.Random(seed)

    async def change() -> None:
        for _ in range(30):
            name = f"topic-{choose.randrange(TOPICS + 20)}"
            if broker.parts.topic_registry.find(name) is None:
                await broker.topics.create(name)
            else:
                await broker.topics.delete(name)

    changing = asyncio.create_task(change())
    subscribed, listener = await subscribe(broker, "*5", "*0")
    await changing
    await until(listener, {topic.name for topic in broker.parts.topic_registry if topic.name[-1] in "50"})
    assert listener.error is None
    await subscribed.close()


async def test_lists_of_topics_and_queues_are_matched_in_slices(broker: Broker, counter: Counter) -> None:
    found = await broker.topics.listing_in_steps("*9")
    assert [each.name for each in found] == sorted(f"topic-{number}" for number in range(9, TOPICS, 10))
    assert counter.asked == TOPICS
    assert counter.most_in_a_slice <= SLICE
    await broker.topics.listing_in_steps("*9")
    assert counter.asked == 2 * TOPICS  # a pattern that is matched once is not kept


async def test_a_dropped_pattern_takes_its_topics_along(broker: Broker) -> None:
    subscribed, listener = await subscribe(broker, "topic-1", "topic-1?")
    await until(listener, {"topic-1", *(f"topic-1{number}" for number in range(10))})
    await subscribed.update([Selector("topic-2")], ["topic-1?"])
    await until(listener, {"topic-1", "topic-2"})
    await subscribed.close()


async def test_too_many_patterns_are_refused(broker: Broker) -> None:
    with pytest.raises(InvalidArgument, match="1000 patterns at most, not 1001"):
        await subscribe(broker, *(f"p{number}*" for number in range(MAX_PATTERNS + 1)))
    subscribed, _ = await subscribe(broker, *(f"p{number}*" for number in range(MAX_PATTERNS)))
    with pytest.raises(InvalidArgument, match="1000 patterns at most"):
        await subscribed.update([Selector("one-more*", is_pattern=True)], [])
    await subscribed.close()


async def test_kept_matches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_matches, "MAX_NAMES", 100)
    kept = NameMatches([type("Topic", (), {"name": f"t{n}"}) for n in range(60)], compile_pattern)

    async def pause() -> None:
        raise AssertionError

    assert len(await kept.learn("t*", pause)) == 60
    assert len(await kept.learn("t1*", pause)) == 11
    assert "t*" in kept
    await kept.learn("t?*", pause)
    assert "t*" not in kept
    assert kept.matching("t*") == {f"t{n}" for n in range(60)}


def test_no_pattern_takes_long_whatever_its_stars() -> None:
    """A backtracking engine would not end."""
    pattern = compile_pattern("*a" * 120 + "*b")
    assert not any(pattern.match("a" * 249) for _ in range(100))
