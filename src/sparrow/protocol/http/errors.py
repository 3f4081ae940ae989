"""Errors of requests that cannot be read. The connection ends after each of them, as nothing behind
such a request can be trusted.
"""

from __future__ import annotations

from sparrow.base.errors import BadInput


class MalformedRequest(BadInput):
    """The received bytes are not HTTP, or can be read in two ways."""

    code = "MALFORMED_REQUEST"


class HeadTooLarge(BadInput):
    """The head of a request has too many bytes or headers."""

    code = "HEAD_TOO_LARGE"


class UnsupportedMediaType(BadInput):
    """A body in a type or coding that is not supported."""

    code = "UNSUPPORTED_MEDIA_TYPE"


class MethodNotAllowed(BadInput):
    """The method is not supported."""

    code = "METHOD_NOT_ALLOWED"
