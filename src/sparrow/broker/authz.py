"""Who may do what: the hook that every verb of the broker asks.

Operations and resource types are Kafka's (KIP-11), so that ACLs mean the same at every door. The broker ships `AllowAll`;
an implementation with stored ACLs replaces it without another line changing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from sparrow.base.errors import NotAuthorized


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. `kind` is "User" for everything that authenticates."""

    name: str
    kind: str = "User"

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("ANONYMOUS")


class Operation(Enum):
    """What a principal may do to a resource; Kafka's names."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"
    CLUSTER_ACTION = "ClusterAction"


class ResourceType(Enum):
    """What an operation is done to; Kafka's names."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"


CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER, named as Kafka names it."""


class Authorizer(Protocol):
    """Says yes or no. Called on the loop for every verb: answer from memory."""

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> bool: ...


class AllowAll:
    """Everybody may do everything; for a broker that only its own machine reaches."""

    def allows(
        self,
        principal: Principal,  # noqa: ARG002 - the protocol's names
        operation: Operation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
        resource: str,  # noqa: ARG002
    ) -> bool:
        return True


def require(
    authorizer: Authorizer,
    principal: Principal,
    operation: Operation,
    resource_type: ResourceType,
    resource: str,
) -> None:
    """Raise NotAuthorized unless the authorizer says yes."""
    if not authorizer.allows(principal, operation, resource_type, resource):
        raise NotAuthorized(
            f"{principal} is not allowed to {operation.value} {resource_type.value} {resource!r};"
            " an administrator can grant it"
        )
