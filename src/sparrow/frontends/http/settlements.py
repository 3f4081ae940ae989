"""Requests that settle leases, parsed from the body or, for one lease, from the query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import msgspec

from sparrow.base.errors import InvalidArgument
from sparrow.frontends.http.problems import BodyTooLarge
from sparrow.frontends.http.queries import Query

if TYPE_CHECKING:
    from sparrow.frontends.http.request import Request

MAX_LEASES: Final = 10_000
"""Leases of one request."""
MAX_BODY_BYTES: Final = 4 << 20
"""Enough for `MAX_LEASES`, with room to spare: small texts take far more memory than their bytes in
the body.
"""
MAX_TEXT_CHARACTERS: Final = 4096
MAX_LEASE_MS: Final = 43_200_000
MAX_DELAY_MS: Final = 30 * 86_400_000
_PARAMETERS: Final = ("lease", "delay_ms", "error", "reason", "lease_ms")

_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARACTERS)]


class Leases(msgspec.Struct, forbid_unknown_fields=True):
    """The leases to acknowledge or to release."""

    leases: Annotated[list[str], msgspec.Meta(max_length=MAX_LEASES)]


class NackBody(Leases, forbid_unknown_fields=True):
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_DELAY_MS)] | None = None
    error: _Text = ""


class RejectBody(Leases, forbid_unknown_fields=True):
    reason: _Text = ""


class ExtendBody(Leases, forbid_unknown_fields=True):
    lease_ms: Annotated[int, msgspec.Meta(ge=1, le=MAX_LEASE_MS)] | None = None


SettleBody = TypeVar("SettleBody", bound=Leases)


async def read_settle_body(request: Request, kind: type[SettleBody]) -> SettleBody:
    """Read the body or, without a body, the query, which is convenient for one lease.

    Raises:
        InvalidArgument, BodyTooLarge
    """
    content = await request.body()
    if len(content) > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"the body is larger than {MAX_BODY_BYTES} bytes; settle fewer leases with each request"
        )
    query = Query(request)
    try:
        if content:
            query.refuse_others()
            return msgspec.json.decode(content, type=kind)
        fields = {name: query.text(name, "") for name in _PARAMETERS if name in query}
        query.refuse_others()
        if "lease" not in fields:
            raise InvalidArgument(
                'the leases are missing: send {"leases": ["…"]} as JSON, or ?lease=… without a body'
            )
        return msgspec.convert({"leases": [fields.pop("lease")], **fields}, kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"the leases to settle cannot be read: {error}") from None
