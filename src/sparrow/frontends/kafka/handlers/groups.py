"""Members of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-62, KIP-345, KIP-394,
KIP-559, KIP-814).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.schema.leave_group.v2.response import LeaveGroupResponse as LeaveOneResponse
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.static.primitive import i32

from sparrow.base.errors import GroupFull, MemberIdRequired, SparrowError
from sparrow.broker.groups.classic.protocol import JoinRequest, Leaver, SyncRequest
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import group_code

if TYPE_CHECKING:
    from datetime import timedelta

    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.join_group.v9.request import JoinGroupRequest
    from kio.schema.leave_group.v2.request import LeaveGroupRequest as LeaveOneRequest
    from kio.schema.leave_group.v5.request import LeaveGroupRequest
    from kio.schema.sync_group.v5.request import SyncGroupRequest

    from sparrow.frontends.kafka.call import Call

_MEMBER_ID_REQUIRED_SINCE: Final = 4
_NULLABLE_PROTOCOL_SINCE: Final = 7
_SKIPS_ASSIGNMENT_SINCE: Final = 9
_NO_GENERATION: Final = i32(-1)


async def join(request: JoinGroupRequest, call: Call) -> JoinGroupResponse:
    """Join a group; returns when the rebalance has all its members."""
    try:
        result = await call.broker.groups.classic.join(_join_request(request, call), principal=call.principal)
    except SparrowError as error:
        return _join_failed(request, call, error)
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        generation_id=i32(result.generation),
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata
            )
            for m in result.members
        ),
    )


def _join_request(request: JoinGroupRequest, call: Call) -> JoinRequest:
    session_timeout_ms = _ms(request.session_timeout)
    rebalance_timeout_ms = _ms(request.rebalance_timeout)
    return JoinRequest(
        group=request.group_id,
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        session_timeout_ms=session_timeout_ms,
        # Version 0 has none: one timeout serves both purposes (KIP-62).
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=call.client_host,
        requires_member_id=call.version >= _MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=call.version >= _SKIPS_ASSIGNMENT_SINCE,
    )


def _join_failed(request: JoinGroupRequest, call: Call, error: SparrowError) -> JoinGroupResponse:
    member_id = request.member_id
    if isinstance(error, MemberIdRequired):
        member_id = error.member_id
    elif isinstance(error, GroupFull):
        member_id = ""
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=group_code(error),
        generation_id=_NO_GENERATION,
        protocol_type=None,
        protocol_name=None if call.version >= _NULLABLE_PROTOCOL_SINCE else "",
        leader="",
        member_id=member_id,
        members=(),
    )


async def sync(request: SyncGroupRequest, call: Call) -> SyncGroupResponse:
    """Synchronize a group; returns when the leader's assignment is known."""
    asked = SyncRequest(
        group=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    try:
        result = await call.broker.groups.classic.sync(asked, principal=call.principal)
    except SparrowError as error:
        return SyncGroupResponse(
            throttle_time=NO_THROTTLE,
            error_code=group_code(error),
            protocol_type=None,
            protocol_name=None,
            assignment=b"",
        )
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


def heartbeat(request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    """Keep a member alive."""
    code = ErrorCode.none
    try:
        call.broker.groups.classic.heartbeat(
            request.group_id,
            request.member_id,
            request.generation_id,
            request.group_instance_id,
            principal=call.principal,
        )
    except SparrowError as error:
        code = group_code(error)
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)


def leave(request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    """Remove several members, by id or by instance id."""
    leavers = [Leaver(each.member_id, each.group_instance_id, each.reason or "") for each in request.members]
    try:
        results = call.broker.groups.classic.leave(request.group_id, leavers, principal=call.principal)
    except SparrowError as error:
        return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=group_code(error), members=())
    members = tuple(
        MemberResponse(
            member_id=leaver.member_id,
            group_instance_id=leaver.instance_id,
            error_code=ErrorCode.none if result is None else group_code(result),
        )
        for leaver, result in zip(leavers, results, strict=True)
    )
    return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, members=members)


def leave_one(request: LeaveOneRequest, call: Call) -> LeaveOneResponse:
    """Remove one member (up to version 2)."""
    try:
        (result,) = call.broker.groups.classic.leave(
            request.group_id, [Leaver(request.member_id)], principal=call.principal
        )
    except SparrowError as error:
        result = error
    code = ErrorCode.none if result is None else group_code(result)
    return LeaveOneResponse(throttle_time=NO_THROTTLE, error_code=code)


def _ms(value: timedelta) -> int:
    return round(value.total_seconds() * 1000)
