"""A Spark driver as a process of its own: takes one piece of work after the other on stdin (JSON
lines) and answers on stdout.

One JVM serves all contenders, so that they share its warmth, and the work of each is the same but
for `format` and its options.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WORKER_RSS_EVERY_S = 0.2


class Driver:
    """The work there is; each method takes what the request says and gives what it answers."""

    def __init__(self, spark: SparkSession, scratch: str) -> None:
        self._spark = spark
        self._queries: dict[str, Any] = {}
        self._checkpoints = Path(tempfile.mkdtemp(prefix="checkpoints-", dir=scratch))

    def read(self, source: dict[str, str], sink: str, columns: list[str] | None = None) -> dict[str, Any]:
        """Batch read; `sink` is "count" or "noop"."""
        began = time.monotonic()
        rows = self._loaded(source, columns)
        if sink == "count":
            count = rows.count()
        else:
            rows.write.format("noop").mode("overwrite").save()
            count = 0
        return {"seconds": time.monotonic() - began, "rows": count}

    def _loaded(self, source: dict[str, str], columns: list[str] | None) -> DataFrame:
        reader = self._spark.read.format(source["format"]).options(**_options(source))
        if columns and source["format"] == "sparrow":
            reader = reader.option("columns", ",".join(columns))
        rows = reader.load()
        return rows.select(*columns) if columns else rows

    def stream(
        self, source: dict[str, str], sink: str, limit: int = 0, columns: list[str] | None = None
    ) -> dict[str, Any]:
        """AvailableNow of all that is there, to "noop" or to Parquet files."""
        reader = self._spark.readStream.format(source["format"]).options(**_options(source))
        reader = reader.option("startingOffsets", "earliest")
        if limit:
            reader = reader.option("maxOffsetsPerTrigger", str(limit))
        rows = reader.load()
        if columns:
            rows = rows.select(*columns)
        where = tempfile.mkdtemp(dir=self._checkpoints)
        writer = rows.writeStream.option("checkpointLocation", f"{where}/checkpoint")
        writer = (
            writer.format("noop")
            if sink == "noop"
            else writer.format("parquet").option("path", f"{where}/table")
        )
        began = time.monotonic()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.monotonic() - began
        progress = [each for each in query.recentProgress if each.numInputRows]
        shutil.rmtree(where, ignore_errors=True)
        return {
            "seconds": seconds,
            "rows": sum(each.numInputRows for each in progress),
            "batches": len(progress),
        }

    def copy(self, name: str, source: dict[str, str], sink: dict[str, str]) -> dict[str, Any]:
        """Start a stream from topic to topic, or to noop, that runs until `stop`."""
        reader = self._spark.readStream.format(source["format"]).options(**_options(source))
        rows = reader.load().select("key", "value")
        where = tempfile.mkdtemp(dir=self._checkpoints)
        writer = rows.writeStream.queryName(name).option("checkpointLocation", where)
        writer = writer.format(sink["format"]).options(**_options(sink)).trigger(processingTime="0 seconds")
        self._queries[name] = writer.start()
        return {}

    def batches(self, name: str) -> dict[str, Any]:
        """Return the batches with rows that the stream has had."""
        progress = [each for each in self._queries[name].recentProgress if each.numInputRows]
        return {"batches": len(progress)}

    def stop(self, name: str, skip: int = 0) -> dict[str, Any]:
        """End it: the times of its batches that had rows, without the first ones."""
        query = self._queries.pop(name)
        progress = [each for each in query.recentProgress if each.numInputRows][skip:]
        query.stop()
        times = [each.durationMs["triggerExecution"] for each in progress]
        return {"batch_ms": statistics.median(times) if times else None, "batches": len(times)}

    def write(self, sink: dict[str, str], rows: int, value_bytes: int) -> dict[str, Any]:
        """Rows that the JVM makes, to a topic."""
        made = self._spark.range(rows, numPartitions=4).selectExpr(
            "cast(concat('key-', id % 10000) as binary) as key",
            f"cast(repeat('x', {value_bytes}) as binary) as value",
        )
        began = time.monotonic()
        made.write.format(sink["format"]).options(**_options(sink)).mode("append").save()
        return {"seconds": time.monotonic() - began, "rows": rows}

    def worker_memory(self, source: dict[str, str]) -> dict[str, Any]:
        """The largest resident size of a Python process while a topic is read: (bytes, seconds)."""
        import threading

        highest, is_over = 0, threading.Event()

        def watch() -> None:
            nonlocal highest
            while not is_over.wait(_WORKER_RSS_EVERY_S):
                highest = max(highest, _largest_worker_bytes())

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            answer = self.read(source, "noop")
        finally:
            is_over.set()
            watching.join()
        own = psutil.Process().memory_info().rss
        return {**answer, "worker_bytes": highest, "driver_bytes": own}


def _largest_worker_bytes() -> int:
    sizes = [0]
    for process in psutil.Process().children(recursive=True):
        try:
            if "python" in process.name():
                sizes.append(process.memory_info().rss)
        except psutil.Error:
            continue
    return max(sizes)


def _options(given: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name != "format"}


def main() -> None:
    """Serve until stdin ends."""
    conf = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark's progress bars go elsewhere
    import sparrow.spark

    spark = sparrow.spark.session(name="bench", master="local[2]", conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    driver = Driver(spark, conf["spark.local.dir"])
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        work: Callable[..., dict[str, Any]] = getattr(driver, request.pop("do"))
        try:
            answer = work(**request)
        except Exception as error:  # noqa: BLE001 - reported to the process that measures
            answer = {"error": f"{type(error).__name__}: {error}"[:4000]}
        print(json.dumps(answer), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
