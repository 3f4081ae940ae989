"""The principal of a seed's client. These protocols have no login, so it is ANONYMOUS, with the
address of the client and the name of the listener.

It is in a context variable because the work for a client is spread over many functions and tasks. A
connection sets it before it handles bytes; tasks that start afterwards inherit it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sparrow.broker.access.authz import ANONYMOUS

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal

_calling: Final[ContextVar[Principal]] = ContextVar("sparrow_seeds_caller", default=ANONYMOUS)


def caller_by(listener: str, host: str) -> Principal:
    """Return the principal of clients of a listener at an address without a port."""
    return replace(ANONYMOUS, host=host, listener=listener)


def set_caller(principal: Principal) -> None:
    """Set the principal for all that follows in this context."""
    _calling.set(principal)


def caller() -> Principal:
    """Return the principal of this context."""
    return _calling.get()
