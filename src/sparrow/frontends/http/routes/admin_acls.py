"""Routes of access rules, in Kafka's terms: list, create, delete."""

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import ConfigDict, Field

from sparrow.base.errors import InvalidArgument
from sparrow.broker.access.acls import ANY_HOST, AclBinding, AclFilter, PatternType, Permission, check_rule
from sparrow.broker.access.authz import Operation, ResourceType
from sparrow.frontends.http.fields import MAX_ENTRIES, MAX_NAME_CHARACTERS, Body, Name, Shown
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.jsonroute import JsonRoute
from sparrow.frontends.http.openapi import problems
from sparrow.frontends.http.responses import json_response

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext

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
_Name = Query(max_length=MAX_NAME_CHARACTERS)


class Rule(Body):
    resource_type: ResourceName
    name: Name
    principal: Annotated[Name, Field(description="Such as User:alice; User:* is any user.")]
    operation: OperationName
    permission: PermissionName = "Allow"
    pattern_type: PatternName = "Literal"
    host: Annotated[Name, Field(description="An address; * is any address.")] = ANY_HOST

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
    rules: Annotated[list[Rule], Field(min_length=1, max_length=MAX_ENTRIES)]


class RuleShown(Shown):
    resource_type: str
    name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class RuleList(Shown):
    rules: list[RuleShown]


class Selection(Body):
    """A selection of rules; members that are left out match everything."""

    model_config = ConfigDict(extra="forbid", strict=False)

    resource_type: ResourceName | None = None
    name: Annotated[str | None, _Name] = None
    principal: Annotated[str | None, _Name] = None
    operation: OperationName | None = None
    permission: PermissionName | None = None
    pattern_type: Literal["Literal", "Prefixed", "Match"] | None = None
    host: Annotated[str | None, _Name] = None

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


_SELECTORS = tuple(Selection.model_fields)


class Deletion(Selection):
    all: Annotated[bool, Field(description="Required to delete all rules, if nothing else is given.")] = False


class _Acls:
    def __init__(self, frontend: "HttpContext") -> None:
        self._acls = frontend.broker.acls

    async def list_rules(self, request: Request, by: Annotated[Selection, Query()]) -> Response:
        """List the rules that match. With `pattern_type=Match`, `name` selects all rules that apply
        to the resource with this name.
        """
        found = self._acls.describe(by.filter(), principal=caller(request))
        return json_response({"rules": msgspec.to_builtins(list(found))})

    async def create(self, request: Request, body: Rules) -> Response:
        """Create rules, all or none. Existing rules stay as they are."""
        rules = [each.binding() for each in body.rules]
        for rule in rules:
            check_rule(rule)
        for outcome in await self._acls.create(rules, principal=caller(request)):
            if outcome is not None:
                raise outcome
        return json_response({"rules": msgspec.to_builtins(rules)}, 201)

    async def delete(self, request: Request, by: Annotated[Deletion, Query()]) -> Response:
        """Delete the rules that match, and return them."""
        if by.selects_all() and not by.all:
            raise InvalidArgument("this would delete every rule; say which, or all=true if you mean it")
        (deleted,) = await self._acls.delete([by.filter()], principal=caller(request))
        return json_response({"rules": msgspec.to_builtins(deleted)})


def router(frontend: "HttpContext") -> APIRouter:
    """Return the routes of access rules."""
    routes = _Acls(frontend)
    api = APIRouter(tags=["access rules"], route_class=JsonRoute)
    api.add_api_route(
        "/v1/acls", routes.list_rules, methods=["GET"], response_model=RuleList, responses=problems(400, 403)
    )
    api.add_api_route(
        "/v1/acls",
        routes.create,
        methods=["POST"],
        status_code=201,
        response_model=RuleList,
        responses=problems(400, 403),
    )
    api.add_api_route(
        "/v1/acls", routes.delete, methods=["DELETE"], response_model=RuleList, responses=problems(400, 403)
    )
    return api
