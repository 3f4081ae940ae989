"""The HTTP frontend: REST, Server-Sent Events, WebSocket, metrics. Its libraries are loaded when
the first client connects.
"""

from sparrow.frontends.http.frontend import HttpFrontend
from sparrow.frontends.http.limits import HttpLimits

__all__ = ["HttpFrontend", "HttpLimits"]
