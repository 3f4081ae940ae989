"""Users, access rules and quotas."""

from __future__ import annotations

from typing import Final, Literal

from sparrow.model.result import Result

OperationName = Literal[
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
    "ClusterAction",
    "CreateTokens",
    "DescribeTokens",
    "TwoPhaseCommit",
]
"""Operations that rights are about; Kafka's names."""

ResourceName = Literal["Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"]
PermissionName = Literal["Allow", "Deny"]
PatternName = Literal["Literal", "Prefixed"]
SelectedPatternName = Literal["Literal", "Prefixed", "Match"]
"""Match: every rule that applies to the resource with this name."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of type Cluster, as Kafka names it."""


class UserListing(Result, frozen=True):
    """A user: (SASL mechanism, iterations) for each credential."""

    name: str
    credentials: list[tuple[str, int]]


class AccessRule(Result, frozen=True):
    """A rule that allows or denies a principal an operation on resources, in Kafka's words.

    `name` is a name, "*" for all, or with `pattern_type` "Prefixed" the beginning of names.
    `principal` is "User:alice", or "User:*" for everybody; `host` an address or "*".
    """

    resource_type: str
    """A `ResourceName`."""
    name: str
    principal: str
    operation: str
    """An `OperationName`."""
    permission: str = "Allow"
    pattern_type: str = "Literal"
    host: str = "*"


class Quota(Result, frozen=True):
    """Limits of a user, a client ID, both, or an address.

    `entity`: type ("user", "client-id", "ip") → name, None for the default of the type. `values`:
    setting → number.
    """

    entity: dict[str, str | None]
    values: dict[str, float]
