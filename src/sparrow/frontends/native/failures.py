"""Errors on the wire: code, text and retriable flag. A bug becomes INTERNAL, and its traceback goes
to the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import InternalError, SparrowError
from sparrow.protocol.native.messages import Error, Failure

if TYPE_CHECKING:
    import logging

MAX_TEXT_CHARACTERS = 2000
"""Limit of an error text: it may repeat what the peer sent, and must not grow beyond a frame."""


def translate(error: Exception, operation: str, logger: logging.Logger) -> SparrowError:
    """Return the error to send. Log any exception that is not a SparrowError as a bug of the
    broker.
    """
    if isinstance(error, SparrowError):
        return error
    logger.error("failed at %s", operation, exc_info=error)
    return InternalError(
        f"The broker failed at {operation} because of a bug ({type(error).__name__}); its log has "
        "the details."
    )


def failure_of(error: SparrowError) -> Failure:
    """Return an error in the form for RESPONSE and CONFIRM."""
    return Failure(error.code, _text_of(error), error.retriable)


def error_of(error: SparrowError) -> Error:
    """Return an error as the frame that ends a channel or the connection."""
    return Error(error.code, _text_of(error), error.retriable)


def _text_of(error: SparrowError) -> str:
    text = error.text
    return text if len(text) <= MAX_TEXT_CHARACTERS else f"{text[:MAX_TEXT_CHARACTERS]}…"
