"""The caller: who it is, and what it may do."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from sparrow.broker.access.authz import ANONYMOUS, ResourceType
from sparrow.frontends.admin.fields import MaybeName  # noqa: TC001 - msgspec reads it
from sparrow.frontends.admin.operation import Arguments, OperationContext


class AskRights(Arguments, frozen=True):
    topic: str = ""
    group: str = ""


class RightsQuery(Struct):
    topic: Annotated[MaybeName, Meta(description="Also list the rights on this topic.")] = ""
    group: Annotated[MaybeName, Meta(description="Also list the rights on this group or queue.")] = ""


class RightsShown(Struct):
    cluster: list[str]
    topic: Annotated[list[str] | None, Meta(description="null: none was asked for.")] = None
    group: list[str] | None = None


class Me(Struct):
    principal: Annotated[str, Meta(description='Such as "User:alice".')]
    login: Annotated[str, Meta(description='"password", "token", "certificate", or "none".')]
    rights: Annotated[RightsShown, Meta(description="Operations in Kafka's words.")]


async def describe(context: OperationContext, a: AskRights) -> Me:
    """Show who you are to this broker, and what you may do. It needs no right."""
    principal = context.principal
    rights = RightsShown(
        _rights(context, ResourceType.CLUSTER),
        _rights(context, ResourceType.TOPIC, a.topic) if a.topic else None,
        _rights(context, ResourceType.GROUP, a.group) if a.group else None,
    )
    login = "none" if principal.login is None else principal.login.kind.value
    return Me("" if principal == ANONYMOUS else str(principal), login, rights)


def _rights(context: OperationContext, kind: ResourceType, name: str = "") -> list[str]:
    access = context.broker.access
    named = (context.principal, kind, name) if name else (context.principal, kind)
    return sorted(each.value for each in access.authorized_operations(*named))
