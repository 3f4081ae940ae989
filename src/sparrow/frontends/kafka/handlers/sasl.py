"""SaslHandshake and SaslAuthenticate: messages for the decisions of `frontends/kafka/sasl.py`."""

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

from sparrow.base.errors import NotAuthenticated, Overloaded
from sparrow.frontends.kafka.sasl import SaslSession

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

    from sparrow.frontends.kafka.call import Call
    from sparrow.frontends.kafka.codec.responses import Piece
    from sparrow.frontends.kafka.connection import KafkaConnection

log = logging.getLogger("sparrow.kafka")

_SIZE = struct.Struct(">i")
_NO_TOKEN = b""


def handshake(request: SaslHandshakeRequest, call: Call) -> SaslHandshakeResponse:
    """Select the mechanism of the tokens that follow."""
    connection = call.connection
    now = asyncio.get_running_loop().time()
    if not connection.listener.sasl or not _session(connection).may_begin(now):
        if not connection.is_known:
            _end(connection, "SaslHandshake came during a login")
        return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state)
    mechanisms = connection.listener.mechanisms
    if request.mechanism not in mechanisms:
        _end(connection, f"there is no SASL mechanism {request.mechanism[:40]!r} at this listener")
        return SaslHandshakeResponse(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=mechanisms)
    _session(connection).begin(request.mechanism, now)
    if call.version == 0:
        connection.state["raw"] = _receive_bare
    return SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=mechanisms)


async def authenticate(request: SaslAuthenticateRequest, call: Call) -> SaslAuthenticateResponse:
    """Process a token and return the reply to it."""
    connection = call.connection
    if not connection.listener.sasl or _session(connection).exchange is None:
        return _illegal(connection)
    try:
        reply, lifetime_s = await _receive(connection, request.auth_bytes)
    except (NotAuthenticated, Overloaded) as error:
        await _refuse(connection, error)
        return _response(ErrorCode.sasl_authentication_failed, error.text)
    return _response(ErrorCode.none, None, reply, lifetime_s)


def _illegal(connection: KafkaConnection) -> SaslAuthenticateResponse:
    if connection.is_known:
        return _response(
            ErrorCode.illegal_sasl_state, "SaslAuthenticate request received after successful authentication"
        )
    _end(connection, "SaslAuthenticate came without SaslHandshake")
    return _response(ErrorCode.illegal_sasl_state, "SaslAuthenticate must follow SaslHandshake")


def _receive_bare(
    connection: KafkaConnection, frame: bytes | memoryview
) -> Coroutine[Any, Any, list[Piece] | None]:
    return _reply_bare(connection, bytes(frame))


async def _reply_bare(connection: KafkaConnection, token: bytes) -> list[Piece] | None:
    """Reply to a token without a header. There is no room for an error: after a failed login the
    connection is closed.
    """
    try:
        reply, _ = await _receive(connection, token)
    except (NotAuthenticated, Overloaded) as error:
        await _refuse(connection, error)
        return None
    if _session(connection).exchange is None:
        del connection.state["raw"]
    return [_SIZE.pack(len(reply)), reply]


async def _receive(connection: KafkaConnection, token: bytes) -> tuple[bytes, float]:
    """Return the reply to a token, and the rest of the session in seconds (0: unlimited, or not
    logged in yet).
    """
    session = _session(connection)
    reply = await session.receive(token)
    if session.exchange is None or session.exchange.principal is None:
        return reply, 0.0
    now = asyncio.get_running_loop().time()
    principal, ends_at = session.complete(now)
    connection.logged_in(principal, ends_at)
    log.info("connection %s of %s: %s logged in", connection.id, connection.host, principal)
    return reply, 0.0 if ends_at is None else ends_at - now


def _session(connection: KafkaConnection) -> SaslSession:
    session: SaslSession | None = connection.state.get("sasl")
    if session is None:
        frontend = connection.context
        lifetime_ms = frontend.limits.max_session_ms
        session = SaslSession(frontend.logins, lifetime_ms / 1000 if lifetime_ms else None, connection.host)
        connection.state["sasl"] = session
    return session


async def _refuse(connection: KafkaConnection, error: NotAuthenticated | Overloaded) -> None:
    """Wait, so that guessing is slow, then close after the response. `LoginLimits` logs and counts
    the failure.
    """
    exchange = _session(connection).exchange
    connection.context.broker.audit.login_refused(
        connection.listener.name,
        connection.host,
        error,
        claims="" if exchange is None else exchange.claims,
        mechanism="" if exchange is None else exchange.mechanism,
    )
    await asyncio.sleep(connection.context.limits.failed_authentication_delay_ms / 1000)
    log.debug("connection %s of %s is refused: %s", connection.id, connection.host, error.text)
    connection.close_after(0)


def _end(connection: KafkaConnection, why: str) -> None:
    connection.context.broker.audit.login_refused(
        connection.listener.name, connection.host, NotAuthenticated(why), mechanism="none"
    )
    log.warning("connection %s of %s is refused: %s", connection.id, connection.host, why)
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
