"""The parts of a message as users write them, checked once when they are published.

Only bytes are accepted: a program knows the encoding of its text, so a `str` is refused with a
hint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.client.batch import Headers

MAX_TIMESTAMP_MS = 1 << 62
HEADER_OVERHEAD_BYTES = 10
"""Upper bound of the lengths of a header's name and value."""


def as_bytes(name: str, data: object) -> bytes:
    """Return a part as bytes.

    Raises:
        InvalidArgument: it is not bytes-like.
    """
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    hint = "; encode it first: text.encode()" if isinstance(data, str) else ""
    raise InvalidArgument(f"the {name} of a message is {type(data).__name__}, it must be bytes{hint}")


def checked_time(timestamp_ms: object) -> int:
    """Return a time that a record can carry.

    Raises:
        InvalidArgument: not a whole number of milliseconds since 1970.
    """
    if (
        isinstance(timestamp_ms, int)
        and not isinstance(timestamp_ms, bool)
        and 0 <= timestamp_ms < MAX_TIMESTAMP_MS
    ):
        return timestamp_ms
    raise InvalidArgument(
        f"timestamp_ms is {timestamp_ms!r}; it must be whole milliseconds since 1970, 0 or more"
    )


def checked_parts(
    key: bytes | None, headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None
) -> tuple[bytes | None, Headers, int]:
    """Return key, headers, and an upper bound of the bytes that they take.

    Raises:
        InvalidArgument: a key that is not bytes, a header that is not a pair of text and bytes.
    """
    if key is not None and type(key) is not bytes:
        key = as_bytes("key", key)
    plain: Headers = _headers(headers) if headers else ()
    return key, plain, parts_bytes(None, key, plain)


def parts_bytes(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """Return an upper bound of the bytes of these parts, without the record's own overhead."""
    size_bytes = len(value or b"") + len(key or b"")
    for name, content in headers:
        # A character is at most four bytes of UTF-8.
        size_bytes += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
    return size_bytes


def _headers(headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return tuple(
            (_name(name), None if value is None else as_bytes("header", value)) for name, value in pairs
        )
    except (TypeError, ValueError):
        raise InvalidArgument(
            "headers must be a mapping of text to bytes, or a sequence of such pairs"
        ) from None


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a header is {type(name).__name__}, it must be text")
    if not name.isascii():
        _check_encodable(name)
    return name


def _check_encodable(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"the name of a header is {name!r}, which UTF-8 cannot write") from None
