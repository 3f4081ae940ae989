"""PLACEHOLDER of the lead so that brokers start meanwhile; H1 replaces this file."""
from __future__ import annotations
from dataclasses import dataclass
from typing import Any
@dataclass(frozen=True, slots=True)
class HttpLimits:
    max_connections: int = 10_000
    max_body_bytes: int = 16 << 20
    body_timeout_ms: int = 30_000
    receive_budget_bytes: int = 256 << 20
    cors_origins: tuple[str, ...] = ()
    idempotency_window_ms: int = 86_400_000
class HttpFrontend:
    def __init__(self, broker: Any, *, logins: Any, limits: HttpLimits | None = None) -> None: ...
    async def start(self, host: str, port: int, *, tls: Any = None) -> int: return 1
    async def drain(self, timeout_s: float) -> None: ...
