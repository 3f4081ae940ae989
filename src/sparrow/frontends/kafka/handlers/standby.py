"""The requests that a standby handles; see `frontends/kafka/standby.py`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse

from sparrow.frontends.kafka import dispatch
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.dispatch import handler_of
from sparrow.frontends.kafka.handlers import group_admin, metadata
from sparrow.frontends.kafka.redirects import refuse

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as FindOneRequest
    from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as FindOneResponse
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
    from kio.schema.metadata.v13.request import MetadataRequest

    from sparrow.frontends.kafka.apis import Api, Route
    from sparrow.frontends.kafka.call import Call
    from sparrow.frontends.kafka.connection import KafkaConnection
    from sparrow.frontends.kafka.dispatch import Begun, Handler

_METADATA: Final = 3
_FIND_COORDINATOR: Final = 10
_FIRST_WITH_MANY_KEYS: Final = 4
_MISSING: Final = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id})
_AS_ON_THE_OWNER: Final = frozenset({17, 18, 29, 32, 36, 48, 50, 60, 74, 75})
"""ApiVersions and SASL, and what describes users, rules, configurations, quotas and topics."""


def begin(connection: KafkaConnection, frame: bytes | memoryview) -> Begun:
    """Begin a request.

    Raises:
        MalformedRequest: the connection must be closed.
    """
    return dispatch.begin(connection, frame, _find)


def _find(api: Api, route: Route) -> tuple[Handler, int]:
    if api.key in _AS_ON_THE_OWNER:
        handler, schema = handler_of(api, route)
        return partial(_with_present_view, handler), schema
    if api.key == _METADATA:
        return partial(_with_present_view, _describe), route.schema
    if api.key == _FIND_COORDINATOR:
        find = _find_some if route.schema >= _FIRST_WITH_MANY_KEYS else _find_one
        return partial(_with_present_view, find), route.schema
    return partial(_with_present_view, refuse), -1


async def _with_present_view(handler: Handler, request: Any, call: Call) -> Any:
    """Handle a request by what the owner has now."""
    await call.frontend.refresh()
    response = handler(request, call)
    return await response if asyncio.iscoroutine(response) else response


async def _describe(request: MetadataRequest, call: Call) -> Any:
    found = metadata.handle(request, call)
    response = await found if asyncio.iscoroutine(found) else found
    if request.topics and any(topic.error_code in _MISSING for topic in response.topics):
        call.connection.close_after(0)
    return response


def _find_some(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    found = tuple(group_admin.coordinator_of(request.key_type, key, call) for key in request.coordinator_keys)
    return FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=found)


def _find_one(request: FindOneRequest, call: Call) -> FindOneResponse:
    return group_admin.one_coordinator(group_admin.coordinator_of(request.key_type, request.key, call))
