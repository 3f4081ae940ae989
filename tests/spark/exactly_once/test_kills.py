"""Every row once, in its order, whatever is killed at random: Python workers in mid task, the
driver with its JVM before, in and after a commit, the broker.

A driver copies a topic to another, in micro-batches of a few hundred rows. After each kill it must
make progress before the next one comes. In the end the copy has to be equal to its source,
partition by partition and row by row, for a Kafka client that reads committed records, and for
Spark.

SPARROW_SPARK_KILLS=N kills more often (`make crash` does: 100 times); SPARROW_SPARK_SEED=N repeats
a run, as far as the timing of processes allows.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from contextlib import ExitStack, closing
from itertools import cycle
from typing import TYPE_CHECKING

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.spark.wire import Target, connect
from tests.repetitions import repetitions
from tests.spark.class_archive import java
from tests.spark.exactly_once.processes import DriverProcess
from tests.spark.kafka import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sparrow.testing.running_broker import RunningBroker

KILLS = repetitions(21, "SPARROW_SPARK_KILLS", least=8)
PARTITIONS = 2
DEATHS = ("after", "before", "now", "after", "now")
"""Deaths of drivers: at a commit after or before its effect, or at any moment."""
PROGRESS_TIMEOUT_S = 240
FED_AT_ONCE = 60
FED_AT_MOST = 800


class Feed:
    """Publishes rows with unique numbers, as fast as they are copied and not much faster."""

    def __init__(self, url: str) -> None:
        self._client = sparrow.sync.connect(url)
        self._client.admin.create_topic("source", partitions=PARTITIONS)
        self._client.admin.create_topic("copy", partitions=PARTITIONS)
        self._producer = self._client.producer().start()
        self.sent = 0

    def publish(self, count: int) -> None:
        for _ in range(count):
            self._producer.send("source", b"row %d" % self.sent, partition=self.sent % PARTITIONS)
            self.sent += 1
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()
        self._client.close()


class Kills:
    """The kills, and the progress of the copy."""

    def __init__(self, broker: RunningBroker, folder: Path, feed: Feed, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._broker = broker
        self._folder = folder
        self._feed = feed
        self._began = time.monotonic()

    def run(self) -> None:
        """Run lives of drivers, one after the other, and a last one that may finish."""
        with ExitStack() as started:
            driver = self._driver(started)
            for life in lives(self.random, KILLS):
                driver = self._live(driver, life, started)
            self._feed.publish(500)
            driver.go("once")
            assert driver.wait(PROGRESS_TIMEOUT_S) == 0, driver.log_end()

    def _driver(self, started: ExitStack) -> DriverProcess:
        driver = DriverProcess(self._folder, self._broker.url)
        started.callback(driver.kill)
        return driver

    def _live(self, driver: DriverProcess, life: list[str], started: ExitStack) -> DriverProcess:
        """Run the life of a driver; return the next one."""
        driver.go("forever")
        self._wait_for_progress(driver)
        following = self._driver(started)
        for event in life:
            self._wait_for_progress(driver)
            time.sleep(self.random.random() * 0.3)
            self._strike(event, driver)
        driver.bury()
        return following

    def _strike(self, event: str, driver: DriverProcess) -> None:
        if event == "worker":
            while not driver.kill_worker(self.random):
                assert driver.is_running, driver.log_end()
                time.sleep(0.01)
        elif event == "broker":
            self._broker.kill()
            self._broker.restart()
        elif event == "now":
            driver.kill()
        else:
            driver.death_file.write_text(event, encoding="utf-8")
            self._wait_for_death(driver)
        print(f"{time.monotonic() - self._began:.1f} {event}")
        self.counts["driver" if event in DEATHS else event] += 1

    def _wait_for_death(self, driver: DriverProcess) -> None:
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while driver.is_running:
            self._feed.publish(FED_AT_ONCE)
            assert time.monotonic() < deadline, driver.log_end()
            time.sleep(0.15)

    def _wait_for_progress(self, driver: DriverProcess) -> None:
        """Wait until more is committed than now; there are rows to be copied all the time."""
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        before, most = self._committed(), self._feed.sent + FED_AT_MOST
        while self._committed() <= before:
            assert driver.is_running, driver.log_end()
            assert time.monotonic() < deadline, driver.log_end()
            if self._feed.sent < most:
                self._feed.publish(FED_AT_ONCE)
            time.sleep(0.03)

    def _committed(self) -> int:
        """Return the last batch of the sink; -1 before the first."""
        with connect(Target(self._broker.url)) as session:
            sinks = session.call("sink.list", {})["sinks"]
        assert len(sinks) <= 1
        return sinks[0]["last_batch"] if sinks else -1


def lives(chance: random.Random, kills: int) -> Iterator[list[str]]:
    """Yield the kills of each life of a driver, the last of which ends it. One kill in seven is of
    a driver, which costs most of the time, one in twenty of the broker.

    If there are few kills, two are of drivers: one before and one after the effect of a commit.
    """
    drivers, brokers = max(2, kills // 7), max(1, kills // 20)
    events = ["worker"] * (kills - drivers - brokers) + ["broker"] * brokers
    chance.shuffle(events)
    share = -(-len(events) // drivers)
    for number, death in zip(range(drivers), cycle(DEATHS), strict=False):
        yield [*events[number * share : (number + 1) * share], death]


@pytest.fixture
def broker(tmp_path) -> Iterator[RunningBroker]:
    if not java():
        pytest.skip("Spark needs Java, and there is none")
    with sparrow.testing.broker(process=True, data_dir=str(tmp_path / "data")) as running:
        yield running


@pytest.mark.slow
@pytest.mark.timeout(max(600, 30 * KILLS))
def test_every_row_is_copied_once_and_in_order_whatever_is_killed(broker, tmp_path):
    seed = int(os.environ.get("SPARROW_SPARK_SEED", random.randrange(1 << 32)))
    print(f"SPARROW_SPARK_SEED={seed} SPARROW_SPARK_KILLS={KILLS}")
    with closing(Feed(broker.url)) as feed:
        kills = Kills(broker, tmp_path, feed, seed)

        kills.run()

    print(f"killed: {dict(kills.counts)}; {feed.sent} rows")
    source, copy = read_topic(broker, "source"), read_topic(broker, "copy")
    assert [len(set(rows)) for rows in source.values()] == [len(rows) for rows in source.values()]
    assert copy == source
    rows = sum(map(len, source.values()))
    assert json.loads((tmp_path / "counts.json").read_text()) == {
        "source": [rows, rows],
        "copy": [rows, rows],
    }
    assert sum(kills.counts.values()) == KILLS
    if kills.counts["driver"] >= DEATHS.index("before") + 1:
        # Readers of uncommitted records also see rows of losing attempts: the kills have hit.
        everything = read_topic(broker, "copy", isolation="read_uncommitted")
        assert sum(map(len, everything.values())) > rows
