"""A broker with a native door, and raw clients of it."""

from tests.native_door.conftest import broker, client, clock, door, open_door, timed_broker

__all__ = ["broker", "client", "clock", "door", "open_door", "timed_broker"]
