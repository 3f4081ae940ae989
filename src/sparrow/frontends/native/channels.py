"""Definitions that all channels share: the interface of reading channels, and reasons to close."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sparrow.frontends.native.work_queue import WorkQueue


class CloseReason(Enum):
    """Why a channel ends. It decides what becomes of the leases and partitions of the channel."""

    LEFT = "left"
    """The client closed it, or said goodbye: it is done."""
    ENDED = "ended"
    """The broker ended it with ERROR."""
    LOST = "lost"
    """The connection is lost, or the broker shuts down; the client may come back."""


class ReadingChannel(Protocol):
    """A channel that delivers records: a subscription, or a consumer of a queue."""

    @property
    def work(self) -> WorkQueue:
        """Jobs of the channel, run one after the other."""
        ...

    @property
    def is_idle(self) -> bool:
        """True if no response is pending."""
        ...

    def start(self) -> None:
        """Start to deliver; called after the response to the opening was sent."""
        ...

    def handle(self, head: Any) -> None:
        """Handle a frame of the client. A SparrowError ends the channel."""
        ...

    def wake(self) -> None:
        """Continue to deliver: the connection can be written to again."""
        ...

    def heartbeat(self) -> None:
        """Record that the client is alive."""
        ...

    def is_silent_too_long(self, idle_timeout_ms: int) -> bool:
        """Return True if a client silent for `idle_timeout_ms` loses its membership."""
        ...

    def drain(self) -> None:
        """React to the shutdown of the broker."""
        ...

    def stop(self) -> None:
        """Send nothing more; `close` follows."""
        ...

    async def close(self, reason: CloseReason) -> None: ...
