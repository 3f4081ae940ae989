"""Brokers, listeners and servers whose events are recorded."""

from __future__ import annotations

from tests.http_frontend.conftest import http, make_http, pytest_asyncio_loop_factories
from tests.sessions.conftest import start

__all__ = ["http", "make_http", "pytest_asyncio_loop_factories", "start"]
