"""Administration of groups: FindCoordinator, DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as FindOneResponse
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import BrokerId, GroupId
from kio.static.primitive import i32

from sparrow.base.errors import SparrowError, UnknownGroup
from sparrow.broker.access.authz import Operation, ResourceType
from sparrow.broker.groups.description import GroupState
from sparrow.broker.topics.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import RequestRefusal, group_code, state_name
from sparrow.frontends.kafka.wire_codes import authorized_operations

if TYPE_CHECKING:
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
    from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as FindOneRequest
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
    from kio.schema.list_groups.v5.request import ListGroupsRequest

    from sparrow.broker.groups.classic.description import ClassicDescription
    from sparrow.frontends.kafka.call import Call
    from sparrow.model.groups import GroupListing

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_RESOURCES: Final = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_INTERNAL_TOPICS: Final = {_GROUP: CONSUMER_OFFSETS, _TRANSACTION: TRANSACTION_STATE}
_NOT_REQUESTED: Final = i32(-(1 << 31))
_NO_NODE: Final = -1
_REPORTS_UNKNOWN_SINCE: Final = 6
_KNOWS_SHARE_PARTITIONS_SINCE: Final = 6
_SHARE_PARTITION: Final = re.compile(r"(?s:.*\S.*):[A-Za-z0-9_-]{22}:[+-]?\d{1,10}")
"""Group, topic id in base64, partition."""


# ── FindCoordinator ───────────────────────────────────────────────────────────────────────────────


async def find_coordinators(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    """Return this broker, which coordinates everything (from version 4, KIP-699)."""
    found = tuple(coordinator_of(request.key_type, key, call) for key in request.coordinator_keys)
    await _ensure_internal_topic(request.key_type, found, call)
    return FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=found)


async def find_coordinator(request: FindOneRequest, call: Call) -> FindOneResponse:
    """Return this broker for one key (up to version 3)."""
    found = coordinator_of(request.key_type, request.key, call)
    await _ensure_internal_topic(request.key_type, (found,), call)
    return one_coordinator(found)


def one_coordinator(found: Coordinator) -> FindOneResponse:
    """Return the response for one key."""
    return FindOneResponse(
        throttle_time=NO_THROTTLE,
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _ensure_internal_topic(key_type: int, found: tuple[Coordinator, ...], call: Call) -> None:
    """Create the coordinator's topic once a client has found the coordinator, as in Kafka."""
    name = _INTERNAL_TOPICS.get(key_type)
    if name is not None and any(each.error_code is ErrorCode.none for each in found):
        # the topic is only for show: a full disk must not affect a group
        with suppress(SparrowError):
            await call.broker.topics.ensure_internal(name)


def coordinator_of(key_type: int, key: str, call: Call) -> Coordinator:
    """Return the broker that coordinates everything, or why the client does not get it."""
    try:
        _check_key(key_type, key, call)
    except RequestRefusal as refusal:
        return _no_coordinator(key, refusal.code, refusal.text)
    except SparrowError as error:
        return _no_coordinator(key, group_code(error), error.text)
    if call.frontend.leader_id == _NO_NODE:
        text = "No broker owns the data at the moment; ask again."
        return _no_coordinator(key, ErrorCode.coordinator_not_available, text)
    host, port = call.frontend.advertised(call.connection)
    return Coordinator(
        key=key,
        node_id=call.frontend.node_id,
        host=host,
        port=port,
        error_code=ErrorCode.none,
        error_message=None,
    )


def _check_key(key_type: int, key: str, call: Call) -> None:
    """Check that the caller may find this coordinator. Members of share groups look for the group's
    coordinator; only brokers look for that of a share partition (KIP-932).

    Raises:
        RequestRefusal, NotAuthorized
    """
    if key_type == _SHARE and call.version >= _KNOWS_SHARE_PARTITIONS_SINCE:
        call.broker.access.require_cluster(call.principal, Operation.CLUSTER_ACTION)
        if _SHARE_PARTITION.fullmatch(key) is None:
            raise RequestRefusal(
                ErrorCode.invalid_request, f"{key[:100]!r} is not of the form group:topicId:partition."
            )
    elif key_type in _RESOURCES:
        call.broker.groups.check_coordinator(_RESOURCES[key_type], key, principal=call.principal)
    else:
        raise RequestRefusal(ErrorCode.invalid_request, f"Key type {key_type} is not served here.")


def _no_coordinator(key: str, code: ErrorCode, text: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=BrokerId(_NO_NODE), host="", port=i32(-1), error_code=code, error_message=text
    )


# ── DescribeGroups ────────────────────────────────────────────────────────────────────────────────


def describe(request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    """Describe classic groups and their members. Other groups are reported as dead, or (version 6,
    KIP-1043) as unknown.
    """
    groups = tuple(
        _described(group, call, with_operations=request.include_authorized_operations)
        for group in request.groups
    )
    return DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=groups)


def _described(group: GroupId, call: Call, *, with_operations: bool) -> DescribedGroup:
    try:
        found = call.broker.groups.classic.describe(group, principal=call.principal)
    except UnknownGroup as error:
        if call.version >= _REPORTS_UNKNOWN_SINCE:
            return _undescribed(group, GroupState.DEAD, group_code(error), error.text)
        return _undescribed(group, GroupState.DEAD, ErrorCode.none, None)
    except SparrowError as error:
        return _undescribed(group, None, group_code(error), error.text)
    operations = authorized_operations(call, ResourceType.GROUP, group) if with_operations else _NOT_REQUESTED
    return DescribedGroup(
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group,
        group_state=state_name(found.state),
        protocol_type=found.protocol_type,
        protocol_data=found.protocol,
        members=_described_members(found),
        authorized_operations=operations,
    )


def _described_members(group: ClassicDescription) -> tuple[DescribedGroupMember, ...]:
    return tuple(
        DescribedGroupMember(
            member_id=m.member_id,
            group_instance_id=m.instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            member_metadata=m.metadata,
            member_assignment=m.assignment,
        )
        for m in group.members
    )


def _undescribed(
    group: GroupId, state: GroupState | None, code: ErrorCode, text: str | None
) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=text,
        group_id=group,
        group_state=state_name(state) if state is not None else "",
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=_NOT_REQUESTED,
    )


# ── ListGroups, DeleteGroups ──────────────────────────────────────────────────────────────────────


def list_groups(request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    """List groups of all kinds, or of some states and kinds; case does not matter (KIP-518,
    KIP-848).
    """
    states = {word.lower() for word in request.states_filter}
    types = {word.lower() for word in request.types_filter}
    groups = tuple(
        _listed(info)
        for info in call.broker.groups.listing(principal=call.principal)
        if (not states or state_name(info.state).lower() in states) and (not types or info.type in types)
    )
    return ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=groups)


def _listed(info: GroupListing) -> ListedGroup:
    return ListedGroup(
        group_id=GroupId(info.group),
        protocol_type=info.protocol_type,
        group_state=state_name(info.state),
        group_type=info.type,
    )


async def delete(request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    """Delete groups without members, with their offsets."""
    results = [
        DeletableGroupResult(group_id=group, error_code=await _delete(group, call))
        for group in request.groups_names
    ]
    return DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


async def _delete(group: str, call: Call) -> ErrorCode:
    try:
        await call.broker.groups.delete(group, principal=call.principal)
    except SparrowError as error:
        return group_code(error)
    return ErrorCode.none
