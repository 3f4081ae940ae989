"""The broker itself."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sparrow.model.result import Result


class ReloadedConfig(Result, frozen=True):
    """Result of a reload: keys of options that took effect, and of those that need
    a restart.
    """

    loaded: Annotated[list[str], Meta(description="Options whose new values or files are in use.")] = []
    needs_restart: Annotated[list[str], Meta(description="Changed options that need a restart.")] = []


class BrokerDescription(Result, frozen=True):
    """A broker. `statistics` has all fields of its report, including these."""

    version: str
    cluster_id: str
    uptime_ms: int
    topics: int = 0
    partitions: int = 0
    connections: int = 0
    statistics: dict[str, Any] = {}
