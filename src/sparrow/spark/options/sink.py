"""Options of writing to topics.

Those of Spark's Kafka sink keep their names. `sinkId`, `batchId`, `stageTimeout` and `takeOver`
belong to what Kafka's sink does not have: each micro-batch exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparrow.base.settings import BOOLEAN, TEXT, choice, duration, integer, size
from sparrow.records.compression import Compression
from sparrow.spark.options.connection import with_connection
from sparrow.spark.options.declare import DataSourceOption, Values

_MAX_BATCH_ID = (1 << 63) - 1
_MAX_BATCH_BYTES = 512 * 1024 * 1024
_DAY_MS = 86_400_000

SINK = (
    DataSourceOption(
        "topic",
        TEXT,
        None,
        "Where all rows go. It comes before the column `topic`, which else says it for each row.",
    ),
    DataSourceOption(
        "includeHeaders",
        BOOLEAN,
        True,
        "Write the column `headers` if there is one.",
    ),
    DataSourceOption(
        "compression",
        choice(*(each.name.lower() for each in Compression)),
        "none",
        "Compression of batches: `gzip`, `snappy`, `lz4` or `zstd`.",
        ("kafka.compression.type", "compression.type"),
    ),
    DataSourceOption(
        "maxBatchBytes",
        size(1024, _MAX_BATCH_BYTES),
        1 << 20,
        "Maximum size of a batch of records, before compression.",
    ),
    DataSourceOption(
        "sinkId",
        TEXT,
        None,
        "The name by which the broker remembers which batch was the last. A stream has one without "
        "it: its query's id.",
        show="the query's id",
    ),
    DataSourceOption(
        "batchId",
        integer(0, _MAX_BATCH_ID),
        None,
        "Number of a batch write, with `sinkId`. A batch with this number or a lower one that was "
        "written before is not written again. For `foreachBatch`.",
    ),
    DataSourceOption(
        "takeOver",
        BOOLEAN,
        False,
        "Allow this query to continue with a `sinkId` that another one used, and at any batch.",
    ),
    DataSourceOption(
        "stageTimeout",
        duration(1000, _DAY_MS),
        None,
        "Time for which the broker keeps the records of a batch without further activity. At "
        "most the broker's `transactions.max_timeout`.",
        ("kafka.transaction.timeout.ms",),
        show="15m",
    ),
)

_ADVICE = {
    "subscribe": "it says what is read; rows are written to topic",
    "subscribePattern": "it says what is read; rows are written to topic",
    "assign": "it says what is read; rows are written to topic, and the column partition says where in it",
    "partition": "add a column partition",
    "isolation.level": "it is for reading; what is written is always committed as a whole",
    "kafka.isolation.level": "it is for reading; what is written is always committed as a whole",
}


def _named(values: Values) -> Iterable[str]:
    if values["batchId"] is not None and values["sinkId"] is None:
        yield "batchId is given without sinkId; give both, so that the broker knows whose number it is"
    for name in ("topic", "sinkId"):
        if values[name] is not None and not values[name].strip():
            yield f"{name} is empty; give a name, or leave it out"


SINK_OPTIONS = with_connection(SINK, rules=(_named,), advice=_ADVICE)
"""Options of `df.write` and `df.writeStream`."""
