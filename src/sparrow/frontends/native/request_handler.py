"""The parts of the tables of request handlers: context, argument types and table rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.frontends.native.context import FrontendContext


class RequestContext(NamedTuple):
    """The principal of a request and the frontend that received it."""

    frontend: FrontendContext
    principal: Principal

    @property
    def broker(self) -> Broker:
        return self.frontend.broker


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Base of all arguments. Unknown fields are ignored, as a newer client may send them."""


class NoArguments(Arguments, frozen=True):
    pass


class Named(Arguments, frozen=True):
    name: str


class Matching(Arguments, frozen=True):
    """A pattern for names: `*` matches any characters, `?` one character."""

    pattern: str = "*"


class RequestHandler(NamedTuple):
    """A table row: the type of the arguments, and the function that receives them."""

    arguments: type[Arguments]
    function: Callable[[RequestContext, Any], Awaitable[Any]]
