"""Checks of rights for the services of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.broker.access import authz
from sparrow.broker.access.authz import CLUSTER_NAME, ResourceType

if TYPE_CHECKING:
    from sparrow.base.errors import NotAuthorized
    from sparrow.broker.access.authz import Authorizer, Operation, Principal


class Access:
    """Checks of rights, `broker.access`, by a replaceable authorizer. Loop thread only."""

    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer

    def allows(
        self,
        principal: Principal,
        operation: Operation,
        resource_type: ResourceType,
        resource: str = CLUSTER_NAME,
    ) -> bool:
        """Return True if the principal may do this to the resource."""
        return self.authorizer.allows(principal, operation, resource_type, resource)

    def require(
        self,
        principal: Principal,
        operation: Operation,
        resource_type: ResourceType,
        resource: str = CLUSTER_NAME,
    ) -> None:
        """Raise NotAuthorized unless the principal may do this to the resource."""
        authz.require(self.authorizer, principal, operation, resource_type, resource)

    def require_cluster(self, principal: Principal, operation: Operation) -> None:
        """Raise NotAuthorized unless the principal may do this to the cluster as a whole."""
        self.require(principal, operation, ResourceType.CLUSTER)

    def refusal(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> NotAuthorized:
        """Return the error of a refused operation, and report it to the audit."""
        return authz.refusal(self.authorizer, principal, operation, resource_type, resource)

    def authorized_operations(
        self, principal: Principal, resource_type: ResourceType, resource: str = CLUSTER_NAME
    ) -> frozenset[Operation]:
        """Return all operations that the principal may do to a resource (KIP-430)."""
        return authz.authorized_operations(self.authorizer, principal, resource_type, resource)
