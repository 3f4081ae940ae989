"""How a channel comes to its end: what it holds at the broker depends on it."""

from __future__ import annotations

from enum import Enum


class Parting(Enum):
    LEFT = "left"
    """The client closed it, or said goodbye: it is done."""
    ENDED = "ended"
    """The broker ended it with ERROR."""
    LOST = "lost"
    """The connection is gone, or the broker shuts down; the client may come back."""
