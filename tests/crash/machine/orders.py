"""Orders that a machine gets when it is switched on, and its report of why it went off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

POWER_LOST = 75
KILLED = 137
"""Exit codes of the machine's process."""


@dataclass(frozen=True)
class Orders:
    """Options of a start, written as JSON."""

    image_path: str
    """Path of the disk's image while the machine is off. A missing file means a new disk."""
    ready_path: str
    """Path of a file that is written when clients can connect."""
    seed: int
    """Seed of a new disk: decides what a power failure loses."""
    capacity_bytes: int
    """Capacity of a new disk."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the server, by the names of `ServerConfig`."""
    power_off_after: int | None = None
    """Lose power after this many calls that change the disk, if the start has this many."""
    longest_sync_s: float = 0.0
    is_freed: bool = False
    """True if the program that had filled the disk has gone meanwhile."""
