"""Status and history: rings, rates, forecast, what needs attention, and who may see it."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sparrow.base.clock import ManualClock
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.status.history import JOINED, LONG_SAMPLES, MAX_QUEUES, SHORT_SAMPLES, Histories, Ring
from sparrow.broker.status.sampler import (
    GAUGES,
    QUEUE_GAUGES,
    QUEUE_RATES,
    RATES,
    Totals,
    quantile_ms,
    rates_between,
)
from sparrow.model.pipelines import Report
from tests.broker.batches import batch


def test_a_ring_keeps_the_last_samples_in_order() -> None:
    ring = Ring(["a", "b"], 4)
    for number in range(6):
        ring.add(number * 1000, {"a": number} if number % 2 else {"a": number, "b": -1})
    assert ring.times_ms() == [2000, 3000, 4000, 5000]
    assert ring.series("a") == [2, 3, 4, 5]
    assert ring.series("b") == [-1, None, -1, None]
    assert (ring.last("a"), ring.last("b")) == (5, 0)
    assert ring.mean_of_last(2) == {"a": 4.5, "b": -1}


def test_histories_are_bounded_in_time_and_queues() -> None:
    histories = Histories(["x"], ["y"])
    for number in range(SHORT_SAMPLES * 3):
        histories.add(number, {"x": number % JOINED})
    assert len(histories.short) == SHORT_SAMPLES
    assert histories.long.series("x") == [(JOINED - 1) / 2] * (SHORT_SAMPLES * 3 // JOINED)
    for number in range(JOINED * (LONG_SAMPLES + 10)):
        histories.add(number, {"x": 1})
    assert len(histories.long) == LONG_SAMPLES
    for number in range(MAX_QUEUES + 5):
        histories.add_of_queue(f"q{number}", 0, {"y": 1}, is_busy=True)
    assert len(histories.queues) == MAX_QUEUES
    assert "q0" not in histories.queues
    histories.add_of_queue("idle", 0, {"y": 1}, is_busy=False)
    assert "idle" not in histories.queues
    histories.keep_queues(frozenset({"q7"}))
    assert list(histories.queues) == ["q7"]


def test_full_histories_take_about_200_kilobytes() -> None:
    broker_series, queue_series = [*RATES, *GAUGES], [*QUEUE_RATES, *QUEUE_GAUGES]
    tracemalloc.start()
    histories = Histories(broker_series, queue_series)
    for number in range(SHORT_SAMPLES):
        histories.add(number, dict.fromkeys(broker_series, 0.5))
    for queue in range(MAX_QUEUES):
        for number in range(SHORT_SAMPLES):
            histories.add_of_queue(str(queue), number, dict.fromkeys(queue_series, 0.5), is_busy=True)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 100_000 < taken < 260_000


def test_rates_are_never_negative_and_quantiles_are_bounds() -> None:
    before, after = Totals((10, 0, 0, 0, 0, 0), ()), Totals((4, 20, 0, 0, 0, 0), ())
    rates = rates_between(before, after, 2.0)
    assert (rates["messages_in"], rates["messages_out"]) == (0, 10)
    assert quantile_ms((0.001, 0.01), [0, 0, 0], [90, 99, 100], 0.5) == 1
    assert quantile_ms((0.001, 0.01), [0, 0, 0], [90, 99, 100], 0.99) == 10
    assert quantile_ms((0.001, 0.01), [0, 0, 0], [90, 99, 100], 0.999) == 20
    assert quantile_ms((0.001, 0.01), [1, 1, 1], [1, 1, 1], 0.5) == -1


@pytest_asyncio.fixture
async def clocked(tmp_path: Path) -> AsyncIterator[tuple[Broker, ManualClock]]:
    clock = ManualClock()
    async with Broker(tmp_path, config=BrokerConfig(default_partitions=1), clock=clock) as broker:
        yield broker, clock


async def step(broker: Broker, clock: ManualClock, seconds: float = 5.0) -> None:
    clock.advance(seconds)
    await broker.status.record()


async def test_rates_of_publishes_are_in_status_and_history(
    clocked: tuple[Broker, ManualClock],
) -> None:
    broker, clock = clocked
    await broker.topics.create("t")
    await step(broker, clock)
    await broker.records.publish("t", 0, batch(*[b"x"] * 5, timestamp_ms=clock.wall_ms()))
    await step(broker, clock)
    found = await broker.status.describe()
    assert found.rates.messages_in == 1.0
    assert (found.status, found.topics, found.partitions) == ("ready", 1, 1)
    history = broker.status.history(["messages_in"])
    assert history.series == {"messages_in": [0, 1]}
    assert history.interval_ms == 5000
    assert history.times_ms[1] - history.times_ms[0] == 5000
    await step(broker, clock)
    assert (await broker.status.describe()).rates.messages_in == 0


async def test_sizes_are_added_up_now_and_then(
    clocked: tuple[Broker, ManualClock],
) -> None:
    broker, clock = clocked
    for topic in ("t", "u"):
        await broker.topics.create(topic)
    size = len(batch(*[b"x"] * 5))

    async def publish(topic: str) -> None:
        await broker.records.publish(topic, 0, batch(*[b"x"] * 5, timestamp_ms=clock.wall_ms()))

    await publish("t")
    assert broker.status.moment()["bytes"] == size
    await publish("u")
    assert broker.status.moment()["bytes"] == 2 * size
    await broker.topics.delete("u")
    assert broker.status.moment()["bytes"] == 2 * size  # no walk over the topics yet
    clock.advance(6)
    assert broker.status.moment()["bytes"] == size
    await publish("t")
    clock.advance(2)
    moment = broker.status.moment()
    assert moment["bytes"] == (await broker.status.describe()).bytes == 2 * size
    assert moment["rates"] == {**dict.fromkeys(RATES, 0), "messages_in": 2.5, "bytes_in": round(size / 2, 1)}


async def test_queues_that_do_something_have_a_history(clocked: tuple[Broker, ManualClock]) -> None:
    broker, clock = clocked
    await broker.queues.create("jobs")
    await broker.queues.create("idle")
    await step(broker, clock)
    await broker.records.publish("jobs", 0, batch(*[b"x"] * 10, timestamp_ms=clock.wall_ms()))
    await step(broker, clock)
    assert broker.status.history(["published"], queue="jobs").series == {"published": [2]}
    assert broker.status.history(["published"], queue="idle").series == {"published": []}


async def test_attention_is_called_to_old_jobs_new_dead_letters_and_silent_pipelines(
    clocked: tuple[Broker, ManualClock],
) -> None:
    broker, clock = clocked
    await broker.queues.create("jobs")
    broker.pipelines.report(Report("shop", "orders"))
    now_ms = clock.wall_ms()
    await broker.records.publish("jobs", 0, batch(b"x", timestamp_ms=now_ms))
    assert (await broker.status.describe()).attention == []
    await step(broker, clock, 700)
    found = {each.kind: each for each in (await broker.status.describe()).attention}
    assert found["oldest_job"].text == "The oldest job of queue jobs waits for 11 min; nobody takes from it."
    assert found["oldest_job"].resource == "jobs"
    assert found["pipeline"].text == "Flow orders of pipeline shop is silent for 11 min."
    await broker.queues.pause("jobs")
    await step(broker, clock, 10)
    paused = {each.kind: each.text for each in (await broker.status.describe()).attention}
    assert paused["oldest_job"].endswith("it is paused.")


async def new_dead_letters(broker: Broker) -> list[str]:
    return [each.text for each in await broker.status.attention() if each.kind == "dead_letters"]


async def test_dead_letters_are_new_for_a_quarter_of_an_hour(tmp_path: Path) -> None:
    clock = ManualClock()
    config = BrokerConfig(default_partitions=1)
    async with Broker(tmp_path, config=config, clock=clock) as broker:
        for name in ("jobs", "jobs.dead"):
            await broker.queues.create(name)
        await broker.records.publish("jobs.dead", 0, batch(*[b"x"] * 3, timestamp_ms=clock.wall_ms()))
        for _ in range(14):
            await step(broker, clock, 61)
            assert await new_dead_letters(broker) == ["Queue jobs has 3 new dead letters."]
        for _ in range(2):
            await step(broker, clock, 61)
        assert await new_dead_letters(broker) == []
    async with Broker(tmp_path, config=config, clock=clock) as broker:
        assert await new_dead_letters(broker) == []  # they were there at the start
        await broker.records.publish("jobs.dead", 0, batch(b"y", timestamp_ms=clock.wall_ms()))
        await step(broker, clock)
        assert await new_dead_letters(broker) == ["Queue jobs has 1 new dead letter."]


async def test_attention_is_called_to_a_disk_near_its_reserve(
    clocked: tuple[Broker, ManualClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, _ = clocked
    assert (await broker.status.describe()).attention == []
    left = broker._logs.reserve_bytes // 2
    monkeypatch.setattr(type(broker._logs), "free_bytes", lambda logs: logs.reserve_bytes + left)
    (found,) = await broker.status.attention()
    assert (found.kind, found.text) == (
        "disk",
        f"The disk has {left >> 20:,} MiB left before records are refused.",
    )


async def test_attention_is_called_to_a_lag_that_grows(clocked: tuple[Broker, ManualClock]) -> None:
    broker, clock = clocked
    await broker.topics.create("t")
    await broker.records.publish("t", 0, batch(*[b"x"] * 1500, timestamp_ms=clock.wall_ms()))
    await broker.groups.commit_offsets("behind", {("t", 0): (0, "")})
    await broker.groups.commit_offsets("steady", {("t", 0): (0, "")})
    for minute in range(7):
        await step(broker, clock, 61)
        await broker.records.publish("t", 0, batch(*[b"x"] * 100, timestamp_ms=clock.wall_ms()))
        await broker.groups.commit_offsets("steady", {("t", 0): (100 * minute + 100, "")})
    found = [each for each in (await broker.status.describe()).attention if each.kind == "lag"]
    assert [each.resource for each in found] == ["behind"]
    assert "2,200 messages" in found[0].text
