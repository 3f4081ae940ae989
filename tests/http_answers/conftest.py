"""The loop that brokers run on."""

from __future__ import annotations

from tests.http_frontend.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
