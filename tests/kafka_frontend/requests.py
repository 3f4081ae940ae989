"""Requests that many tests send, in any version."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from tests.kafka_frontend.raw import RawClient, new, part, request


def metadata(version: int, *names: str, create: bool = True) -> Any:
    kind = part(load_request_schema(3, version), "topics")
    topics = tuple(new(kind, name=name) for name in names)
    return request(3, version, topics=topics, allow_auto_topic_creation=create)


def make_topic(raw: RawClient, name: str) -> uuid.UUID:
    """Create a topic and return its id."""
    (found,) = raw.call(metadata(13, name)).topics
    assert found.error_code is ErrorCode.none
    topic_id: uuid.UUID = found.topic_id
    return topic_id


def _topic(kind: Any, topic: str | uuid.UUID, **fields: Any) -> Any:
    names = {"topic": topic, "name": topic} if isinstance(topic, str) else {"topic_id": topic}
    return new(kind, **names, **fields)


def produce(
    version: int,
    topic: str | uuid.UUID,
    partitions: Sequence[tuple[int, bytes | None]],
    *,
    acks: int = -1,
    **fields: Any,
) -> Any:
    kind = load_request_schema(0, version)
    data = tuple(
        new(part(kind, "topic_data.partition_data"), index=index, records=records)
        for index, records in partitions
    )
    topics = (_topic(part(kind, "topic_data"), topic, partition_data=data),)
    return request(0, version, acks=acks, topic_data=topics, **fields)


def fetch(version: int, topic: str | uuid.UUID, partitions: Sequence[dict[str, int]], **fields: Any) -> Any:
    """Fetch `partitions`, given as fields of FetchPartition. `min_bytes` and `max_wait` default to
    0.
    """
    kind = load_request_schema(1, version)
    wanted = tuple(
        new(part(kind, "topics.partitions"), **{"partition_max_bytes": 1 << 20, **each})
        for each in partitions
    )
    topics = (_topic(part(kind, "topics"), topic, partitions=wanted),) if wanted else ()
    return request(1, version, **{"max_bytes": 50 << 20, "topics": topics, **fields})


def list_offsets(version: int, topic: str, timestamps: dict[int, int], **fields: Any) -> Any:
    """List the offsets of `timestamps`, by partition."""
    kind = load_request_schema(2, version)
    wanted = tuple(
        new(part(kind, "topics.partitions"), partition_index=index, timestamp=timestamp)
        for index, timestamp in timestamps.items()
    )
    return request(2, version, topics=(new(part(kind, "topics"), name=topic, partitions=wanted),), **fields)
