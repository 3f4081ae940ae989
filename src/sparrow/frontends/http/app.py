"""The application: the table of all routes.

A group of routes is a module in `routes/` with a function `routes(frontend)`, and a name in
`_GROUPS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.frontends.http.router import Router
from sparrow.frontends.http.routes import (
    admin_acls,
    admin_broker,
    admin_groups,
    admin_queues,
    admin_subscribers,
    admin_topics,
    admin_users,
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
    admin_topics,
    admin_groups,
    admin_queues,
    admin_subscribers,
    admin_users,
    admin_acls,
    admin_broker,
    metrics,
)
"""The groups in the order of the document."""


def build(frontend: HttpContext) -> App:
    """Return the application of a frontend. May be called in any thread."""
    described = [route for group in _GROUPS for route in group.routes(frontend)]
    return Router([*documents.routes(frontend, described), *described], socket.sockets_of(frontend))
