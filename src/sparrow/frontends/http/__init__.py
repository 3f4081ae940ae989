"""The HTTP frontend: REST, Server-Sent Events, WebSocket, metrics. Its libraries are loaded when
the first client connects.
"""
