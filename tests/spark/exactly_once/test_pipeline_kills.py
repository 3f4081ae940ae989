"""kill -9 of `sparrow pipeline run` at any moment: each row is once in the topic, in the Parquet
files, in the Delta and in the Iceberg table.

Four flows read one topic in small batches; the program is killed with its JVM and all its workers
while they are under way, and started again, until everything is done.

Each life of the program costs the start of a JVM, so this runs only where SPARROW_SPARK_KILLS says
how often the tests of this directory may kill (`make crash` does); one kill in seven is one of
these. SPARROW_SPARK_SEED=N repeats a run, as far as the timing of processes allows.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet
import pytest

import sparrow.sync
import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.spark.class_archive import java, short_lived
from tests.spark.kafka import read_topic

KILLS = max(2, int(os.environ.get("SPARROW_SPARK_KILLS", "0")) // 7)
BATCH_ROWS = 1500
BATCHES = 3 * KILLS + 4
ROWS = BATCH_ROWS * BATCHES
PROGRESS_TIMEOUT_S = 240
MAX_FAILURES = 5
FLOWS = 4
PIPELINE = """
name: killed
checkpoints: ./checkpoints
trigger: once
flows:
"""
FLOW = """
  {name}:
    from: {{topics: source, max_rows_per_trigger: {batch_rows}}}
    decode: {{json: {{schema: "id bigint, word string"}}}}
    steps:
      - sql: SELECT id, upper(word) AS word FROM input
    to: {sink}
"""


class Program:
    """One life of `sparrow pipeline run`."""

    def __init__(self, folder: Path, url: str) -> None:
        self._log = folder / "run.log"
        with self._log.open("ab") as log:
            self._process = psutil.Popen(
                [sys.executable, "-m", "sparrow", "pipeline", "run", "killed.yml", "--master", "local[2]"],
                cwd=folder,
                env={**os.environ, "SPARROW_URL": url, "SPARK_SUBMIT_OPTS": short_lived()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill all of it at once with kill -9."""
        with suppress(psutil.NoSuchProcess):
            everything = [self._process, *self._process.children(recursive=True)]
            for each in everything:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(everything, timeout=30)

    def ends_well(self) -> bool:
        """Return True if the run ended by itself with everything done. On a busy machine Spark
        gives up on processes that are slow to start.
        """
        return self._process.wait(PROGRESS_TIMEOUT_S) == 0

    def log_end(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:]


def write_pipeline(folder: Path) -> None:
    catalog = f'{{type: sql, uri: "sqlite:///{folder}/catalog.db", warehouse: "file://{folder}/warehouse"}}'
    sinks = {
        "topic": "{topic: copy, value: json}",
        "parquet": "{parquet: ./parquet}",
        "delta": "{delta: ./delta}",
        "iceberg": f"{{iceberg: default.rows, properties: {catalog}}}",
    }
    assert len(sinks) == FLOWS
    flows = (FLOW.format(name=name, sink=sink, batch_rows=BATCH_ROWS) for name, sink in sinks.items())
    (folder / "killed.yml").write_text(PIPELINE + "".join(flows))


def publish_rows(url: str) -> None:
    with sparrow.sync.connect(url) as client:
        client.admin.create_topic("source", partitions=3)
        with client.producer() as producer:
            for number in range(ROWS):
                producer.send("source", b'{"id": %d, "word": "w%d"}' % (number, number % 97))


def committed(folder: Path) -> int:
    """Return the number of batches that Spark has noted as done, in all flows."""
    return len(list(folder.glob("checkpoints/*/commits/[0-9]*")))


def lives(folder: Path, url: str, dice: random.Random) -> None:
    """Start it again and again until all is done."""
    kills = failures = 0
    while True:
        with ExitStack() as started:
            program = Program(folder, url)
            started.callback(program.kill)
            if kills < KILLS and killed_at_random(program, folder, dice):
                kills += 1
                print(f"killed after {committed(folder)} of {FLOWS * BATCHES} batches")
            elif program.ends_well():
                break
            else:
                failures += 1
                assert failures <= MAX_FAILURES, program.log_end()
    assert kills == KILLS
    print(f"done, {failures} other failures")


def killed_at_random(program: Program, folder: Path, dice: random.Random) -> bool:
    """Kill it some batches and a moment after its start, unless it ends before."""
    wanted = committed(folder) + dice.choice((1, 1, 2, 3, 5, 8))
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while committed(folder) < wanted:
        assert time.monotonic() < deadline, program.log_end()
        if program.has_ended:
            return False
        time.sleep(0.02)
    time.sleep(dice.uniform(0, 1))
    if program.has_ended:
        return False
    program.kill()
    return True


def topic_rows(broker: RunningBroker) -> Iterator[dict[str, Any]]:
    for values in read_topic(broker, "copy").values():
        yield from (json.loads(value or b"") for value in values)


def parquet_rows(table: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows that Spark reads: those of the files in the sink's log. Killed batches have
    left other files.
    """
    logs = {
        int(path.name.removesuffix(".compact")): path for path in (table / "_spark_metadata").glob("[0-9]*")
    }
    compacted = max((number for number, path in logs.items() if path.suffix == ".compact"), default=0)
    for number in sorted(logs):
        if number >= compacted:
            for line in logs[number].read_text().splitlines()[1:]:
                file = json.loads(line)["path"].removeprefix("file://")
                yield from pyarrow.parquet.read_table(file, partitioning=None).to_pylist()


def delta_rows(table: Path) -> list[dict[str, Any]]:
    import deltalake

    rows: list[dict[str, Any]] = deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return rows


def iceberg_rows(folder: Path) -> list[dict[str, Any]]:
    from pyiceberg.catalog.sql import SqlCatalog

    properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    catalog = SqlCatalog("default", **properties)
    rows: list[dict[str, Any]] = catalog.load_table("default.rows").scan().to_arrow().to_pylist()
    catalog.engine.dispose()
    return rows


@pytest.mark.slow
@pytest.mark.timeout(PROGRESS_TIMEOUT_S * (KILLS + 2))
@pytest.mark.skipif(not java(), reason="Spark needs Java, and there is none")
@pytest.mark.skipif(
    "SPARROW_SPARK_KILLS" not in os.environ,
    reason="each kill costs the start of a JVM: SPARROW_SPARK_KILLS=14 allows two, and make crash many",
)
def test_every_row_is_once_in_every_sink_however_often_the_program_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("SPARROW_SPARK_SEED", random.randrange(1 << 32)))
    print(f"SPARROW_SPARK_SEED={seed}; {KILLS} kills, {ROWS} rows")
    dice = random.Random(seed)
    write_pipeline(tmp_path)
    with sparrow.testing.broker(process=True, data_dir=str(tmp_path / "data")) as broker:
        publish_rows(broker.url)
        lives(tmp_path, broker.url, dice)
        found = {
            "topic": list(topic_rows(broker)),
            "parquet": list(parquet_rows(tmp_path / "parquet")),
            "delta": delta_rows(tmp_path / "delta"),
            "iceberg": iceberg_rows(tmp_path),
        }
    expected = [{"id": number, "word": f"W{number % 97}"} for number in range(ROWS)]
    for name, rows in found.items():
        assert sorted(rows, key=lambda row: row["id"]) == expected, name
