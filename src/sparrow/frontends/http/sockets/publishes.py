"""Publishing over a socket: messages in, where each is stored out, in the order in which the frames came.

What goes to a topic that is there is appended when its frame is read, so the order of frames is the order in the log, and as many may be under way as the client likes, up to a limit
(then the connection is not read from until some are answered). Only a topic that must be made first, and a large frame, which a thread reads, take time before the append; frames behind them wait their turn.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.broker.partition import ACKS_ALL
from sparrow.frontends.http.records import MESSAGES_JSON, Posted, messages_of
from sparrow.frontends.http.sockets import answers
from sparrow.frontends.publishing import Part, Stored, ordered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.frontends.http.sockets.messages import Publish
    from sparrow.frontends.http.sockets.session import Session
    from sparrow.frontends.publishing import Answer

LARGE_BYTES: Final = 64 << 10
"""Frames of more are read in a thread."""
ACKS: Final = {"all": ACKS_ALL, "leader": 1, "none": 0}


class _Call(NamedTuple):
    frame: Publish
    posted: Posted
    size_bytes: int


class Publishes:
    """Those of one socket. Loop thread only."""

    __slots__ = ("_later", "_order", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._order: asyncio.Lock | None = None
        """Held while a topic is made, or a large frame is read."""
        self._later = 0
        """Frames that are not appended yet."""

    def take(self, frame: Publish, size_bytes: int) -> None:
        """Publish what a frame has; it is answered when it is stored.

        Raises:
            BadInput: of the frame as a whole.
            UnknownTopic, UnknownPartition, NotAuthorized
        """
        is_large = size_bytes > LARGE_BYTES
        if self._later or is_large or self._session.broker.topics.find(frame.topic) is None:
            self._later += 1
            self._session.spawn(partial(self._publish_later, frame, size_bytes), frame, size_bytes)
        else:
            self._begin(_Call(frame, self._posted(frame), size_bytes))

    def _posted(self, frame: Publish) -> Posted:
        one, many = bytes(frame.message), bytes(frame.messages)
        if bool(one) == bool(many):
            raise InvalidArgument("publish takes either message, an object, or messages, a list of them")
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

    def _append(self, call: _Call) -> list[Part]:
        frame, session = call.frame, self._session
        return session.publisher.begin(
            frame.topic,
            call.posted.messages,
            partition=frame.partition,
            acks=ACKS[frame.acks],
            principal=session.principal,
        )

    def _finish(self, call: _Call, parts: Sequence[Part]) -> None:
        self._session.charge(-1, -call.size_bytes)
        try:
            frame = _answer(call, parts)
        except Exception as error:  # noqa: BLE001 - the client learns of it, the broker lives
            told = self._session.translate(error, "publish")
            frame = answers.refusal(told, id=call.frame.id)
        self._session.send(frame)

    async def _publish_later(self, frame: Publish, size_bytes: int) -> bytes:
        if self._order is None:
            self._order = asyncio.Lock()
        async with self._order:
            try:
                call, parts = await self._begun_later(frame, size_bytes)
            finally:
                self._later -= 1
        if parts:
            await asyncio.wait([part.published for part in parts])
        return _answer(call, parts)

    async def _begun_later(self, frame: Publish, size_bytes: int) -> tuple[_Call, list[Part]]:
        is_large = size_bytes > LARGE_BYTES
        posted = await asyncio.to_thread(self._posted, frame) if is_large else self._posted(frame)
        parts = await self._session.publisher.begin_aside(
            frame.topic,
            posted.messages,
            partition=frame.partition,
            acks=ACKS[frame.acks],
            principal=self._session.principal,
        )
        return _Call(frame, posted, size_bytes), parts


def _answer(call: _Call, parts: Sequence[Part]) -> bytes:
    """The frame that answers: each message's place or problem, or the one problem that all have."""
    found = ordered(parts, len(call.posted.messages))
    first = found[0] if found else None
    if isinstance(first, SparrowError) and all(
        isinstance(each, SparrowError) and each.args == first.args for each in found
    ):
        return answers.refusal(first, id=call.frame.id)
    return answers.answer("published", id=call.frame.id, messages=[_member(each) for each in found])


def _member(each: Answer) -> object:
    if isinstance(each, Stored):
        return each._asdict()
    return {"error": answers.problem(each)}
