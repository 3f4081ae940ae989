"""DescribeClientQuotas, AlterClientQuotas (KIP-546): conversion of quotas. They are enforced by
`sparrow.frontends.kafka.throttle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.alter_client_quotas.v1 import response as alteration
from kio.schema.describe_client_quotas.v1 import response as description
from kio.schema.errors import ErrorCode
from kio.static.primitive import f64

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.broker.quotas.rules import Component, Match, QuotaChange
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import code_of

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
    from kio.schema.alter_client_quotas.v1.request import EntryData as Change
    from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest

    from sparrow.broker.quotas.rules import Entity
    from sparrow.frontends.kafka.call import Call

_MATCHES = {each.value: each for each in Match}


def describe(request: DescribeClientQuotasRequest, call: Call) -> description.DescribeClientQuotasResponse:
    """Return the entities that the components select, with their limits."""
    try:
        components = [_component(each) for each in request.components]
        found = call.broker.quotas.describe(components, strict=request.strict, principal=call.principal)
    except SparrowError as error:
        return description.DescribeClientQuotasResponse(
            throttle_time=NO_THROTTLE, error_code=code_of(error), error_message=error.text, entries=None
        )
    return description.DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        entries=tuple(_entry(entity, values) for entity, values in found),
    )


def _component(given: ComponentData) -> Component:
    match = _MATCHES.get(given.match_type)
    if match is None:
        raise InvalidArgument(f"Unknown match type {given.match_type}.")
    return Component(given.entity_type, match, given.match)


def _entry(entity: Entity, values: dict[str, float]) -> description.EntryData:
    return description.EntryData(
        entity=tuple(description.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
        values=tuple(description.ValueData(key=key, value=f64(value)) for key, value in values.items()),
    )


async def alter(request: AlterClientQuotasRequest, call: Call) -> alteration.AlterClientQuotasResponse:
    """Set and remove limits; each entity has its own outcome."""
    changes = [_change(each) for each in request.entries]
    outcomes: list[SparrowError | None]
    try:
        outcomes = await call.broker.quotas.alter(
            changes, validate_only=request.validate_only, principal=call.principal
        )
    except SparrowError as error:
        outcomes = [error] * len(changes)
    return alteration.AlterClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        entries=tuple(_altered(change, error) for change, error in zip(changes, outcomes, strict=True)),
    )


def _change(given: Change) -> QuotaChange:
    return QuotaChange(
        tuple((part.entity_type, part.entity_name) for part in given.entity),
        tuple((op.key, None if op.remove else op.value) for op in given.ops),
    )


def _altered(change: QuotaChange, error: SparrowError | None) -> alteration.EntryData:
    return alteration.EntryData(
        error_code=ErrorCode.none if error is None else code_of(error),
        error_message=None if error is None else error.text,
        entity=tuple(
            alteration.EntityData(entity_type=kind, entity_name=name) for kind, name in change.entity
        ),
    )
