"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: configurations of
topics, brokers, loggers, groups.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.list_config_resources.v1.response import ConfigResource as ListedResource
from kio.schema.list_config_resources.v1.response import ListConfigResourcesResponse

from sparrow.base.errors import SparrowError
from sparrow.broker.configs.changes import ConfigChange
from sparrow.broker.configs.service import ConfigResource, ConfigResourceType
from sparrow.frontends.kafka.call import NO_THROTTLE, encode_large
from sparrow.frontends.kafka.errors import DONE, RequestOutcome, RequestRefusal, outcome_of
from sparrow.frontends.kafka.wire_codes import (
    CONFIG_OPERATIONS,
    CONFIG_RESOURCE_CODES,
    CONFIG_RESOURCE_TYPES,
    CONFIG_SOURCE_CODES,
    CONFIG_TYPE_CODES,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kio.schema.alter_configs.v2.request import AlterConfigsRequest
    from kio.schema.alter_configs.v2.request import AlterConfigsResource as ReplacedResource
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
    from kio.schema.incremental_alter_configs.v1.request import (
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )
    from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest

    from sparrow.broker.configs.description import DescribedConfig
    from sparrow.frontends.kafka.call import Call

MAX_CONFIGS: Final = 500_000
"""Limit of one response, so that a request cannot make the broker write without end."""
_TOO_MUCH: Final = RequestOutcome(
    ErrorCode.policy_violation,
    f"A response has at most {MAX_CONFIGS} configurations; ask for fewer resources at a time.",
)
_DESCRIBED_AT_ONCE: Final = 20
"""Resources described before the loop runs other tasks."""
_CLIENT_METRICS_ALONE: Final = 0
"""Version 0 of ListConfigResources was ListClientMetricsResources."""


def _resource(code: int, name: str) -> ConfigResource:
    type_ = CONFIG_RESOURCE_TYPES.get(code)
    if type_ is None:
        raise RequestRefusal(ErrorCode.invalid_request, f"Unknown resource type {code}.")
    return ConfigResource(type_, name)


# ── describe ──────────────────────────────────────────────────────────────────────────────────────


async def describe(request: DescribeConfigsRequest, call: Call) -> Any:
    """Return the configurations of each resource, or those with the given names. A resource that is
    named twice is described once.
    """
    resources = {(each.resource_type, each.resource_name): each for each in request.resources}
    results: list[DescribeConfigsResult] = []
    entries = 0
    for wanted in resources.values():
        results.append(_describe(wanted, request, call, is_full=entries >= MAX_CONFIGS))
        entries += 1 + len(results[-1].configs)
        if len(results) % _DESCRIBED_AT_ONCE == 0:
            await asyncio.sleep(0)
    response = DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=tuple(results))
    return await encode_large(lambda: response, entries, call)


def _describe(
    wanted: DescribeConfigsResource, request: DescribeConfigsRequest, call: Call, *, is_full: bool
) -> DescribeConfigsResult:
    outcome, described = DONE, []
    try:
        described = [] if is_full else _configs(wanted, call)
    except (SparrowError, RequestRefusal) as error:
        outcome = outcome_of(error)
    if is_full:
        outcome = _TOO_MUCH
    names = set(wanted.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=outcome.code,
        error_message=outcome.text,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=tuple(_shown(each, request) for each in described if not names or each.name in names),
    )


def _configs(wanted: DescribeConfigsResource, call: Call) -> list[DescribedConfig]:
    resource = _resource(wanted.resource_type, wanted.resource_name)
    return call.broker.configs.describe(resource, _node_configs(call), principal=call.principal)


def _node_configs(call: Call) -> dict[str, str]:
    """Return the configurations of this broker. The listener that the client is connected to
    is shown.
    """
    frontend, listener = call.frontend, call.connection.listener
    limits = frontend.limits
    host, port = frontend.advertised(call.connection)
    return {
        "node.id": str(frontend.node_id),
        "broker.id": str(frontend.node_id),
        "log.dirs": call.broker.log_directory,
        "listeners": f"{listener.name.upper()}://{_quoted(listener.host)}:{listener.port or port}",
        "advertised.listeners": f"{listener.name.upper()}://{_quoted(host)}:{port}",
        "socket.request.max.bytes": str(limits.max_request_bytes),
        "connections.max.idle.ms": str(limits.idle_timeout_ms),
        "max.connections": str(limits.max_connections),
        "fetch.max.bytes": str(limits.max_fetch_bytes),
        "max.incremental.fetch.session.cache.slots": str(limits.max_fetch_sessions),
        "group.share.max.share.sessions": str(limits.max_share_sessions),
    }


