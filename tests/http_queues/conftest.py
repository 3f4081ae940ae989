"""A broker with an HTTP frontend."""

from __future__ import annotations

from tests.http_frontend.conftest import http, make_http

__all__ = ["http", "make_http"]
