"""The routes of the HTTP frontend, one module for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.frontends.http.routes import (
    administration,
    dead_letters,
    documents,
    health,
    leases,
    messages,
    metrics,
    queues,
    socket,
    stream,
)

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.router import Route

_GROUPS = (
    health,
    messages,
    stream,
    socket,
    queues,
    leases,
    dead_letters,
    administration,
    metrics,
)
"""The groups in the order of the document."""


def all_routes(frontend: HttpContext) -> list[Route]:
    """Return all routes."""
    described = [route for group in _GROUPS for route in group.routes(frontend)]
    return [*documents.routes(frontend, described), *described]
