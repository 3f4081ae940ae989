"""The header `Idempotency-Key`: a publish that is repeated with the same key stores nothing a second time (`frontends/once.py`).

The key is any text of visible characters, as it is or in quotes (the IETF draft of the header writes it as a quoted string). It belongs to who sends it.
Two requests are the same if method, path, query and body are, and those headers that become part of a message. But for the headers of tracing: clients
that trace themselves send others with each attempt.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidArgument
from sparrow.broker.idempotency.kept import Key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.broker.access.authz import Principal

HEADER: Final = b"idempotency-key"
REPLAYED: Final = ("Idempotent-Replay", "true")
"""The header of an answer that is told again."""
MAX_LENGTH: Final = 255
_FINGERPRINT_BYTES: Final = 16
_MEANT: Final = (b"content-type",)
_MEANT_PREFIX: Final = b"sparrow-"


def maybe_key(scope: Mapping[str, Any], body: bytes, principal: Principal) -> Key | None:
    """The key of a request (an ASGI scope), None if it has none.

    Raises:
        InvalidArgument: it has several, or something that is no key.
    """
    given = [value for name, value in scope["headers"] if name == HEADER]
    if not given:
        return None
    if len(given) > 1:
        raise InvalidArgument("a request with two Idempotency-Key headers: send one")
    return Key(str(principal), _text(given[0]), _fingerprint(scope, body))


def _text(value: bytes) -> str:
    text = value.decode("latin-1").strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if not 0 < len(text) <= MAX_LENGTH or not all("!" <= character <= "~" for character in text):
        raise InvalidArgument(
            f"an Idempotency-Key has 1 to {MAX_LENGTH} visible ASCII characters without spaces, such as a UUID; this one has"
            f" {len(text)}: {text[:40]!r}"
        )
    return text


def _fingerprint(scope: Mapping[str, Any], body: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_FINGERPRINT_BYTES)
    meant = sorted(
        (name, value) for name, value in scope["headers"] if name in _MEANT or name.startswith(_MEANT_PREFIX)
    )
    parts = [scope["method"].encode(), scope["path"].encode(), scope.get("query_string", b"")]
    parts += (each for pair in meant for each in pair)
    for part in (*parts, body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()
