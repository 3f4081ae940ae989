"""Progress that a stream's reader and its tasks report to the broker, without Spark."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.clock import ManualClock
from sparrow.spark import lag as lag_module
from sparrow.spark.lag import INTERVAL_S, RETRY_S, Lag, group_name, introduce
from sparrow.spark.wire import Target, borrowed

if TYPE_CHECKING:
    from sparrow.testing.running_broker import RunningBroker

QUERY = "4bd22832-ae49-4c82-8c50-b2faf061bd87"


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with sparrow.testing.broker() as running:
        with sparrow.sync.connect(running.url) as client:
            client.admin.create_topic("orders", partitions=2)
        yield running
        borrowed.__self__.close()  # the sessions that this process keeps


def _committed(broker: RunningBroker, group: str) -> dict[int, int]:
    with sparrow.sync.connect(broker.url) as client:
        return {each.partition: each.offset for each in client.admin.group_offsets(group)}


def test_reader_commits_once_a_task_named_its_group(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lag = Lag(Target(running.url), clock=ManualClock().monotonic)
    lag.reached({"orders": {0: 1}}, is_caught_up=True)
    introduction = lag.introduction
    assert introduction is not None
    monkeypatch.setattr(lag_module, "_group_of_this_task", lambda prefix: f"{prefix}-copy")
    introduce(Target(running.url), pickle.loads(pickle.dumps(introduction)))
    lag.reached({"orders": {0: 5, 1: 6}}, is_caught_up=True)
    assert _committed(running, "spark-copy") == {0: 5, 1: 6}
    assert lag.introduction is None


def test_busy_reader_commits_once_a_second_and_at_once_when_it_caught_up(running: RunningBroker) -> None:
    clock = ManualClock()
    lag = Lag(Target(running.url), group="g", clock=clock.monotonic)
    lag.reached({"orders": {0: 1}})
    lag.reached({"orders": {0: 2}})
    assert _committed(running, "g") == {0: 1}
    clock.advance(INTERVAL_S)
    lag.reached({"orders": {0: 3}})
    assert _committed(running, "g") == {0: 3}
    lag.reached({"orders": {0: 4, 1: 2}}, is_caught_up=True)
    assert _committed(running, "g") == {0: 4, 1: 2}


def test_refusal_is_told_once_and_asked_again_a_minute_later(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    lag = Lag(Target(running.url), group="g" * 300, clock=clock.monotonic)
    for number in range(3):
        lag.reached({"orders": {0: number}}, is_caught_up=True)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "lag=false" in warnings[0].getMessage()
    clock.advance(RETRY_S)
    lag.reached({"orders": {0: 9}}, is_caught_up=True)
    assert len(caplog.records) == 1


def test_tasks_of_a_query_that_may_not_be_introduced_say_so_once_a_minute(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    monkeypatch.setattr(lag_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(lag_module, "_group_of_this_task", lambda prefix: "g" * 300)
    monkeypatch.setattr(lag_module, "_introduced", {})
    introduction = lag_module.Introduction("reader", "spark")
    for _ in range(3):
        introduce(Target(running.url), introduction)
        now[0] += RETRY_S / 4
    assert len(caplog.records) == 1
    now[0] += RETRY_S
    introduce(Target(running.url), introduction)
    assert len(caplog.records) == 2


def test_unreachable_broker_fails_no_query(caplog: pytest.LogCaptureFixture) -> None:
    target = Target("sparrow://127.0.0.1:1", retries=0, connect_timeout_s=1)
    Lag(target, group="g").reached({"orders": {0: 1}})
    assert "127.0.0.1:1" in caplog.text


def test_nothing_is_told_where_it_is_not_wanted(running: RunningBroker) -> None:
    lag = Lag(Target(running.url), is_wanted=False, group="g")
    lag.reached({"orders": {0: 1}}, is_caught_up=True)
    assert lag.introduction is None
    assert _committed(running, "g") == {}


@pytest.mark.parametrize(
    ("prefix", "description", "name"),
    [
        ("spark", f"copy\nid = {QUERY}\nrunId = x\nbatch = 7", "spark-copy"),
        ("spark", f"a b\nc\nid = {QUERY}\nrunId = x\nbatch = 7", "spark-a b\nc"),
        ("etl", f"\nid = {QUERY}\nrunId = x\nbatch = 7", f"etl-{QUERY}"),
        ("", f"copy\nid = {QUERY}\nrunId = x\nbatch = 7", "copy"),
        ("spark", "what the program says\nid = 7", f"spark-{QUERY}"),
        ("spark", None, f"spark-{QUERY}"),
    ],
)
def test_group_is_named_by_the_query_or_its_id(prefix: str, description: str | None, name: str) -> None:
    properties = {"spark.job.description": description, "sql.streaming.queryId": QUERY}
    assert group_name(prefix, properties.get) == name


def test_task_of_a_batch_has_no_group() -> None:
    assert group_name("spark", {"spark.job.description": "count"}.get) is None
