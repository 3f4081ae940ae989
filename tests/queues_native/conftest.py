"""A broker with a native frontend, and clients of its queues."""

from __future__ import annotations

from tests.native_frontend.conftest import broker, client, clock, listener, open_listener, timed_broker

__all__ = ["broker", "client", "clock", "listener", "open_listener", "timed_broker"]
