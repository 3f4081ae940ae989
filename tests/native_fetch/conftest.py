"""A broker with a native frontend, and raw clients of it."""

from tests.native_frontend.conftest import broker, client, clock, listener, open_listener, timed_broker

__all__ = ["broker", "client", "clock", "listener", "open_listener", "timed_broker"]
