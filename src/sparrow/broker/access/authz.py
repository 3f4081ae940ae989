"""Who may do what: the hook that every verb of the broker asks.

Operations and resource types are Kafka's (KIP-11), so that ACLs mean the same at every door. A broker decides by its stored ACLs
(`acl_store.StoredAuthorizer`); `AllowAll`, or anything else with these two methods, can take its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from sparrow.base.errors import NotAuthorized


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. `kind` is "User" for everything that authenticates.

    `host` is the address that the call comes from ("" inside the process). It is no part of who somebody is, so two principals
    that differ in it alone are equal; rules that name a host look at it.
    """

    name: str
    kind: str = "User"
    host: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("ANONYMOUS")
SYSTEM: Final = Principal("sparrow", "System")
"""The broker itself: it may do everything, and no door ever lets anybody in under this kind."""


class Operation(Enum):
    """What a principal may do to a resource; Kafka's names. ALL stands in rules, ANY in filters; neither is ever asked for."""

    ANY = "Any"
    ALL = "All"
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
    CREATE_TOKENS = "CreateTokens"
    DESCRIBE_TOKENS = "DescribeTokens"
    TWO_PHASE_COMMIT = "TwoPhaseCommit"


class ResourceType(Enum):
    """What an operation is done to; Kafka's names. ANY stands in filters only."""

    ANY = "Any"
    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"
    DELEGATION_TOKEN = "DelegationToken"  # noqa: S105 - Kafka's name
    USER = "User"


CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER, named as Kafka names it."""

_O = Operation
OPERATIONS_OF: Final[dict[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset(
        {
            _O.READ,
            _O.WRITE,
            _O.CREATE,
            _O.DESCRIBE,
            _O.DELETE,
            _O.ALTER,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset({_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
    ResourceType.CLUSTER: frozenset(
        {
            _O.CREATE,
            _O.CLUSTER_ACTION,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
            _O.IDEMPOTENT_WRITE,
            _O.ALTER,
            _O.DESCRIBE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({_O.DESCRIBE}),
    ResourceType.USER: frozenset({_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS}),
}
"""What can be done to a resource of each type (KIP-430)."""


class Authorizer(Protocol):
    """Says yes or no. Called on the loop for every verb: answer from memory."""

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> bool:
        """Whether the principal may do this to the resource."""
        ...

    def allows_some(self, principal: Principal, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there can be a resource of this type that the principal may do this to (KIP-679)."""
        ...


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

    def allows_some(
        self,
        principal: Principal,  # noqa: ARG002
        operation: Operation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
    ) -> bool:
        return True


def require(
    authorizer: Authorizer,
    principal: Principal,
    operation: Operation,
    resource_type: ResourceType,
    resource: str,
) -> None:
    """Raise NotAuthorized, which names the resource's type, unless the authorizer says yes."""
    if not authorizer.allows(principal, operation, resource_type, resource):
        raise refusal(principal, operation, resource_type, resource)


def refusal(
    principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
) -> NotAuthorized:
    """The error that tells a principal what it may not do."""
    return NotAuthorized(
        f"{principal} is not allowed to {operation.value} {resource_type.value} {resource!r};"
        " an administrator can grant it",
        resource_type.value,
    )


def authorized_operations(
    authorizer: Authorizer, principal: Principal, resource_type: ResourceType, resource: str
) -> frozenset[Operation]:
    """Everything that the principal may do to a resource (KIP-430)."""
    return frozenset(
        operation
        for operation in OPERATIONS_OF[resource_type]
        if authorizer.allows(principal, operation, resource_type, resource)
    )
