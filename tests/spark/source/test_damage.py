"""Logs whose bytes have changed, and records that are removed while they are read: named, or
skipped and counted, and no others are lost.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Self, cast

import pytest
from pyspark.sql.types import StructType

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import CorruptBatch
from sparrow.records.batch import LENGTH_OFFSET, OVERHEAD_BYTES
from sparrow.records.builder import build_batch
from sparrow.spark.source import read_task
from sparrow.spark.source.plan import OffsetRange
from sparrow.spark.source.schema import TYPES
from sparrow.spark.wire import FetchedChunk, Target
from tests.spark.source.without_spark import read_batch

if TYPE_CHECKING:
    from sparrow.spark.wire import FetchWanted, Session

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("is_failure", [True, False])
def test_a_corrupt_batch_is_named_or_skipped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_failure: bool
) -> None:
    with sparrow.testing.broker(data_dir=str(tmp_path)) as broker, sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic("t", partitions=1)
        for number in range(9):
            client.publish("t", b"value-%d" % number)
        (log,) = [path for path in tmp_path.rglob("*.log") if b"value-4" in path.read_bytes()]
        data = log.read_bytes()
        with log.open("r+b") as file:
            file.seek(data.index(b"value-4"))
            file.write(b"VALUE")
        broker.restart()  # it has the newest batches in memory
        options = {"url": broker.url, "subscribe": "t", "columns": "value,topic,partition,offset"}
        if is_failure:
            with pytest.raises(CorruptBatch, match="topic t, partition 0, batch at offset 4"):
                read_batch(**options)
        else:
            found = read_batch(**options, failOnCorrupt="false")
            assert [row[3] for row in found] == [0, 1, 2, 3, 5, 6, 7, 8]
            assert "1 corrupt batches of topic t, partition 0 were skipped" in caplog.text


def test_a_log_that_is_damaged_is_named_or_read_up_to_there_and_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sparrow.testing.broker(data_dir=str(tmp_path)) as broker, sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic("t", partitions=1)
        for number in range(50):
            client.publish("t", b"value-%02d" % number + bytes(1000))
        (log,) = [path for path in tmp_path.rglob("*.log") if b"value-20" in path.read_bytes()]
        data = log.read_bytes()
        place = 0
        for _ in range(20):
            place += OVERHEAD_BYTES + int.from_bytes(data[place + LENGTH_OFFSET :][:4], "big")
        with log.open("r+b") as file:
            file.seek(place)
            file.write(bytes(61))
        broker.restart()  # it has the newest batches in memory
        options = {"url": broker.url, "subscribe": "t", "columns": "topic,partition,offset"}
        with pytest.raises(CorruptBatch, match=r"topic t, partition 0, from offset .* damaged there"):
            read_batch(**options)
        found = [row[2] for row in read_batch(**options, failOnCorrupt="false")]
        assert found[:20] == list(range(20))
        assert found[20] > 20
        assert found[20:] == list(range(found[20], 50))
        assert "a damaged part of a log is skipped: topic t, partition 0, from offset 20 on" in caplog.text


def test_records_that_were_fetched_before_they_went_are_not_dropped() -> None:
    batches = [
        number.to_bytes(8, "big") + build_batch([b"%d" % number], None, None, 1)[8:] for number in range(4)
    ]
    whole = FetchedChunk(
        memoryview(b"".join(batches)), 4, start_offset=3, end_offset=4, stable_offset=4, aborted=[]
    )
    session = cast("Session", SimpleNamespace(fetch_ahead=lambda: _Answered(whole)))
    schema = StructType().add("offset", TYPES["offset"])
    found = read_task._read(
        read_task.ReadSettings(Target(), schema, ("offset",)), session, [OffsetRange("t", "", 0, 0, 4, 100)]
    )
    assert [offset for batch in found for offset in batch.column(0).to_pylist()] == [0, 1, 2, 3]


class _Answered:
    """Fetches whose responses are there."""

    def __init__(self, chunk: FetchedChunk) -> None:
        self._chunk = chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, _: FetchWanted) -> None:
        pass

    def receive(self) -> FetchedChunk:
        return self._chunk
