"""Spark's use of a data source, in this process: plan, send tasks, read them, ask for the next
offset.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from sparrow.spark.datasource import SparrowDataSource
from tests.spark.source.random_topics import place

if TYPE_CHECKING:
    from tests.spark.source.random_topics import Row

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def source(**options: object) -> SparrowDataSource:
    """Return a source with options by their names, `__` for a dot."""
    return SparrowDataSource(
        CaseInsensitiveDict({name.replace("__", "."): str(value) for name, value in options.items()})
    )


def batch_reader(**options: object) -> Any:
    found = source(**options)
    return found.reader(found.schema())


def stream_reader(**options: object) -> Any:
    found = source(**options)
    return found.streamReader(found.schema())


def read_batch(**options: object) -> list[Row]:
    """Return all rows of a batch, in the order of partitions and offsets."""
    return sorted(rows(batches(batch_reader(**options))), key=place)


def batches(reader: DataSourceReader) -> Iterator[Any]:
    """Yield the batches of all tasks; reader and tasks are pickled as Spark sends them."""
    for partition in reader.partitions():
        yield from pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(partition)))


def read_stream(reader: Any, start: dict[str, Any] | None = None) -> tuple[list[list[Row]], dict[str, Any]]:
    """Return the rows of each micro-batch until no more come, and the final offset."""
    if isinstance(reader, SupportsTriggerAvailableNow):
        reader.prepareForTriggerAvailableNow()
    found: list[list[Row]] = []
    begun = start or kept(reader.initialOffset())
    while True:
        end = kept(reader.latestOffset(begun, reader.getDefaultReadLimit()))
        if end == begun:
            return found, end
        found.append(micro_batch(reader, begun, end))
        reader.commit(end)
        begun = end


def micro_batch(reader: DataSourceStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    tasks = reader.partitions(start, end)
    in_task = pickle.loads(pickle.dumps(reader))
    return sorted(rows(each for task in tasks for each in in_task.read(task)), key=place)


def kept(offset: dict[str, Any]) -> dict[str, Any]:
    """Return an offset as a checkpoint restores it."""
    return dict(json.loads(json.dumps(offset)))


def rows(found: Iterable[Any]) -> Iterator[Row]:
    for batch in found:
        columns = batch.to_pydict()
        for number in range(batch.num_rows):
            yield tuple(plain(name, columns[name][number]) for name in NAMES if name in columns)


def plain(name: str, value: Any) -> Any:
    """Return a row in the form of `read_by_kafka`."""
    if name == "timestamp":
        return (value - _EPOCH) // timedelta(milliseconds=1)
    if name == "headers" and value is not None:
        return [(each["key"], each["value"]) for each in value]
    return value
