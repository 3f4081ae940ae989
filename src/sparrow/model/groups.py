"""Groups of all kinds: members, positions and committed offsets."""

from __future__ import annotations

from sparrow.model.result import Result
from sparrow.records.topic_partition import TopicPartition


class GroupListing(Result, frozen=True):
    """A group in a list. `type` is its protocol: "sparrow", or Kafka's "classic", "consumer" and
    "share". `protocol_type` is the name that a classic group's members gave their protocol, usually
    "consumer".
    """

    group: str
    state: str
    members: int
    type: str = "sparrow"
    protocol_type: str = ""


class GroupLag(Result, frozen=True):
    """A group, and how many records it has still to read."""

    group: str
    state: str
    members: int
    type: str
    lag: int


class MemberDescription(Result, frozen=True):
    """A member of a group. It holds `partitions`, and was asked to release `releasing`."""

    member_id: str
    client_name: str = ""
    topics: list[str] = []
    epoch: int = -1
    is_attached: bool = True
    """False while a member that may come back has no connection."""
    partitions: list[TopicPartition] = []
    releasing: list[TopicPartition] = []
    instance_id: str | None = None
    client_host: str = ""


class GroupPosition(Result, frozen=True):
    """A group's position in a partition: the committed offset, or the start offset of a share
    group. `lag` is the number of records after it that are not finished.
    """

    topic: str
    partition: int
    offset: int
    end_offset: int = -1
    lag: int = -1
    metadata: str = ""


class GroupDescription(Result, frozen=True):
    """A group with its members, ordered by id, and its offsets. `epoch` of a classic group is its
    generation.
    """

    group: str
    state: str
    epoch: int = -1
    members: list[MemberDescription] = []
    offsets: list[GroupPosition] = []
    type: str = "sparrow"


class CommittedOffset(Result, frozen=True, array_like=True):
    """A committed offset: the next one that the group reads."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""
