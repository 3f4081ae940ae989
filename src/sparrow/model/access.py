"""Users, access rules and quotas."""

from __future__ import annotations

from typing import Literal

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


class UserListing(Result, frozen=True):
    """A user: (SASL mechanism, iterations) for each credential."""

    name: str
    credentials: list[tuple[str, int]]


class AccessRule(Result, frozen=True):
    """A rule that allows or denies a principal an operation on resources, in Kafka's words.

    `resource_type` is Topic, Group, Cluster, TransactionalId, DelegationToken or User. `name` is a
    name, "*" for all, or with `pattern_type` "Prefixed" the beginning of names. `principal` is
    "User:alice", or "User:*" for everybody; `host` an address or "*".
    """

    resource_type: str
    name: str
    principal: str
    operation: str
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
