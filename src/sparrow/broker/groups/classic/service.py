"""Operations of members of classic groups, with the same access checks as Kafka's requests have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.base.errors import SparrowError
    from sparrow.broker.access.access import Access
    from sparrow.broker.groups.classic.coordinator import ClassicGroupCoordinator
    from sparrow.broker.groups.classic.description import ClassicDescription
    from sparrow.broker.groups.classic.protocol import (
        JoinRequest,
        JoinResponse,
        Leaver,
        SyncRequest,
        SyncResponse,
    )

_GROUP = ResourceType.GROUP


class ClassicGroupService:
    """`broker.groups.classic`. Loop thread only."""

    def __init__(self, coordinator: ClassicGroupCoordinator, access: Access) -> None:
        self._coordinator = coordinator
        self._access = access

    async def join(self, request: JoinRequest, *, principal: Principal = ANONYMOUS) -> JoinResponse:
        """See `ClassicGroupCoordinator.join`. Raises NotAuthorized too, as all methods here do."""
        self._access.require(principal, Operation.READ, _GROUP, request.group)
        return await self._coordinator.join(request)

    async def sync(self, request: SyncRequest, *, principal: Principal = ANONYMOUS) -> SyncResponse:
        """See `ClassicGroupCoordinator.sync`."""
        self._access.require(principal, Operation.READ, _GROUP, request.group)
        return await self._coordinator.sync(request)

    def heartbeat(
        self,
        group: str,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        *,
        principal: Principal = ANONYMOUS,
    ) -> None:
        """See `ClassicGroupCoordinator.heartbeat`."""
        self._access.require(principal, Operation.READ, _GROUP, group)
        self._coordinator.heartbeat(group, member_id, generation, instance_id)

    def leave(
        self, group: str, leavers: Sequence[Leaver], *, principal: Principal = ANONYMOUS
    ) -> list[SparrowError | None]:
        """See `ClassicGroupCoordinator.leave`."""
        self._access.require(principal, Operation.READ, _GROUP, group)
        return self._coordinator.leave(group, leavers)

    def describe(self, group: str, *, principal: Principal = ANONYMOUS) -> ClassicDescription:
        """Return a classic group with the metadata of its members.

        Raises:
            UnknownGroup: there is none, or it is of another kind. NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, group)
        return self._coordinator.describe_classic(group)
