"""What administrative calls return: frozen values with the field names of `docs/protocol.md`."""

from __future__ import annotations

from typing import Any

import msgspec


class Result(msgspec.Struct, frozen=True):
    """Base; fields that a newer broker adds are ignored."""


class PartitionDescription(Result, frozen=True):
    """A partition's records have the offsets `start_offset` to `end_offset` - 1."""

    partition: int
    start_offset: int
    end_offset: int
    bytes: int


class ConfigEntry(Result, frozen=True):
    """One setting of a topic: what it is, what it would be by itself, and who said so (`source`)."""

    name: str
    value: str
    default: str = ""
    source: str = ""
    unit: str = ""
    help: str = ""


class TopicDescription(Result, frozen=True):
    """A topic. Lists of topics leave out what costs much: `config`, and maybe `partitions`."""

    name: str
    id: str
    partition_count: int
    partitions: list[PartitionDescription] = []
    config: list[ConfigEntry] = []


class PartitionOffset(Result, frozen=True, array_like=True):
    """An offset of a partition; `timestamp` (ms) is -1 where none was asked for."""

    partition: int
    offset: int
    timestamp: int = -1


class UserListing(Result, frozen=True):
    """A user: (SASL mechanism, iterations) for each credential."""

    name: str
    credentials: list[tuple[str, int]]


class GroupListing(Result, frozen=True):
    """A group in a list. `type`: how its members share: "sparrow", or Kafka's "classic" and "consumer"."""

    group: str
    state: str
    members: int
    type: str = "sparrow"


class MemberDescription(Result, frozen=True):
    """A member of a group and the partitions (topic, partition) that it has."""

    member_id: str
    client_name: str = ""
    topics: list[str] = []
    partitions: list[tuple[str, int]] = []


class GroupPosition(Result, frozen=True):
    """How far a group has come in a partition; `lag` is how many records are behind the committed offset."""

    topic: str
    partition: int
    offset: int
    end_offset: int = -1
    lag: int = -1
    metadata: str = ""


class GroupDescription(Result, frozen=True):
    """A group with its members and committed offsets."""

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


class AccessRule(Result, frozen=True):
    """Who may (or may not) do what to which resources, in Kafka's words.

    `resource_type` is Topic, Group, Cluster, TransactionalId, DelegationToken or User; `name` a name, "*" for all, or with
    `pattern_type` "Prefixed" what names begin with. `principal` is "User:alice", or "User:*" for everybody; `host` an address or "*".
    """

    resource_type: str
    name: str
    principal: str
    operation: str
    permission: str = "Allow"
    pattern_type: str = "Literal"
    host: str = "*"


class Quota(Result, frozen=True):
    """Limits of a user, a client id, both, or an address.

    `entity`: type ("user", "client-id", "ip") → name, None for the default of the type. `values`: setting → number.
    """

    entity: dict[str, str | None]
    values: dict[str, float]


class BrokerDescription(Result, frozen=True):
    """A broker. `statistics` has everything that it tells, these fields included."""

    version: str
    cluster_id: str
    uptime_ms: int
    topics: int = 0
    partitions: int = 0
    connections: int = 0
    statistics: dict[str, Any] = {}
