"""Publishing over a WebSocket: offsets are reported in the order of the frames.

Messages for an existing topic are appended when their frame is read, so the order of frames is the
order in the log. Any number may be under way, up to a limit; then the connection is not read from
until some are done. Only a topic that must be created first, and a large frame, which a thread
parses, delay the append; frames behind them wait.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.broker.publishes import ACKS_ALL
from sparrow.frontends.http.records import MESSAGES_JSON, PublishBody, messages_of
from sparrow.frontends.http.sockets import server_frames
from sparrow.frontends.publisher import PublishedPart, Stored, ordered_results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.frontends.http.sockets.channel import SocketContext
    from sparrow.frontends.http.sockets.client_frames import Publish
    from sparrow.frontends.publisher import PublishResult

LARGE_BYTES: Final = 64 << 10
"""Larger frames are parsed in a thread."""
ACKS: Final = {"all": ACKS_ALL, "leader": 1, "none": 0}


class _Call(NamedTuple):
    frame: Publish
    published: PublishBody
    size_bytes: int


class Publishes:
    """The publishes of one socket. Loop thread only."""

    __slots__ = ("_later", "_order", "_session")

    def __init__(self, session: SocketContext) -> None:
        self._session = session
        self._order: asyncio.Lock | None = None
        """Lock while a topic is created or a large frame is parsed."""
        self._later = 0
        """Frames that are not appended yet."""

    def take(self, frame: Publish, size_bytes: int) -> None:
        """Publish the messages of a frame; the reply follows when they are stored.

        Raises:
            BadInput: the frame as a whole is wrong. UnknownTopic, UnknownPartition, NotAuthorized
        """
        is_large = size_bytes > LARGE_BYTES
        if self._later or is_large or not self._session.broker.topics.exists(frame.topic):
            self._later += 1
            self._session.spawn(partial(self._publish_later, frame, size_bytes), frame, size_bytes)
        else:
            self._begin(_Call(frame, self._read_body(frame), size_bytes))

    def _read_body(self, frame: Publish) -> PublishBody:
        one, many = bytes(frame.message), bytes(frame.messages)
        if bool(one) == bool(many):
            raise InvalidArgument("publish needs either message, an object, or messages, a list of objects")
        body = b'{"messages":%b}' % (many or b"[%b]" % one)
        session = self._session
        now_ms = session.broker.clock.wall_ms()
        return messages_of(body, MESSAGES_JSON, (), limits=session.limits, now_ms=now_ms)

    def _begin(self, call: _Call) -> None:
        parts = self._append(call)
        self._session.charge(1, call.size_bytes)
        left = len(parts)

        def settled(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                self._finish(call, parts)

        for part in parts:
            part.published.add_done_callback(settled)
        if not parts:
            self._finish(call, parts)

    def _append(self, call: _Call) -> list[PublishedPart]:
        frame, session = call.frame, self._session
        return session.publisher.begin(
            frame.topic,
            call.published.messages,
            partition=frame.partition,
            acks=ACKS[frame.acks],
            principal=session.principal,
        )

    def _finish(self, call: _Call, parts: Sequence[PublishedPart]) -> None:
        self._session.charge(-1, -call.size_bytes)
        try:
            frame = _reply_frame(call, parts)
        except Exception as error:  # noqa: BLE001 - the client learns of it, the broker lives
            refusal = self._session.translate(error, "publish")
            frame = server_frames.refusal(refusal, id=call.frame.id)
        self._session.send(frame)

    async def _publish_later(self, frame: Publish, size_bytes: int) -> bytes:
        if self._order is None:
            self._order = asyncio.Lock()
        async with self._order:
            try:
                call, parts = await self._begin_later(frame, size_bytes)
            finally:
                self._later -= 1
        if parts:
            await asyncio.wait([part.published for part in parts])
        return _reply_frame(call, parts)

    async def _begin_later(self, frame: Publish, size_bytes: int) -> tuple[_Call, list[PublishedPart]]:
        is_large = size_bytes > LARGE_BYTES
        published = await asyncio.to_thread(self._read_body, frame) if is_large else self._read_body(frame)
        parts = await self._session.publisher.begin_async(
            frame.topic,
            published.messages,
            partition=frame.partition,
            acks=ACKS[frame.acks],
            principal=self._session.principal,
        )
        return _Call(frame, published, size_bytes), parts


def _reply_frame(call: _Call, parts: Sequence[PublishedPart]) -> bytes:
    """Return the reply: each message's position or problem, or the problem that all have in
    common.
    """
    found = ordered_results(parts, len(call.published.messages))
    first = found[0] if found else None
    if isinstance(first, SparrowError) and all(
        isinstance(each, SparrowError) and each.args == first.args for each in found
    ):
        return server_frames.refusal(first, id=call.frame.id)
    return server_frames.frame("published", id=call.frame.id, messages=[_member(each) for each in found])


def _member(each: PublishResult) -> object:
    if isinstance(each, Stored):
        return each._asdict()
    return {"error": server_frames.problem(each)}
