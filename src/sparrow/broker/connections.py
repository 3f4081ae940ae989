"""The open connections of all listeners: list them, and close one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import NotFound
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.model.access import CLUSTER_NAME

if TYPE_CHECKING:
    from sparrow.broker.access.access import Access
    from sparrow.broker.audit.audit import Audit
    from sparrow.broker.measures import Measures
    from sparrow.model.connections import ConnectionDescription


class UnknownConnection(NotFound):
    """There is no open connection of this number."""

    code = "UNKNOWN_CONNECTION"


class Connections:
    """The service of connections, `broker.client_connections`. Loop thread only."""

    def __init__(self, measures: Measures, access: Access, audit: Audit) -> None:
        self._measures = measures
        self._access = access
        self._audit = audit

    def listing(
        self, *, limit: int, skip: int = 0, principal: Principal = ANONYMOUS
    ) -> tuple[list[ConnectionDescription], int]:
        """Return some of the open connections, oldest first, and the number of all.

        Raises:
            NotAuthorized: needs DESCRIBE on the cluster.
        """
        self._access.require_cluster(principal, Operation.DESCRIBE)
        found = [each for frontend in self._measures.frontends.values() for each in frontend.peers()]
        found.sort(key=lambda each: each.number)
        return [each.describe() for each in found[skip : skip + limit]], len(found)

    def close(self, number: int, *, principal: Principal = ANONYMOUS) -> None:
        """Close a connection; its client may connect again.

        Raises:
            NotAuthorized: needs ALTER on the cluster.
            UnknownConnection
        """
        with self._audit.act(
            principal, "connection.close", ResourceType.CLUSTER, CLUSTER_NAME, connection=number
        ):
            self._access.require_cluster(principal, Operation.ALTER)
            for frontend in self._measures.frontends.values():
                for each in frontend.peers():
                    if each.number == number:
                        each.abort()
                        return
            raise UnknownConnection(f"there is no connection {number}; it may be closed already")
