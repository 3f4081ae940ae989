"""How an exception travels: code, text and retriable flag. A bug becomes INTERNAL and its traceback goes to the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import InternalError, SparrowError
from sparrow.protocol.native.messages import Error, Failure

if TYPE_CHECKING:
    import logging

MAX_TEXT_CHARACTERS = 2000
"""A text may repeat what the peer sent; it must not grow beyond a frame by that."""


def translate(error: Exception, doing: str, logger: logging.Logger) -> SparrowError:
    """The error to tell a peer; whatever is not Sparrow's own is logged as a bug of the broker."""
    if isinstance(error, SparrowError):
        return error
    logger.error("failed at %s", doing, exc_info=error)
    return InternalError(
        f"The broker failed at {doing} by a fault of its own ({type(error).__name__}); its log has the details."
    )


def failure_of(error: SparrowError) -> Failure:
    """For RESPONSE and CONFIRM."""
    return Failure(error.code, _text_of(error), error.retriable)


def error_of(error: SparrowError) -> Error:
    """For the end of a channel or of the connection."""
    return Error(error.code, _text_of(error), error.retriable)


def _text_of(error: SparrowError) -> str:
    text = error.text
    return text if len(text) <= MAX_TEXT_CHARACTERS else f"{text[:MAX_TEXT_CHARACTERS]}…"
