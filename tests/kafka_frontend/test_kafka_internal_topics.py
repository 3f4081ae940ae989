"""Kafka's internal topics: they exist for clients that look for them, and do not disturb others."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

import sparrow.sync
import sparrow.testing
from sparrow.records.builder import build_batch
from tests.kafka_frontend.raw import RawClient, request
from tests.kafka_frontend.requests import produce


def test_they_appear_when_a_coordinator_is_asked_for() -> None:
    with sparrow.testing.broker() as broker, RawClient(broker.kafka) as raw:
        everything = request(3, 13, topics=None)
        assert raw.call(everything).topics == ()
        for version, key_type, name in ((6, 0, "__consumer_offsets"), (3, 1, "__transaction_state")):
            raw.call(request(10, version, key_type=key_type, coordinator_keys=("g",), key="g"))
            found = {each.name: each.is_internal for each in raw.call(everything).topics}
            assert found[name] is True
        with sparrow.sync.connect(broker.url) as client:
            assert client.admin.list_topics() == []
            assert [each.name for each in client.admin.list_topics("__*")] == sorted(found)


def test_clients_cannot_write_to_them() -> None:
    with sparrow.testing.broker() as broker, RawClient(broker.kafka) as raw:
        raw.call(request(10, 6, key_type=0, coordinator_keys=("g",)))
        response = raw.call(produce(9, "__consumer_offsets", [(0, build_batch([b"v"], [b"k"]))]))
        assert response.responses[0].partition_responses[0].error_code is ErrorCode.invalid_topic_exception
