"""The header `Idempotency-Key`: a publish that is repeated with the same key stores nothing a
second time (`frontends/idempotent_publisher.py`).

The key is any text of visible characters, with or without quotes (the IETF draft of the header
writes a quoted string). It belongs to the principal. Two requests are the same if method, path,
query, body and those headers that become part of a message are equal. Headers of tracing do not
count: clients that trace send new ones with each attempt.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument
from sparrow.broker.idempotency.stored_publish import IdempotencyKey

if TYPE_CHECKING:
    from sparrow.frontends.http.request import Request

HEADER: Final = b"idempotency-key"
REPLAYED: Final = ("Idempotent-Replay", "true")
"""Header of a response that is repeated."""
MAX_LENGTH: Final = 255
_FINGERPRINT_BYTES: Final = 16
_MEANT: Final = (b"content-type",)
_MEANT_PREFIX: Final = b"sparrow-"


def maybe_key(request: Request, body: bytes) -> IdempotencyKey | None:
    """Return the key of a request, None if it has none.

    Raises:
        InvalidArgument: there are several keys, or an invalid one.
    """
    given = [value for name, value in request.headers if name == HEADER]
    if not given:
        return None
    if len(given) > 1:
        raise InvalidArgument("the request has two Idempotency-Key headers; send one")
    return IdempotencyKey(str(request.principal), _text(given[0]), _fingerprint(request, body))


def _text(value: bytes) -> str:
    text = value.decode("latin-1").strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if not 0 < len(text) <= MAX_LENGTH or not all("!" <= character <= "~" for character in text):
        raise InvalidArgument(
            f"an Idempotency-Key has 1 to {MAX_LENGTH} visible ASCII characters without spaces, "
            "such as a UUID; this one has"
            f" {len(text)}: {text[:40]!r}"
        )
    return text


def _fingerprint(request: Request, body: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_FINGERPRINT_BYTES)
    meant = sorted(
        (name, value) for name, value in request.headers if name in _MEANT or name.startswith(_MEANT_PREFIX)
    )
    parts = [request.method.encode(), request.path.encode(), request.query]
    parts += (each for pair in meant for each in pair)
    for part in (*parts, body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()
