"""PLACEHOLDER of the lead so that brokers start meanwhile; H5 replaces this file."""
from __future__ import annotations
from dataclasses import dataclass
from typing import Any
@dataclass(frozen=True, slots=True)
class WebhookSettings:
    allow: tuple[str, ...] = ()
    max_connections: int = 1_000
    ca_path: str = ""
class WebhookFrontend:
    def __init__(self, broker: Any, *, settings: WebhookSettings) -> None: ...
    async def start(self) -> None: ...
    async def drain(self, timeout_s: float) -> None: ...
