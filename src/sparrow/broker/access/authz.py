"""Principals, operations, resources, and the authorizer that every operation of the broker asks.

Operations and resource types are Kafka's (KIP-11), so that ACLs mean the same in every protocol. A
broker decides by its stored ACLs (`acl_store.StoredAuthorizer`); `AllowAll`, or any object with
this method, can replace it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from sparrow.base.errors import NotAuthorized
    from sparrow.broker.access.login import Login


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of an operation. `kind` is "User" for all who authenticate.

    `host` is the address that the call comes from ("" inside the process). It is no part of the
    identity, so two principals that differ only in it are equal; rules that name a host use it.
    """

    name: str
    kind: str = "User"
    host: str = field(default="", compare=False)
    listener: str = field(default="", compare=False)
    """The name of the listener that the call came through, for the audit; "" inside the process."""
    login: Login | None = field(default=None, compare=False, repr=False)
    """The login that proved the principal, which its session depends on; None: it was not proved.
    No part of the identity.
    """

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("ANONYMOUS")
RESERVED_NAMES: Final = frozenset({"*", ANONYMOUS.name})
"""Names that no user has: in rules "*" means all principals, and ANONYMOUS is a caller without a
login.
"""
SYSTEM: Final = Principal("sparrow", "System")
"""The broker itself: it may do everything, and no frontend ever accepts this kind from a client."""


class Operation(Enum):
    """Operations that rights are about; Kafka's names. ALL appears in rules and ANY in filters
    only; `allows` is never called with them.
    """

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
    """Types of resources; Kafka's names. ANY appears in filters only."""

    ANY = "Any"
    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"
    DELEGATION_TOKEN = "DelegationToken"  # noqa: S105 - Kafka's name
    USER = "User"


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
"""The operations that exist for a resource of each type (KIP-430)."""


class Authorizer(Protocol):
    """Decision about rights. Called on the loop for every operation: decide from memory."""

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> bool:
        """Return True if the principal may do this to the resource."""
        ...


Report = Callable[[Principal, Operation, ResourceType, str, "NotAuthorized"], None]
"""Called with each refusal: the principal, the operation, the resource, and the error."""


class ReportingAuthorizer:
    """Another authorizer with a report of its refusals. It adds no cost to allowed operations."""

    def __init__(self, inner: Authorizer, report: Report) -> None:
        self.allows = inner.allows
        self.report_refusal = report


class AllowAll:
    """Authorizer that allows everything; for a broker that only its own machine reaches."""

    def allows(
        self,
        principal: Principal,  # noqa: ARG002 - the protocol's names
        operation: Operation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
        resource: str,  # noqa: ARG002
    ) -> bool:
        return True
