"""A broker with a native door, and what one does with queues through it."""

from __future__ import annotations

from tests.native_door.conftest import broker, client, clock, door, open_door, timed_broker

__all__ = ["broker", "client", "clock", "door", "open_door", "timed_broker"]
