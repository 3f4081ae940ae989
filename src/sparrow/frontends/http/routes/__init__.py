"""The routes of the HTTP frontend, one module for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.frontends.http.routes import (
    administration,
    console,
    dead_letters,
    documents,
    events,
    health,
    leases,
    messages,
    metrics,
    queues,
    search,
    session,
    socket,
    stream,
)

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.router import Route

_GROUPS = (
    health,
    messages,
    search,
    stream,
    socket,
    queues,
    leases,
    dead_letters,
    administration,
    session,
    events,
    metrics,
)
"""The groups in the order of the document."""


def all_routes(frontend: HttpContext) -> list[Route]:
    """Return all routes."""
    described = [route for group in _GROUPS for route in group.routes(frontend)]
    return [*documents.routes(frontend, described), *described, *console.routes(frontend)]
