"""What the tables of REQUEST verbs are made of: who calls, how arguments look, and what a row says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.frontends.native.frontend import NativeFrontend


class Caller(NamedTuple):
    """Who calls, and where."""

    frontend: NativeFrontend
    principal: Principal

    @property
    def broker(self) -> Broker:
        return self.frontend.broker


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Base; fields that a verb does not know are ignored, as a newer client may send them."""


class NoArguments(Arguments, frozen=True):
    pass


class Named(Arguments, frozen=True):
    name: str


class Matching(Arguments, frozen=True):
    """Names that match: `*` stands for any run of characters, `?` for one."""

    pattern: str = "*"


class Verb(NamedTuple):
    """A row: what the arguments are converted to, and who gets them."""

    arguments: type[Arguments]
    handler: Callable[[Caller, Any], Awaitable[Any]]
