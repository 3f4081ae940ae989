"""Groups as seen from outside: FindCoordinator, DescribeGroups, ListGroups, DeleteGroups."""

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
from sparrow.broker.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from sparrow.frontends.kafka.acl_codes import authorized_operations
from sparrow.frontends.kafka.dispatch import NO_THROTTLE
from sparrow.frontends.kafka.group_codes import group_code, state_word
from sparrow.frontends.kafka.refusals import Refusal

if TYPE_CHECKING:
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
    from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as FindOneRequest
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
    from kio.schema.list_groups.v5.request import ListGroupsRequest

    from sparrow.broker.groups.classic.coordinator import ClassicDescription
    from sparrow.broker.groups.description import GroupInfo
    from sparrow.frontends.kafka.dispatch import Call

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_RESOURCES: Final = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_INTERNAL_TOPICS: Final = {_GROUP: CONSUMER_OFFSETS, _TRANSACTION: TRANSACTION_STATE}
_NOT_ASKED: Final = i32(-(1 << 31))
_REPORTS_UNKNOWN_SINCE: Final = 6
_KNOWS_SHARE_PARTITIONS_SINCE: Final = 6
_SHARE_PARTITION: Final = re.compile(r"(?s:.*\S.*):[A-Za-z0-9_-]{22}:[+-]?\d{1,10}")
"""Group, topic id in base64, partition."""


# ── FindCoordinator ───────────────────────────────────────────────────────────────────────────────


async def find_coordinators(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    """This broker coordinates everything (from version 4, KIP-699)."""
    found = tuple(_coordinator(request.key_type, key, call) for key in request.coordinator_keys)
    await _ensure_internal_topic(request.key_type, found, call)
    return FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=found)


async def find_coordinator(request: FindOneRequest, call: Call) -> FindOneResponse:
    """The same for one key (up to version 3)."""
    found = _coordinator(request.key_type, request.key, call)
    await _ensure_internal_topic(request.key_type, (found,), call)
    return FindOneResponse(
        throttle_time=NO_THROTTLE,
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _ensure_internal_topic(key_type: int, found: tuple[Coordinator, ...], call: Call) -> None:
    """As in Kafka, the coordinator's topic is there once somebody found it."""
    name = _INTERNAL_TOPICS.get(key_type)
    if name is not None and any(each.error_code is ErrorCode.none for each in found):
        with suppress(SparrowError):  # it is for show: a full disk does not hinder a group
            await call.broker.ensure_internal_topic(name)


def _coordinator(key_type: int, key: str, call: Call) -> Coordinator:
    try:
        _check_key(key_type, key, call)
    except Refusal as refusal:
        return _no_coordinator(key, refusal.code, refusal.text)
    except SparrowError as error:
        return _no_coordinator(key, group_code(error), error.text)
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
    """Whether the caller may know who coordinates this. Members of share groups look for the group's coordinator; that of a share partition
    is looked for by brokers alone (KIP-932).

    Raises:
        Refusal, NotAuthorized
    """
    if key_type == _SHARE and call.version >= _KNOWS_SHARE_PARTITIONS_SINCE:
        call.broker.require_cluster(call.principal, Operation.CLUSTER_ACTION)
        if _SHARE_PARTITION.fullmatch(key) is None:
            raise Refusal(ErrorCode.invalid_request, f"{key[:100]!r} is no group:topicId:partition.")
    elif key_type in _RESOURCES:
        call.broker.group_verbs.check_coordinator(_RESOURCES[key_type], key, principal=call.principal)
    else:
        raise Refusal(ErrorCode.invalid_request, f"Key type {key_type} is not served here.")


def _no_coordinator(key: str, code: ErrorCode, text: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=BrokerId(-1), host="", port=i32(-1), error_code=code, error_message=text
    )


# ── DescribeGroups ────────────────────────────────────────────────────────────────────────────────


def describe(request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    """Classic groups with what their members say. Others are dead to it, or (version 6, KIP-1043) unknown."""
    groups = tuple(
        _described(group, call, with_operations=request.include_authorized_operations)
        for group in request.groups
    )
    return DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=groups)


def _described(group: GroupId, call: Call, *, with_operations: bool) -> DescribedGroup:
    try:
        found = call.broker.group_verbs.describe_classic(group, principal=call.principal)
    except UnknownGroup as error:
        if call.version >= _REPORTS_UNKNOWN_SINCE:
            return _undescribed(group, GroupState.DEAD, group_code(error), error.text)
        return _undescribed(group, GroupState.DEAD, ErrorCode.none, None)
    except SparrowError as error:
        return _undescribed(group, None, group_code(error), error.text)
    operations = authorized_operations(call, ResourceType.GROUP, group) if with_operations else _NOT_ASKED
    return DescribedGroup(
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group,
        group_state=state_word(found.state),
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
        group_state=state_word(state) if state is not None else "",
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=_NOT_ASKED,
    )


# ── ListGroups, DeleteGroups ──────────────────────────────────────────────────────────────────────


def list_groups(request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    """Groups of all kinds, or of some states and kinds; case does not matter (KIP-518, KIP-848)."""
    states = {word.lower() for word in request.states_filter}
    types = {word.lower() for word in request.types_filter}
    groups = tuple(
        _listed(info)
        for info in call.broker.group_verbs.list_groups(principal=call.principal)
        if (not states or state_word(info.state).lower() in states)
        and (not types or info.type.value in types)
    )
    return ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=groups)


def _listed(info: GroupInfo) -> ListedGroup:
    return ListedGroup(
        group_id=GroupId(info.group),
        protocol_type=info.protocol_type,
        group_state=state_word(info.state),
        group_type=info.type.value,
    )


async def delete(request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    """Groups without members, with their offsets."""
    results = [
        DeletableGroupResult(group_id=group, error_code=await _delete(group, call))
        for group in request.groups_names
    ]
    return DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


async def _delete(group: str, call: Call) -> ErrorCode:
    try:
        await call.broker.delete_group(group, principal=call.principal)
    except SparrowError as error:
        return group_code(error)
    return ErrorCode.none
