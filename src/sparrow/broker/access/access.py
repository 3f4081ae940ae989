"""Checks of rights for the services of a broker; no other module decides on rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import NotAuthorized
from sparrow.broker.access.authz import OPERATIONS_OF, Operation, ResourceType
from sparrow.model.access import CLUSTER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.broker.access.authz import Authorizer, Principal, Report


class Access:
    """Checks of rights, `broker.access`, by a replaceable authorizer. Loop thread only."""

    allows: Callable[[Principal, Operation, ResourceType, str], bool]
    """Returns True if the principal may do this to the resource: the authorizer's own method, as it
    is called for each batch.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer

    @property
    def authorizer(self) -> Authorizer:
        """The object that decides."""
        return self._authorizer

    @authorizer.setter
    def authorizer(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self.allows = authorizer.allows

    # ── requirements ──────────────────────────────────────────────────────────────────────────────

    def require(
        self,
        principal: Principal,
        operation: Operation,
        resource_type: ResourceType,
        resource: str = CLUSTER_NAME,
    ) -> None:
        """Raise NotAuthorized, which names the resource's type, unless the principal may do this to
        the resource.
        """
        if not self.allows(principal, operation, resource_type, resource):
            raise self.refusal(principal, operation, resource_type, resource)

    def require_cluster(self, principal: Principal, operation: Operation) -> None:
        """Raise NotAuthorized unless the principal may do this to the cluster as a whole."""
        self.require(principal, operation, ResourceType.CLUSTER)

    def require_here_or_everywhere(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> None:
        """Raise NotAuthorized unless the principal may do this to the cluster or to the
        resource.
        """
        if not self.allows(principal, operation, ResourceType.CLUSTER, CLUSTER_NAME):
            self.require(principal, operation, resource_type, resource)

    def require_topics_of_group(self, principal: Principal, group: str, topics: Iterable[str]) -> None:
        """Raise NotAuthorized, which names none of them, unless the principal may describe all
        topics that a group reads.
        """
        describe, topic = Operation.DESCRIBE, ResourceType.TOPIC
        if not all(self.allows(principal, describe, topic, each) for each in topics):
            text = f"Group {group!r} reads topics that {principal} is not allowed to describe."
            raise self.refusal(principal, describe, topic, f"those of {group}", text=text)

    # ── refusals ──────────────────────────────────────────────────────────────────────────────────

    def refusal(
        self,
        principal: Principal,
        operation: Operation,
        resource_type: ResourceType,
        resource: str,
        *,
        text: str = "",
    ) -> NotAuthorized:
        """Return the error of a refused operation, and report it to the audit.

        Every refusal by an authorizer gets its error here.

        Args:
            text: the message; without it one that names the resource.
        """
        error = NotAuthorized(
            text
            or f"{principal} is not allowed to {operation.value} {resource_type.value} {resource!r};"
            " an administrator can grant it",
            resource_type.value,
        )
        report: Report | None = getattr(self._authorizer, "report_refusal", None)
        if report is not None:
            report(principal, operation, resource_type, resource, error)
        return error

    def maybe_refusal(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> NotAuthorized | None:
        """Return the reported error of a refused operation, or None if it is allowed."""
        is_allowed = self.allows(principal, operation, resource_type, resource)
        return None if is_allowed else self.refusal(principal, operation, resource_type, resource)

    def refusals(
        self,
        principal: Principal,
        operation: Operation,
        resource_type: ResourceType,
        resources: Iterable[str],
    ) -> dict[str, NotAuthorized]:
        """Return the reported errors of those resources to which the principal may not do this."""
        found = ((each, self.maybe_refusal(principal, operation, resource_type, each)) for each in resources)
        return {each: error for each, error in found if error is not None}

    # ── views ─────────────────────────────────────────────────────────────────────────────────────

    def allowed(
        self,
        principal: Principal,
        operation: Operation,
        resource_type: ResourceType,
        resources: Iterable[str],
    ) -> set[str]:
        """Return those resources to which the principal may do this. The others are not reported:
        nobody named them.
        """
        return {each for each in resources if self.allows(principal, operation, resource_type, each)}

    def authorized_operations(
        self, principal: Principal, resource_type: ResourceType, resource: str = CLUSTER_NAME
    ) -> frozenset[Operation]:
        """Return all operations that the principal may do to a resource (KIP-430)."""
        return frozenset(
            operation
            for operation in OPERATIONS_OF[resource_type]
            if self.allows(principal, operation, resource_type, resource)
        )
