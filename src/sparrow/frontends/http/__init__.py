"""The HTTP frontend: REST, Server-Sent Events, WebSocket, metrics."""
