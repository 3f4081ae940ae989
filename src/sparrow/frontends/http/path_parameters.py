"""The parts of paths that name something."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from sparrow.frontends.admin.fields import (
    MAX_TOPIC_CHARACTERS,
    TOPIC_PATTERN,
    MaybeName,
    Number,
    Offset,
    Partition,
)


class PathParameters(Struct):
    """The parts of paths; a name means the same in each."""

    topic: Annotated[
        str,
        Meta(
            max_length=MAX_TOPIC_CHARACTERS,
            description="Name of the topic.",
            extra_json_schema=TOPIC_PATTERN,
        ),
    ]
    queue: Annotated[MaybeName, Meta(description="Name of the queue.")]
    group: Annotated[MaybeName, Meta(description="Name of the group.")]
    subscriber: Annotated[MaybeName, Meta(description="Name of the subscriber.")]
    schedule: Annotated[MaybeName, Meta(description="Name of the schedule.")]
    sink: Annotated[MaybeName, Meta(description="Name of the sink.")]
    number: Annotated[Number, Meta(description="Number of the connection.")]
    user: Annotated[MaybeName, Meta(description="Name of the user.")]
    partition: Annotated[Partition, Meta(description="Number of the partition.")]
    offset: Annotated[Offset, Meta(description="Offset in the partition.")]