def _quoted(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _shown(config: DescribedConfig, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = config.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=config.name,
        value=None if config.is_sensitive else config.value,
        read_only=config.is_read_only,
        config_source=CONFIG_SOURCE_CODES[config.source],
        is_sensitive=config.is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(
                name=each.name,
                value=None if config.is_sensitive else each.value,
                source=CONFIG_SOURCE_CODES[each.source],
            )
            for each in synonyms
        ),
        config_type=CONFIG_TYPE_CODES[config.type],
        documentation=config.help if request.include_documentation else None,
    )


# ── alter ─────────────────────────────────────────────────────────────────────────────────────────


async def alter(request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    """Handle AlterConfigs: configurations that are not named are reset to their defaults."""

    async def replace(wanted: ReplacedResource) -> None:
        resource = _resource(wanted.resource_type, wanted.resource_name)
        _refuse_repeated([config.name for config in wanted.configs])
        await call.broker.configs.replace(
            resource,
            {config.name: config.value for config in wanted.configs},
            validate_only=request.validate_only,
            principal=call.principal,
        )

    return AlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=outcome.code, error_message=outcome.text, resource_type=code, resource_name=name
            )
            for (code, name), outcome in (await _each(request.resources, replace)).items()
        ),
    )


async def alter_incrementally(
    request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    """Handle IncrementalAlterConfigs (KIP-339)."""

    async def change(wanted: AlterConfigsResource) -> None:
        resource = _resource(wanted.resource_type, wanted.resource_name)
        changes = [_change(each.name, each.config_operation, each.value) for each in wanted.configs]
        await call.broker.configs.alter(
            resource, changes, validate_only=request.validate_only, principal=call.principal
        )

    return IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            IncrementalResourceResponse(
                error_code=outcome.code, error_message=outcome.text, resource_type=code, resource_name=name
            )
            for (code, name), outcome in (await _each(request.resources, change)).items()
        ),
    )


async def _each(
    resources: Sequence[Any], work: Callable[[Any], Awaitable[None]]
) -> dict[tuple[int, str], RequestOutcome]:
    """Change each resource and return the outcomes. Resources named twice are not changed."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    ended: dict[tuple[int, str], RequestOutcome] = {}
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        if counts[key] > 1:
            ended[key] = RequestOutcome(ErrorCode.invalid_request, "Each resource must appear at most once.")
            continue
        try:
            await work(resource)
        except (SparrowError, RequestRefusal) as error:
            ended[key] = outcome_of(error)
        else:
            ended[key] = DONE
    return ended


def _change(name: str, operation: int, value: str | None) -> ConfigChange:
    if operation not in CONFIG_OPERATIONS:
        raise RequestRefusal(ErrorCode.invalid_request, f"Unknown operation {operation} for {name}.")
    return ConfigChange(name, CONFIG_OPERATIONS[operation], value)


def _refuse_repeated(names: list[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise RequestRefusal(
            ErrorCode.invalid_request, f"Error due to duplicate config keys: {', '.join(twice)}"
        )


# ── list ──────────────────────────────────────────────────────────────────────────────────────────


def list_resources(request: ListConfigResourcesRequest, call: Call) -> ListConfigResourcesResponse:
    """Return the resources that can be configured (KIP-1142)."""
    if call.version == _CLIENT_METRICS_ALONE:
        types = {ConfigResourceType.CLIENT_METRICS}
    elif any(code not in CONFIG_RESOURCE_TYPES for code in request.resource_types):
        return _listed(ErrorCode.unsupported_version, [])
    else:
        types = {CONFIG_RESOURCE_TYPES[code] for code in request.resource_types} or set(ConfigResourceType)
    try:
        found = call.broker.configs.resources(types, principal=call.principal)
    except SparrowError as error:
        return _listed(outcome_of(error).code, [])
    return _listed(ErrorCode.none, found)


def _listed(code: ErrorCode, resources: list[ConfigResource]) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        config_resources=tuple(
            ListedResource(resource_name=each.name, resource_type=CONFIG_RESOURCE_CODES[each.type])
            for each in resources
        ),
    )
