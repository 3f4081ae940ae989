"""A broker that is down for a while, as during a restart: a stream and its tasks wait for it, a new
query does not.
"""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import ConnectionLost
from sparrow.spark.wire import session
from tests.spark.source.without_spark import micro_batch, read_batch, stream_reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.testing.running_broker import RunningBroker

pytestmark = pytest.mark.slow


@contextmanager
def away(broker: RunningBroker) -> Iterator[None]:
    broker.stop()
    back = threading.Timer(0.3, broker.restart)
    back.start()
    try:
        yield
    finally:
        back.join()


def test_a_stream_outlives_an_outage_in_its_driver_and_in_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "BACKOFF_INITIAL_S", 0.01)
    with sparrow.testing.broker(default_partitions=1, drain_timeout_ms="100ms") as broker:
        with closing(sparrow.sync.connect(broker.url)) as client:
            client.publish("t", b"1")
        options = {"url": broker.url, "subscribe": "t", "startingOffsets": "earliest", "retries": 0}
        reader = stream_reader(**options)
        start = reader.initialOffset()
        with away(broker):
            end = reader.latestOffset(start, ReadAllAvailable())
        with away(broker):
            assert len(micro_batch(reader, start, end)) == 1
        broker.stop()
        with pytest.raises(ConnectionLost):
            read_batch(**options)
