"""SaslHandshake and SaslAuthenticate: what `sasl.py` decides, as messages."""

from __future__ import annotations

import asyncio
import logging
import struct
from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.static.primitive import i64Timedelta

from sparrow.base.errors import NotAuthenticated
from sparrow.frontends.kafka.sasl import MECHANISMS, SaslSession

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

    from sparrow.frontends.kafka.codec.responses import Piece
    from sparrow.frontends.kafka.connection import Connection
    from sparrow.frontends.kafka.dispatch import Call

log = logging.getLogger("sparrow.kafka")

_SIZE = struct.Struct(">i")
_NO_TOKEN = b""


def handshake(request: SaslHandshakeRequest, call: Call) -> SaslHandshakeResponse:
    """Names the mechanism of the tokens that follow."""
    connection = call.connection
    now = asyncio.get_running_loop().time()
    if not connection.listener.sasl or not _session(connection).may_begin(now):
        if not connection.is_authenticated:
            _end(connection, "SaslHandshake came during a login")
        return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state)
    if request.mechanism not in MECHANISMS:
        _end(connection, f"there is no SASL mechanism {request.mechanism[:40]!r}")
        return SaslHandshakeResponse(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=MECHANISMS)
    _session(connection).begin(request.mechanism, now)
    if call.version == 0:
        connection.state["raw"] = _receive_bare
    return SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=MECHANISMS)


async def authenticate(request: SaslAuthenticateRequest, call: Call) -> SaslAuthenticateResponse:
    """Carries a token, and the answer to it."""
    connection = call.connection
    if not connection.listener.sasl or _session(connection).exchange is None:
        return _illegal(connection)
    try:
        answer, lifetime_s = await _receive(connection, request.auth_bytes)
    except NotAuthenticated as error:
        await _refuse(connection, error)
        return _response(ErrorCode.sasl_authentication_failed, error.text)
    return _response(ErrorCode.none, None, answer, lifetime_s)


def _illegal(connection: Connection) -> SaslAuthenticateResponse:
    if connection.is_authenticated:
        return _response(
            ErrorCode.illegal_sasl_state, "SaslAuthenticate request received after successful authentication"
        )
    _end(connection, "SaslAuthenticate came without SaslHandshake")
    return _response(ErrorCode.illegal_sasl_state, "SaslAuthenticate must follow SaslHandshake")


def _receive_bare(
    connection: Connection, frame: bytes | memoryview
) -> Coroutine[Any, Any, list[Piece] | None]:
    return _answer_bare(connection, bytes(frame))


async def _answer_bare(connection: Connection, token: bytes) -> list[Piece] | None:
    """Tokens without a header have no room for an error: a failed login is a closed connection."""
    try:
        answer, _ = await _receive(connection, token)
    except NotAuthenticated as error:
        await _refuse(connection, error)
        return None
    if _session(connection).exchange is None:
        del connection.state["raw"]
    return [_SIZE.pack(len(answer)), answer]


async def _receive(connection: Connection, token: bytes) -> tuple[bytes, float]:
    """The answer to a token, and how long the session lasts (0: without end, or not logged in yet)."""
    session = _session(connection)
    answer = await session.receive(token)
    if session.exchange is None or session.exchange.principal is None:
        return answer, 0.0
    now = asyncio.get_running_loop().time()
    principal, ends_at = session.complete(now)
    connection.logged_in(principal, ends_at)
    log.info("connection %s of %s: %s logged in", connection.id, connection.peer_host, principal)
    return answer, 0.0 if ends_at is None else ends_at - now


def _session(connection: Connection) -> SaslSession:
    session: SaslSession | None = connection.state.get("sasl")
    if session is None:
        frontend = connection.frontend
        lifetime_ms = frontend.limits.max_session_ms
        session = SaslSession(frontend.logins, lifetime_ms / 1000 if lifetime_ms else None)
        connection.state["sasl"] = session
    return session


async def _refuse(connection: Connection, error: NotAuthenticated) -> None:
    """Wait, so that guessing is slow, then let the answer be the last one."""
    await asyncio.sleep(connection.frontend.limits.failed_authentication_delay_ms / 1000)
    _end(connection, error.text)


def _end(connection: Connection, why: str) -> None:
    log.warning("connection %s of %s is not let in: %s", connection.id, connection.peer_host, why)
    connection.close_after(0)


def _response(
    code: ErrorCode, text: str | None, token: bytes = _NO_TOKEN, lifetime_s: float = 0.0
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=code,
        error_message=text,
        auth_bytes=token,
        session_lifetime=i64Timedelta.parse(timedelta(milliseconds=int(lifetime_s * 1000))),
    )
