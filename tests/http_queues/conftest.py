"""A broker with an HTTP door."""

from __future__ import annotations

from tests.http_door.conftest import http, make_http

__all__ = ["http", "make_http"]
