"""A row of the table of operations: what it takes, what it does, and its route of HTTP.

The native protocol has the operation as it is: the arguments are its struct, and the response is
what the function returns. HTTP has a route. Its path names the first arguments, in their order, and
the members of its query or body the others, under the same names, with the limits that HTTP has for
each. `HttpRoute.arguments` and `HttpRoute.shown` are for those that differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker

FORBIDDEN: Final = (403,)
FORBIDDEN_OR_MISSING: Final = (403, 404)
CONFLICTING: Final = (403, 404, 409)


class OperationContext(NamedTuple):
    """The principal of a request, and what the listener that received it is asked for."""

    broker: Broker
    principal: Principal
    connections: int = 0
    """Open connections of the listener."""
    is_draining: bool = False
    max_response_bytes: int = 0
    """Rough limit of the records of a response."""


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Base of all arguments. Unknown fields are ignored, as a newer client may send them."""


class NoArguments(Arguments, frozen=True):
    pass


class Named(Arguments, frozen=True):
    name: str


class Matching(Arguments, frozen=True):
    """A pattern for names: `*` matches any characters, `?` one character."""

    pattern: str = "*"


class OtherStatus(NamedTuple):
    """Another status of success: its text in the document, and the test of the arguments for it."""

    status: int
    text: str
    applies: Callable[[Any], bool]


class HttpRoute(msgspec.Struct, frozen=True):
    """The route of an operation.

    Args:
        tag: its group in the OpenAPI document.
        query, body: structs with the limits of what a client sends.
        needs_body: False if the body may be left out.
        result: the struct of the response; None: it has no body.
        status: the status of success.
        also: another one.
        refusals: statuses of its problems, beside those of every route.
        arguments: makes the arguments of the context, the parts of the path, and the query or body;
            may be a coroutine function. None: see above.
        shown: makes the response of the result and the arguments. None: it is the result.
        tag_of: makes the tag of the state of what the path names (see `states.py`): a GET shows it
            as ETag, a change is refused unless it is that of If-Match.
        name, text: those of the function if left out.
    """

    method: str
    path: str
    tag: str
    result: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    needs_body: bool = True
    status: int = 200
    also: OtherStatus | None = None
    refusals: Sequence[int] = FORBIDDEN_OR_MISSING
    arguments: Callable[..., Any] | None = None
    shown: Callable[[Any, Any], object] | None = None
    tag_of: Callable[..., Awaitable[str]] | None = None
    name: str = ""
    text: str = ""


class AdminOperation:
    """One operation of administration."""

    def __init__(
        self,
        name: str,
        arguments: type[msgspec.Struct],
        function: Callable[[OperationContext, Any], Awaitable[Any]],
        right: str,
        *routes: HttpRoute,
        is_native: bool = True,
    ) -> None:
        """Create a row of the table.

        Args:
            name: its verb in the native protocol.
            arguments: the type of its arguments.
            function: does it, by one call of a service.
            right: the first right that it takes, in the words of access rules; "": none. The
                service checks it, and further ones that depend on the arguments.
            routes: of HTTP; several if paths or defaults differ.
            is_native: False if it exists for HTTP alone.
        """
        self.name = name
        self.arguments = arguments
        self.function = function
        self.right = right
        self.routes = routes
        self.is_native = is_native

    @property
    def text(self) -> str:
        """Return what it does, for people."""
        return inspect.getdoc(self.function) or ""
