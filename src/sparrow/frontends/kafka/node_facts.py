"""What this door knows of its broker's configuration, by Kafka's names; DescribeConfigs shows it beside what the broker knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrow.frontends.kafka.dispatch import Call


def node_facts(call: Call) -> dict[str, str]:
    """Configurations of this broker. Of several listeners the one that the client came in by is shown."""
    frontend, listener = call.frontend, call.connection.listener
    limits = frontend.limits
    host, port = frontend.advertised(call.connection)
    return {
        "node.id": str(frontend.node_id),
        "broker.id": str(frontend.node_id),
        "log.dirs": call.broker.log_directory,
        "listeners": f"{listener.name.upper()}://{_quoted(listener.host)}:{listener.port or port}",
        "advertised.listeners": f"{listener.name.upper()}://{_quoted(host)}:{port}",
        "socket.request.max.bytes": str(limits.max_request_bytes),
        "connections.max.idle.ms": str(limits.idle_timeout_ms),
        "max.connections": str(limits.max_connections),
        "fetch.max.bytes": str(limits.max_fetch_bytes),
        "max.incremental.fetch.session.cache.slots": str(limits.max_fetch_sessions),
        "group.share.max.share.sessions": str(limits.max_share_sessions),
    }


def _quoted(host: str) -> str:
    return f"[{host}]" if ":" in host else host
