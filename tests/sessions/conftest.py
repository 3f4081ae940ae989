"""Servers that end with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest_asyncio

from tests.http_frontend.conftest import pytest_asyncio_loop_factories
from tests.sessions.served import serve

__all__ = ["pytest_asyncio_loop_factories"]


@pytest_asyncio.fixture
async def start(tmp_path: Path) -> AsyncIterator[Any]:
    """Return a function that starts a server with options of `ServerConfig`; see `serve`."""
    async with AsyncExitStack() as stack:
        yield partial(serve, stack, tmp_path)
