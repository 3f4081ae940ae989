"""Routes that get their input as structs: parts of the path, parameters and a body of JSON, all
checked before the handler is called.

Bodies have a lower limit than those of messages, because as objects they take many times their
size. Unknown parameters and members are refused, as they are most likely spelling mistakes.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl

import msgspec
from msgspec.inspect import StructType, type_info

from sparrow.base.errors import InvalidArgument
from sparrow.frontends.admin.operation import FORBIDDEN_OR_MISSING
from sparrow.frontends.http.faults import Faults, check
from sparrow.frontends.http.openapi import body_of, problems, reference, response
from sparrow.frontends.http.path_parameters import PathParameters
from sparrow.frontends.http.problems import BodyTooLarge, InvalidParameters
from sparrow.frontends.http.queries import Query
from sparrow.frontends.http.responses import JSON, Response, json_response, no_content
from sparrow.frontends.http.router import Route
from sparrow.protocol.http.errors import UnsupportedMediaType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from msgspec import Struct

    from sparrow.frontends.http.request import Request

MAX_BODY_BYTES: Final = 1 << 20
_MAX_SHOWN: Final = 3
"""Faults in the sentence for people; the list has all."""


def operation_route(
    method: str,
    path: str,
    handle: Callable[..., Awaitable[object]],
    result: type[Struct] | None = None,
    *,
    tag: str,
    name: str,
    text: str,
    status: int = 200,
    refusals: Sequence[int] = FORBIDDEN_OR_MISSING,
    query: type[Struct] | None = None,
    body: type[Struct] | None = None,
    needs_body: bool = True,
    also: Mapping[int, str] | None = None,
) -> Route:
    """Return a route of administration.

    Args:
        handle: called with the request, the parts of the path by their names, `by` (of the type
            `query`) and `body`, which has its defaults if it may be left out and is. Returns what
            becomes the JSON of the response, None for a response without a body, or the response.
        result: the successful response, with `status`; None: it has no body.
        refusals: statuses of its problems, beside those of every route.
        also: texts of other successful statuses.
    """
    arguments = _Arguments(query, body, needs_body=needs_body)

    async def handle_checked(request: Request) -> Response:
        found = await handle(request, **await arguments.read(request))
        if isinstance(found, Response):
            return found
        return no_content() if found is None else json_response(found, status)

    media = {JSON: reference(result)} if result else None
    successes = {status: "Successful Response", **(also or {})}
    return Route(
        method,
        path,
        handle_checked,
        tag=tag,
        name=name,
        summary=name.replace("_", " ").title(),
        text=text,
        request_body=body_of(body, is_required=needs_body) if body else None,
        responses={
            **{each: response(words, media) for each, words in successes.items()},
            **problems(*refusals, *((413, 415) if body else ())),
        },
        query=query,
        structs=tuple(each for each in (body, result) if each is not None),
    )


class _Arguments:
    """The input of one route."""

    def __init__(self, query: type[Struct] | None, body: type[Struct] | None, *, needs_body: bool) -> None:
        self._query, self._body = query, body
        self._needs_body = needs_body

    # made at the first request: half of the time that all routes take at the start

    @cached_property
    def _query_type(self) -> StructType:
        return _type_of(self._query or _NoParameters)

    @cached_property
    def _body_type(self) -> StructType:
        assert self._body is not None
        return _type_of(self._body)

    @cached_property
    def _decode(self) -> Callable[[bytes], Any]:
        assert self._body is not None
        return msgspec.json.Decoder(self._body).decode

    async def read(self, request: Request) -> dict[str, Any]:
        """Return the arguments of the handler by name.

        Raises:
            InvalidParameters: has all faults.
            InvalidArgument, UnsupportedMediaType, BodyTooLarge
        """
        parameters = self._parameters(request)
        content = b"" if self._body is None else await _content(request)
        faults: Faults = []
        found: dict[str, Any] = {
            name: check(_PATH_TYPES[name], text, f"path.{name}", faults, lax=True)
            for name, text in request.path_params.items()
        }
        by = check(self._query_type, parameters, "query", faults, lax=True)
        body = None if self._body is None else self._checked_body(content, faults)
        if faults:
            raise _invalid(faults)
        if self._query is not None:
            found["by"] = msgspec.convert(by, self._query)
        if self._body is not None:
            found["body"] = msgspec.convert(body, self._body)
        return found

    def _parameters(self, request: Request) -> dict[str, str]:
        """Return the parameters of the address.

        Raises:
            InvalidArgument: one is given twice, or unknown; not if the struct forbids unknown ones.
        """
        if self._query_type.forbid_unknown_fields:
            text = request.query.decode("latin-1")
            return dict(parse_qsl(text, keep_blank_values=True))
        query = Query(request)
        texts = {field.name: query.text(field.name) for field in self._query_type.fields}
        query.refuse_others()
        return {name: text for name, text in texts.items() if name in query}

    def _checked_body(self, content: bytes, faults: Faults) -> Any:
        """Return the body, or what makes it; add its faults."""
        if content:
            try:
                return self._decode(content)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass
        value = _json_of(content) if content else None
        if value is not None:
            return check(self._body_type, value, "body", faults)
        if self._needs_body:
            faults.append(("body", "Field required"))
        return {}


class _NoParameters(msgspec.Struct):
    """The query of a route without parameters."""


def _type_of(struct: type[Struct]) -> StructType:
    return cast("StructType", type_info(struct))


_PATH_TYPES: Final = {field.name: field.type for field in _type_of(PathParameters).fields}


def _json_of(content: bytes) -> Any:
    """Return a body of JSON that msgspec refuses.

    Raises:
        InvalidParameters: it is not JSON; has the position.
        InvalidArgument: it cannot be read.
    """
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise _invalid([(f"body.{error.pos}", "JSON decode error")]) from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise InvalidArgument("There was an error parsing the body") from None


def _invalid(faults: Faults) -> InvalidParameters:
    listed = "; ".join(f"{where}: {what}" for where, what in faults[:_MAX_SHOWN])
    return InvalidParameters(f"invalid request: {listed}", faults)


async def _content(request: Request) -> bytes:
    """Return the body, checked for type and size.

    Raises:
        UnsupportedMediaType: it is not declared as JSON.
        BodyTooLarge
    """
    kind = request.media_type
    is_json = kind == JSON or (kind.startswith("application/") and kind.endswith("+json"))
    if not is_json and (
        request.header(b"content-length") not in ("", "0") or request.header(b"transfer-encoding")
    ):
        raise UnsupportedMediaType(
            f"the content type of the body is {kind[:80]!r}; send JSON with the header "
            "Content-Type: application/json"
        )
    content = await request.body()
    if len(content) > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"the body is larger than {MAX_BODY_BYTES} bytes, the most that administration takes; "
            "send several smaller ones"
        )
    return content
