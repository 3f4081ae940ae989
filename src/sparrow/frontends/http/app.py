"""The application: the table of all routes.

A group of routes is a module in `routes/` with a function `routes(frontend)`, and a name in
`_GROUPS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.frontends.http.router import Router
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
    from sparrow.frontends.http.asgi import App
    from sparrow.frontends.http.context import HttpContext

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


def build(frontend: HttpContext) -> App:
    """Return the application of a frontend. May be called in any thread."""
    described = [route for group in _GROUPS for route in group.routes(frontend)]
    return Router([*documents.routes(frontend, described), *described], socket.sockets_of(frontend))
