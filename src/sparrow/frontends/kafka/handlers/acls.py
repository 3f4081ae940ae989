"""DescribeAcls, CreateAcls, DeleteAcls (KIP-140, KIP-290): conversion of access rules."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.delete_acls.v3.response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kio.schema.describe_acls.v3.response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from kio.schema.errors import ErrorCode

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.broker.access.acls import AclBinding, AclFilter
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import code_of
from sparrow.frontends.kafka.wire_codes import (
    ACL_CODES,
    ACL_OPERATIONS,
    ACL_PATTERN_TYPES,
    ACL_PERMISSIONS,
    ACL_RESOURCE_TYPES,
)

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
    from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest

    from sparrow.frontends.kafka.call import Call


def describe(request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    """Return the rules that one filter selects, by resource."""
    try:
        found = call.broker.acls.describe(_filter(request), principal=call.principal)
    except SparrowError as error:
        return DescribeAclsResponse(
            throttle_time=NO_THROTTLE, error_code=code_of(error), error_message=error.text, resources=()
        )
    by_resource = groupby(found, key=lambda rule: (rule.resource_type, rule.name, rule.pattern_type))
    return DescribeAclsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        resources=tuple(
            DescribeAclsResource(
                resource_type=ACL_CODES[kind],
                resource_name=name,
                pattern_type=ACL_CODES[pattern],
                acls=tuple(_description(rule) for rule in rules),
            )
            for (kind, name, pattern), rules in by_resource
        ),
    )


def _description(rule: AclBinding) -> AclDescription:
    return AclDescription(
        principal=rule.principal,
        host=rule.host,
        operation=ACL_CODES[rule.operation],
        permission_type=ACL_CODES[rule.permission],
    )


def _filter(given: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    try:
        return AclFilter(
            ACL_RESOURCE_TYPES[given.resource_type_filter],
            given.resource_name_filter,
            ACL_PATTERN_TYPES[given.pattern_type_filter],
            given.principal_filter,
            given.host_filter,
            ACL_OPERATIONS[given.operation],
            ACL_PERMISSIONS[given.permission_type],
        )
    except KeyError as error:
        raise InvalidArgument(f"The filter has an unknown element, number {error}.") from None


async def create(request: CreateAclsRequest, call: Call) -> CreateAclsResponse:
    """Create rules; each has its own outcome."""
    given = [_rule(each) for each in request.creations]
    good = [each for each in given if isinstance(each, AclBinding)]
    try:
        made = iter(await call.broker.acls.create(good, principal=call.principal))
        outcomes = [next(made) if isinstance(each, AclBinding) else each for each in given]
    except SparrowError as error:
        outcomes = [error] * len(given)
    return CreateAclsResponse(throttle_time=NO_THROTTLE, results=tuple(_created(each) for each in outcomes))


def _rule(given: AclCreation) -> AclBinding | InvalidArgument:
    try:
        return AclBinding(
            ACL_RESOURCE_TYPES[given.resource_type],
            given.resource_name,
            ACL_PATTERN_TYPES[given.resource_pattern_type],
            given.principal,
            given.host,
            ACL_OPERATIONS[given.operation],
            ACL_PERMISSIONS[given.permission_type],
        )
    except KeyError as error:
        return InvalidArgument(f"The rule has an unknown element, number {error}.")


def _created(error: SparrowError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=ErrorCode.none, error_message=None)
    return AclCreationResult(error_code=code_of(error), error_message=error.text)


async def delete(request: DeleteAclsRequest, call: Call) -> DeleteAclsResponse:
    """Delete and return the rules that each filter selects. An invalid filter fails alone."""
    given = [_filter_or_error(each) for each in request.filters]
    good = [each for each in given if isinstance(each, AclFilter)]
    outcomes: list[list[AclBinding] | SparrowError]
    try:
        deleted = iter(await call.broker.acls.delete(good, principal=call.principal))
        outcomes = [next(deleted) if isinstance(each, AclFilter) else each for each in given]
    except SparrowError as error:
        outcomes = [error for _ in given]
    return DeleteAclsResponse(
        throttle_time=NO_THROTTLE, filter_results=tuple(_filtered(each) for each in outcomes)
    )


def _filter_or_error(given: DeleteAclsFilter) -> AclFilter | InvalidArgument:
    try:
        return _filter(given)
    except InvalidArgument as error:
        return error


def _filtered(outcome: list[AclBinding] | SparrowError) -> DeleteAclsFilterResult:
    if isinstance(outcome, SparrowError):
        return DeleteAclsFilterResult(
            error_code=code_of(outcome), error_message=outcome.text, matching_acls=()
        )
    return DeleteAclsFilterResult(
        error_code=ErrorCode.none,
        error_message=None,
        matching_acls=tuple(_matching(each) for each in outcome),
    )


def _matching(rule: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=ACL_CODES[rule.resource_type],
        resource_name=rule.name,
        pattern_type=ACL_CODES[rule.pattern_type],
        principal=rule.principal,
        host=rule.host,
        operation=ACL_CODES[rule.operation],
        permission_type=ACL_CODES[rule.permission],
    )
