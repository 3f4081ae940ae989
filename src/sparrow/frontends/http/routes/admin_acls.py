"""Routes of access rules, in Kafka's terms: list, create, delete."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from sparrow.base.errors import InvalidArgument
from sparrow.broker.access.acls import ANY_HOST, AclBinding, AclFilter, PatternType, Permission, check_rule
from sparrow.broker.access.authz import Operation, ResourceType
from sparrow.frontends.http.arguments import operation
from sparrow.frontends.http.fields import MAX_ENTRIES, Body, MaybeName, Name, choices
from sparrow.frontends.http.identity import caller

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.router import Route

ResourceName = Literal["Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"]
OperationName = Literal[
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
    "ClusterAction",
    "CreateTokens",
    "DescribeTokens",
    "TwoPhaseCommit",
]
PermissionName = Literal["Allow", "Deny"]
PatternName = Literal["Literal", "Prefixed"]
SelectedPatternName = Literal["Literal", "Prefixed", "Match"]
_Resource = Annotated[ResourceName, choices(ResourceName)]
_Operation = Annotated[OperationName, choices(OperationName)]
_Permission = Annotated[PermissionName, choices(PermissionName)]
_Pattern = Annotated[PatternName, choices(PatternName)]


class Rule(Body):
    resource_type: _Resource
    name: Name
    principal: Annotated[Name, Meta(description="Such as User:alice; User:* is any user.")]
    operation: _Operation
    permission: _Permission = "Allow"
    pattern_type: _Pattern = "Literal"
    host: Annotated[Name, Meta(description="An address; * is any address.")] = ANY_HOST

    def binding(self) -> AclBinding:
        """Return the rule in the broker's form."""
        return AclBinding(
            ResourceType(self.resource_type),
            self.name,
            PatternType(self.pattern_type),
            self.principal,
            self.host,
            Operation(self.operation),
            Permission(self.permission),
        )


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

    def selects_all(self) -> bool:
        return all(getattr(self, name) is None for name in _SELECTORS)

    def filter(self) -> AclFilter:
        """Return the selection in the broker's form."""
        return AclFilter(
            ResourceType(self.resource_type or "Any"),
            self.name,
            PatternType(self.pattern_type or "Any"),
            self.principal,
            self.host,
            Operation(self.operation or "Any"),
            Permission(self.permission or "Any"),
        )


_SELECTORS = Selection.__struct_fields__


class Deletion(Selection):
    all: Annotated[bool, Meta(description="Required to delete all rules, if nothing else is given.")] = False


class _Acls:
    def __init__(self, frontend: HttpContext) -> None:
        self._acls = frontend.broker.acls

    async def list_rules(self, request: Request, by: Selection) -> object:
        """List the rules that match. With `pattern_type=Match`, `name` selects all rules that apply
        to the resource with this name.
        """
        found = self._acls.describe(by.filter(), principal=caller(request))
        return {"rules": list(found)}

    async def create(self, request: Request, body: Rules) -> object:
        """Create rules, all or none. Existing rules stay as they are."""
        rules = [each.binding() for each in body.rules]
        for rule in rules:
            check_rule(rule)
        for outcome in await self._acls.create(rules, principal=caller(request)):
            if outcome is not None:
                raise outcome
        return {"rules": rules}

    async def delete(self, request: Request, by: Deletion) -> object:
        """Delete the rules that match, and return them."""
        if by.selects_all() and not by.all:
            raise InvalidArgument("this would delete every rule; say which, or all=true if you mean it")
        (deleted,) = await self._acls.delete([by.filter()], principal=caller(request))
        return {"rules": deleted}


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of access rules."""
    acls = _Acls(frontend)
    serve = partial(operation, result=RuleList, tag="access rules", refusals=(403,))
    path = "/v1/acls"
    return [
        serve("GET", path, acls.list_rules, query=Selection),
        serve("POST", path, acls.create, body=Rules, status=201),
        serve("DELETE", path, acls.delete, query=Deletion),
    ]
