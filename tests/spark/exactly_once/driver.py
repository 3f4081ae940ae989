"""A driver in its own process: copies a topic to another one in small batches, and restarts the
query when something was killed under it.

    driver.py FOLDER GO_FILE

It gets ready and waits for the file, which says how long it copies: "forever", or "once". "once"
copies everything that exists, and counts the rows of both topics with Spark; the counts are left in
FOLDER/counts.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from mortal import MortalSink
from pyspark.errors import PySparkException, StreamingQueryException

import sparrow.spark

MAX_RESTARTS = 60
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Lives are short: code of the first of the JVM's compilers is quick enough, and ready at once.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.level=OFF",
    "spark.sql.streaming.minBatchesToRetain": "20",
}


def main(folder: Path, go_file: Path) -> None:
    spark = sparrow.spark.session("mortal", master="local[2,4]", conf=CONF)
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(MortalSink)
    warm_up(spark, folder / f"warm-{os.getpid()}")
    how_long = wait_for(go_file)
    for _ in range(MAX_RESTARTS):
        query = started(spark, folder, how_long)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            sys.stderr.write(f"QUERY ENDED: {str(error)[:2000]}\n")
        else:
            break
    else:
        sys.exit("the query ended again and again")
    counts = {topic: count(spark, topic) for topic in ("source", "copy")}
    (folder / "counts.json").write_text(json.dumps(counts), encoding="utf-8")


def warm_up(spark, checkpoint: Path) -> None:
    """Do the work that is slow the first time before times count."""
    rows = spark.readStream.format("sparrow").option("subscribe", "source").load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    with suppress(PySparkException):
        writer.trigger(availableNow=True).start().awaitTermination()


def wait_for(go_file: Path) -> str:
    while not (go_file.exists() and (text := go_file.read_text(encoding="utf-8"))):
        time.sleep(0.02)
    return text


def started(spark, folder: Path, how_long: str):
    rows = (
        spark.readStream.format("sparrow")
        .option("subscribe", "source")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "400")
        .option("minPartitions", "2")
        .load()
    )
    writer = (
        rows.writeStream.format("mortal")
        .option("topic", "copy")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    writer = (
        writer.trigger(availableNow=True)
        if how_long == "once"
        else writer.trigger(processingTime="0 seconds")
    )
    return writer.start()


def count(spark, topic: str) -> list[int]:
    """Return the numbers of rows and of different values."""
    rows = spark.read.format("sparrow").option("subscribe", topic).load()
    return list(rows.selectExpr("count(*)", "count(DISTINCT value)").first())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
