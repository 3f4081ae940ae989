"""Operations on access rules, in Kafka's terms."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from sparrow.base.errors import InvalidArgument
from sparrow.broker.access.acls import ANY_HOST, AclBinding, AclFilter, PatternType, Permission, check_rule
from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.frontends.admin.fields import MAX_ENTRIES, Body, MaybeName, Name, choices
from sparrow.frontends.admin.operation import Arguments, OperationContext
from sparrow.model.access import (
    OperationName,
    PatternName,
    PermissionName,
    ResourceName,
    SelectedPatternName,
)

_Resource = Annotated[ResourceName, choices(ResourceName)]
_Operation = Annotated[OperationName, choices(OperationName)]
_Permission = Annotated[PermissionName, choices(PermissionName)]
_Pattern = Annotated[PatternName, choices(PatternName)]


class AclRule(msgspec.Struct, frozen=True):
    """An access rule, with the names that Kafka uses."""

    resource_type: ResourceType
    name: str
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: str = ANY_HOST

    def binding(self) -> AclBinding:
        """Return the rule in the broker's form."""
        return AclBinding(**msgspec.structs.asdict(self))


class CreateRules(Arguments, frozen=True):
    rules: list[AclRule]


class SelectRules(Arguments, frozen=True):
    """A filter; omitted fields match all."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    principal: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY
    pattern_type: PatternType = PatternType.ANY
    host: str | None = None

    def filter(self) -> AclFilter:
        """Return the selection in the broker's form."""
        return AclFilter(**msgspec.structs.asdict(self))


class Rule(Body):
    resource_type: _Resource
    name: Name
    principal: Annotated[Name, Meta(description="Such as User:alice; User:* is any user.")]
    operation: _Operation
    permission: _Permission = "Allow"
    pattern_type: _Pattern = "Literal"
    host: Annotated[Name, Meta(description="An address; * is any address.")] = ANY_HOST


class Rules(Body):
    rules: Annotated[list[Rule], Meta(min_length=1, max_length=MAX_ENTRIES)]


class RuleShown(Struct):
    resource_type: str
    name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class RuleList(Struct):
    rules: list[RuleShown]


class Selection(Body):
    """A selection of rules; members that are left out match everything."""

    resource_type: _Resource | None = None
    name: MaybeName | None = None
    principal: MaybeName | None = None
    operation: _Operation | None = None
    permission: _Permission | None = None
    pattern_type: Annotated[SelectedPatternName, choices(SelectedPatternName)] | None = None
    host: MaybeName | None = None


class Deletion(Selection):
    all: Annotated[bool, Meta(description="Required to delete all rules, if nothing else is given.")] = False


class CheckRights(Arguments, frozen=True):
    principal: str
    operation: Operation
    resource_type: ResourceType
    name: str
    host: str = ""


class RightsQuestion(Struct):
    principal: Annotated[Name, Meta(description="Such as User:alice.")]
    operation: _Operation
    resource_type: _Resource
    name: Name
    host: Annotated[MaybeName, Meta(description="Address that the principal connects from.")] = ""


class RightsAnswer(Struct):
    allowed: bool
    because: Annotated[str, Meta(description="Why, in words.")]
    rule: Annotated[RuleShown | None, Meta(description="The rule that decides; null: none does.")]


async def check(context: OperationContext, a: CheckRights) -> RightsAnswer:
    """Tell whether a principal may do something, and by which rule."""
    kind, colon, name = a.principal.partition(":")
    if not (kind and colon and name):
        raise InvalidArgument(f"{a.principal[:80]!r} is not a principal; those look like User:alice")
    is_allowed, because, rule = context.broker.acls.explain(
        Principal(name, kind, a.host), a.operation, a.resource_type, a.name, principal=context.principal
    )
    shown = None if rule is None else msgspec.convert(msgspec.to_builtins(rule), RuleShown)
    return RightsAnswer(is_allowed, because, shown)


def question(_: OperationContext, by: RightsQuestion) -> CheckRights:
    """Return the arguments of `check`.

    Raises:
        InvalidArgument: All is no single operation.
    """
    if by.operation == "All":
        raise InvalidArgument("ask for one operation, not for All")
    return msgspec.convert(msgspec.structs.asdict(by), CheckRights)


async def create(context: OperationContext, a: CreateRules) -> None:
    """Create rules, all or none. Existing rules stay as they are."""
    rules = [each.binding() for each in a.rules]
    for rule in rules:
        check_rule(rule)
    for outcome in await context.broker.acls.create(rules, principal=context.principal):
        if outcome is not None:
            raise outcome


async def list_rules(context: OperationContext, a: SelectRules) -> dict[str, list[AclBinding]]:
    """List the rules that match. With `pattern_type=Match`, `name` selects all rules that apply
    to the resource with this name.
    """
    return {"rules": [*context.broker.acls.describe(a.filter(), principal=context.principal)]}


async def delete(context: OperationContext, a: SelectRules) -> dict[str, list[AclBinding]]:
    """Delete the rules that match, and return them."""
    (deleted,) = await context.broker.acls.delete([a.filter()], principal=context.principal)
    return {"rules": [*deleted]}


def new_rules(_: OperationContext, body: Rules) -> CreateRules:
    """Return the arguments of `create`."""
    return msgspec.convert(body, CreateRules, from_attributes=True)


def rules_shown(_: None, a: CreateRules) -> dict[str, list[AclBinding]]:
    """Return the created rules as HTTP shows them."""
    return {"rules": [each.binding() for each in a.rules]}


def selection(_: OperationContext, by: Selection) -> SelectRules:
    """Return the arguments of `list_rules`."""
    given = {name: value for name, value in msgspec.structs.asdict(by).items() if value is not None}
    return msgspec.convert(given, SelectRules)


def deletion(context: OperationContext, by: Deletion) -> SelectRules:
    """Return the arguments of `delete`.

    Raises:
        InvalidArgument: nothing is given, not even `all`.
    """
    selected = selection(context, by)
    if selected == SelectRules() and not by.all:
        raise InvalidArgument("this would delete every rule; say which, or all=true if you mean it")
    return selected
