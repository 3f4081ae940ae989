"""Login and logout of browsers: /v1/session sets and removes the cookie of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from sparrow.base.errors import InvalidArgument
from sparrow.frontends.admin.fields import SECRET, Body, MaybeName
from sparrow.frontends.http.arguments import operation_route
from sparrow.frontends.http.responses import Response
from sparrow.frontends.http.web_sessions import cookie_name, cookie_of, set_cookie

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.router import Route

SESSION_PATH = "/v1/session"
_Secret = Annotated[
    str,
    Meta(
        min_length=0,
        max_length=10_000,
        extra={SECRET: True},
        extra_json_schema={"format": "password", "writeOnly": True},
    ),
]


class Credentials(Body):
    """A user and a password, or a token."""

    user: MaybeName = ""
    password: _Secret = ""
    token: _Secret = ""

    def given(self) -> dict[str, str]:
        """Return them in the form that logins take.

        Raises:
            InvalidArgument: none, or both.
        """
        if bool(self.user) == bool(self.token):
            raise InvalidArgument("give a user with a password, or a token")
        return {"token": self.token} if self.token else {"user": self.user, "password": self.password}


class SessionShown(msgspec.Struct):
    principal: str


class _Sessions:
    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend

    async def begin(self, request: Request, body: Credentials) -> Response:
        """Log in, and get a cookie that stands for the login. Wrong credentials are limited as at
        every listener.
        """
        credentials = body.given()
        principal = await self._frontend.identify(credentials, request.host)
        name = cookie_name(request.header(b"host").encode("latin-1"))
        text = self._frontend.web_sessions.begin(principal)
        headers = [
            (b"content-type", b"application/json"),
            (b"set-cookie", set_cookie(name, text, is_secure=request.is_secure)),
        ]
        return Response(200, headers, msgspec.json.encode(SessionShown(str(principal))))

    async def end(self, request: Request) -> Response:
        """Log out: the cookie is worth nothing any more. Without a session nothing happens."""
        name = cookie_name(request.header(b"host").encode("latin-1"))
        self._frontend.web_sessions.end(cookie_of(request.header(b"cookie").encode("latin-1"), name))
        gone = set_cookie(name, "", is_secure=request.is_secure, max_age_s=0)
        return Response(204, [(b"set-cookie", gone)])


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of /v1/session."""
    sessions = _Sessions(frontend)
    return [
        operation_route(
            "POST",
            SESSION_PATH,
            sessions.begin,
            SessionShown,
            tag="session",
            name="begin",
            text=_Sessions.begin.__doc__ or "",
            body=Credentials,
            refusals=(),
        ),
        operation_route(
            "DELETE",
            SESSION_PATH,
            sessions.end,
            None,
            tag="session",
            name="end",
            text=_Sessions.end.__doc__ or "",
            status=204,
            refusals=(),
        ),
    ]
