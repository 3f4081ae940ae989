"""Errors in HTTP: problem details (RFC 9457) made from the error tree.

    {"type": "urn:sparrow:error:unknown-topic", "title": "Unknown topic", "status": 404,
     "detail": "There is no topic 'orders'; …", "instance": "/v1/topics/orders/messages",
     "code": "UNKNOWN_TOPIC", "retriable": false}

The status is that of the error's class, or of its nearest base class in `_STATUS`. Errors that only
HTTP has (a content type, a method) have classes here, below the branch of the tree that says whose
fault it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.base import errors as e
from sparrow.protocol.http.errors import HeadTooLarge, MethodNotAllowed, UnsupportedMediaType

if TYPE_CHECKING:
    from sparrow.protocol.http.heads import Headers

MEDIA_TYPE: Final = "application/problem+json"
_MEDIA_TYPE_BYTES: Final = MEDIA_TYPE.encode()
_encode: Final = msgspec.json.Encoder().encode


class NoSuchPage(e.NotFound):
    """Nothing is served under the path."""

    code = "NO_SUCH_PAGE"


class UpgradeRequired(e.BadInput):
    """Only a WebSocket is served under the path."""

    code = "UPGRADE_REQUIRED"


class NotAcceptable(e.BadInput):
    code = "NOT_ACCEPTABLE"


class BodyTooLarge(e.BadInput):
    code = "BODY_TOO_LARGE"


def check_size(body_bytes: int, limit_bytes: int) -> None:
    """Check the size of a body.

    Raises:
        BodyTooLarge
    """
    if body_bytes > limit_bytes:
        raise BodyTooLarge(
            f"the body is larger than {limit_bytes} bytes (http.max_body); send several smaller ones"
        )


class TooSlow(e.BadInput):
    """The client did not send its request in time."""

    code = "TOO_SLOW"
    retriable = True


class OriginRefused(e.Refused):
    """A web page of another origin, or a host name that is not this machine's."""

    code = "ORIGIN_REFUSED"


class ConsoleReadOnly(e.Refused):
    """A page of this listener may change nothing (http.console)."""

    code = "CONSOLE_READ_ONLY"


class InvalidParameters(e.InvalidArgument):
    """Several parts of a request are invalid; `faults` has (where, what) of each."""

    def __init__(self, text: str = "", faults: list[tuple[str, str]] | None = None) -> None:
        super().__init__(text)
        self.faults = faults or []


_STATUS: Final[dict[type[e.SparrowError], int]] = {
    e.SparrowError: 500,
    e.BadInput: 400,
    e.RecordTooLarge: 413,
    e.CorruptStoredBatch: 500,
    BodyTooLarge: 413,
    HeadTooLarge: 431,
    TooSlow: 408,
    e.IdempotencyKeyReused: 422,
    e.UnsupportedCompression: 415,
    UnsupportedMediaType: 415,
    NotAcceptable: 406,
    MethodNotAllowed: 405,
    UpgradeRequired: 426,
    e.NotFound: 404,
    e.Conflict: 409,
    e.Refused: 403,
    e.NotAuthenticated: 401,
    e.Unavailable: 503,
    e.DiskFull: 507,
    e.TooManyIdempotencyKeys: 429,
    e.TimedOut: 504,
    e.ProtocolError: 400,
}
_RETRY_AFTER_S: Final[dict[type[e.SparrowError], int]] = {
    e.Draining: 5,
    e.Overloaded: 1,
    e.TooManyIdempotencyKeys: 60,
    e.DiskFull: 30,
}
"""Seconds until a retry makes sense, where that is known."""
BUG: Final = "The request failed because of a bug in the broker; its log has the details."


def status_of(error: e.SparrowError) -> int:
    """Return the HTTP status of an error."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def problem_of(error: e.SparrowError, instance: str = "") -> dict[str, Any]:
    """Return the problem as an object; `instance` is the requested path."""
    problem: dict[str, Any] = {
        "type": f"urn:sparrow:error:{error.code.lower().replace('_', '-')}",
        "title": error.code.replace("_", " ").capitalize(),
        "status": status_of(error),
        "detail": error.text,
    }
    if instance:
        problem["instance"] = instance
    problem["code"] = error.code
    problem["retriable"] = error.retriable
    if isinstance(error, InvalidParameters):
        problem["errors"] = [{"where": where, "what": what} for where, what in error.faults]
    if isinstance(error, e.CorruptBatch) and error.next_offset >= 0:
        problem["topic"] = error.topic
        problem["partition"] = error.partition
        problem["offset"] = error.base_offset
        problem["next_offset"] = error.next_offset
    return problem


def headers_of(error: e.SparrowError) -> Headers:
    """Return the headers of a response with this error, without those of its body."""
    headers: Headers = []
    retry_after_s = next((_RETRY_AFTER_S[k] for k in type(error).__mro__ if k in _RETRY_AFTER_S), None)
    if retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % retry_after_s))
    if isinstance(error, UpgradeRequired):
        headers += [(b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    if isinstance(error, e.NotAuthenticated):
        headers += [
            (b"www-authenticate", b'Bearer realm="sparrow"'),
            (b"www-authenticate", b'Basic realm="sparrow", charset="UTF-8"'),
        ]
    return headers


def body_of(error: e.SparrowError, instance: str = "") -> bytes:
    """Return the problem as JSON. Characters of a path or message that are not Unicode text (lone
    surrogates) are replaced.
    """
    problem = problem_of(error, instance)
    try:
        return _encode(problem)
    except UnicodeEncodeError:
        return _encode({name: _printable(value) for name, value in problem.items()})


def _printable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [{name: _printable(each) for name, each in entry.items()} for entry in value]
    return value


def response_parts(error: e.SparrowError, instance: str = "") -> tuple[int, Headers, bytes]:
    """Return status, headers and body of the response for an error."""
    headers = [(b"content-type", _MEDIA_TYPE_BYTES), *headers_of(error)]
    return status_of(error), headers, body_of(error, instance)
