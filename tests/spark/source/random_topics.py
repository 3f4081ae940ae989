"""Topics with random content, written by a Kafka client and by Sparrow's: all compressions,
headers, nulls, transactions that were committed and aborted, times of both types.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import confluent_kafka
from hypothesis import strategies as st

import sparrow.sync
from tests.spark.kafka import read_messages

if TYPE_CHECKING:
    from sparrow.testing.running_broker import RunningBroker

SECONDS = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Row = tuple[Any, ...]
"""key, value, topic, partition, offset, timestamp in ms, type of the timestamp, headers."""

_contents = st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([0, 64, 3000]).map(bytes))
_headers = st.lists(
    st.tuples(st.text("abc\N{BLACK HEART SUIT}", max_size=5), st.one_of(st.none(), st.binary(max_size=9))),
    max_size=3,
)
_now_ms = int(time.time() * 1000)
_times = st.one_of(st.none(), st.integers(1, 10**12), st.integers(_now_ms - 9, _now_ms))
_numbers = itertools.count()


@dataclass(frozen=True)
class Record:
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int | None


@dataclass(frozen=True)
class Writing:
    """Records that one writer wrote together."""

    who: str
    """ "kafka", "native", or a transaction of a Kafka client: "commit" or "abort"."""
    codec: str
    records: list[Record]


_records = st.builds(Record, st.integers(0, 1), _contents, _contents, _headers, _times)
_writings = st.builds(
    Writing,
    st.sampled_from(["kafka", "kafka", "native", "commit", "abort"]),
    st.sampled_from(CODECS),
    st.lists(_records, min_size=1, max_size=8),
)
contents = st.lists(_writings, max_size=8)


class Writers:
    """Producers of both kinds, kept for many topics."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.client = sparrow.sync.connect(broker.url)
        self._producers: dict[tuple[str, bool], confluent_kafka.Producer] = {}

    def close(self) -> None:
        for producer in self._producers.values():
            producer.flush(SECONDS)
        self.client.close()

    def new_topic(self, partitions: int = 2, **config: str) -> str:
        name = f"random-{next(_numbers)}"
        # Timestamps of records may be long ago.
        given = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
        self.client.admin.create_topic(name, partitions=partitions, config=given)
        return name

    def write(self, topic: str, writings: list[Writing]) -> None:
        for each in writings:
            if each.who == "native":
                self._write_natively(topic, each)
            else:
                self._write_by_kafka(topic, each)

    def _write_natively(self, topic: str, each: Writing) -> None:
        with self.client.producer(compression=each.codec) as producer:
            for record in each.records:
                producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=record.headers or None,
                    timestamp_ms=record.timestamp_ms,
                    partition=record.partition,
                )

    def _write_by_kafka(self, topic: str, each: Writing) -> None:
        producer = self._producer(each.codec, is_transactional=each.who != "kafka")
        if each.who != "kafka":
            producer.begin_transaction()
        for record in each.records:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                headers=record.headers or None,
                timestamp=record.timestamp_ms or 0,
            )
        producer.flush(SECONDS)
        if each.who == "commit":
            producer.commit_transaction(SECONDS)
        elif each.who == "abort":
            producer.abort_transaction(SECONDS)

    def transactional(self, name: str) -> confluent_kafka.Producer:
        """Return a producer with transactions of its own."""
        found = confluent_kafka.Producer(
            {"bootstrap.servers": self.broker.kafka, "linger.ms": 0, "log_level": 0, "transactional.id": name}
        )
        found.init_transactions(SECONDS)
        return found

    def _producer(self, codec: str, *, is_transactional: bool) -> confluent_kafka.Producer:
        found = self._producers.get((codec, is_transactional))
        if found is None:
            options = {
                "bootstrap.servers": self.broker.kafka,
                "compression.type": codec,
                "linger.ms": 1,
                "log_level": 0,
            }
            if is_transactional:
                options["transactional.id"] = f"writer-{codec}"
            found = confluent_kafka.Producer(options)
            if is_transactional:
                found.init_transactions(SECONDS)
            self._producers[codec, is_transactional] = found
        return found


def read_by_kafka(broker: RunningBroker, topic: str, isolation: str = "read_committed") -> list[Row]:
    """Return all rows of a topic, as a Kafka client reads them."""
    found = read_messages(broker, topic, isolation=isolation)
    return sorted(
        (
            (
                message.key(),
                message.value(),
                topic,
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.timestamp()[0] - 1,
                message.headers(),
            )
            for messages in found.values()
            for message in messages
        ),
        key=place,
    )


def place(row: Row) -> tuple[str, int, int]:
    return row[2:5]
