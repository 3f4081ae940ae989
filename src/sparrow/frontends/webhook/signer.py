"""Signatures as in the Standard Webhooks specification: over id, time and body, with each valid
secret.

    webhook-id          the same at each attempt of a record, so that a receiver knows repetitions
    webhook-timestamp   seconds since the epoch, of this attempt
    webhook-signature   "v1,<base64 of HMAC-SHA256>"; several secrets: several, separated by spaces

Percent and full stop are encoded in the id (%25, %2E), because full stops separate the signed parts
and publishers may choose ids.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from typing import TYPE_CHECKING, Final

from sparrow.records.wellknown import MESSAGE_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.webhooks.endpoint import Secret
    from sparrow.records.record import Record

_PLAIN_ID: Final = re.compile(rb"[!-~]{1,256}")


def id_of(record: Record, queue: str) -> str:
    """Return the record's own id if a header can carry it, else its position. It is the same at
    each attempt.
    """
    for name, value in reversed(record.headers):
        if name == MESSAGE_ID and value and _PLAIN_ID.fullmatch(value):
            return value.decode()
    plain = queue if queue.isascii() and " " not in queue else queue.encode().hex()
    return f"{plain}/{record.topic}/{record.partition}/{record.offset}"


class Signer:
    """Signs the requests of one endpoint."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._keys = [(each.key, each.until_ms) for each in secrets]

    def headers(self, message_id: str, body: bytes, now_ms: int) -> list[tuple[str, str]]:
        """Return the id, the time and, if there are secrets, the signatures of an attempt."""
        message_id = message_id.replace("%", "%25").replace(".", "%2E")
        seconds = str(now_ms // 1000)
        headers = [("webhook-id", message_id), ("webhook-timestamp", seconds)]
        keys = [key for key, until_ms in self._keys if not until_ms or until_ms > now_ms]
        if keys:
            content = b"%b.%b.%b" % (message_id.encode(), seconds.encode(), body)
            signatures = [f"v1,{b64encode(hmac.digest(key, content, 'sha256')).decode()}" for key in keys]
            headers.append(("webhook-signature", " ".join(signatures)))
        return headers
