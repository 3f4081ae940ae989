"""librdkafka's own in-memory broker, and its two raw interfaces: put a batch in as it is, take
batches out as they are stored.
"""

from __future__ import annotations

import io
import socket
import struct
from datetime import timedelta
from typing import Any

from confluent_kafka import Producer
from kio.schema.fetch.v4 import request as fetch_request
from kio.schema.fetch.v4 import response as fetch_response
from kio.schema.produce.v3 import request as produce_request
from kio.schema.produce.v3 import response as produce_response
from kio.schema.request_header.v1.header import RequestHeader
from kio.serial import entity_reader, entity_writer

from sparrow.records.batch import parse_header

SECONDS = 20


class MockCluster:
    """A broker that lives as long as this object does."""

    def __init__(self) -> None:
        self._owner = Producer(
            self.producer_settings() | {"test.mock.num.brokers": 1, "bootstrap.servers": "none"}
        )
        (broker,) = self._owner.list_topics(timeout=SECONDS).brokers.values()
        self.address = (broker.host, broker.port)
        self.bootstrap = f"{broker.host}:{broker.port}"
        self._socket = socket.create_connection(self.address, timeout=SECONDS)
        self._socket.settimeout(SECONDS)

    def close(self) -> None:
        self._socket.close()
        self._owner.flush(SECONDS)

    @staticmethod
    def producer_settings() -> dict[str, Any]:
        # Produced messages wait for `flush`, so that they leave as one batch, however slow the
        # machine.
        return {"log_level": 0, "linger.ms": 60_000, "sticky.partitioning.linger.ms": 0}

    def fetch(self, topic: str, partition: int = 0) -> bytes:
        """Return all batches of one partition of a topic as they are stored in the broker, which
        gives one batch at a time.
        """
        found, offset = b"", 0
        while batch := self._fetch_one(topic, partition, offset):
            found += batch
            offset += parse_header(batch).last_offset_delta + 1
        return found

    def _fetch_one(self, topic: str, partition: int, offset: int) -> bytes:
        wanted = fetch_request.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24
        )
        request = fetch_request.FetchRequest(
            max_wait=timedelta(milliseconds=10),
            min_bytes=1,
            topics=(fetch_request.FetchTopic(topic=topic, partitions=(wanted,)),),
        )
        answer = self._call(request, fetch_response.FetchResponse).responses[0].partitions[0]
        assert answer.error_code == 0
        return bytes(answer.records or b"")

    def produce(self, topic: str, batch: bytes) -> int:
        """Put one batch into partition 0. Return its base offset."""
        # the mock creates a topic when its metadata is requested
        self._owner.list_topics(topic, SECONDS)
        partition = produce_request.PartitionProduceData(index=0, records=batch)
        request = produce_request.ProduceRequest(
            acks=-1,
            timeout=timedelta(seconds=SECONDS),
            topic_data=(produce_request.TopicProduceData(name=topic, partition_data=(partition,)),),
        )
        answer = self._call(request, produce_response.ProduceResponse).responses[0].partition_responses[0]
        assert answer.error_code == 0
        return int(answer.base_offset)

    def _call(self, request: Any, response: type[Any]) -> Any:
        out = io.BytesIO()
        kind = type(request)
        header = RequestHeader(
            request_api_key=kind.__api_key__,
            request_api_version=kind.__version__,
            correlation_id=1,
            client_id="tests",
        )
        entity_writer(RequestHeader)(out, header)
        entity_writer(kind)(out, request)
        self._socket.sendall(struct.pack(">i", out.tell()) + out.getvalue())
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)[4:]
        parsed, _ = entity_reader(response)(answer, 0)
        return parsed

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the mock broker hung up"
            data += more
        return data
