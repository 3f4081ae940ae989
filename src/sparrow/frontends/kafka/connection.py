"""One connection: frames in, answers out, in order.

Strategy: requests are handled one at a time, as Kafka does, except that a Produce may wait for the disk while later requests are
handled: its records are in the log already, so the order is kept, and one sync serves all that wait. Answers leave in
the order of the requests. Reading stops while too much is unhandled, unanswered or unsent, so memory stays bounded.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from dataclasses import replace
from functools import partial
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from sparrow.broker.access.authz import ANONYMOUS
from sparrow.frontends.kafka.framing import FrameReceiver
from sparrow.frontends.kafka.malformed import MalformedRequest
from sparrow.frontends.tls import certificate_principal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparrow.broker.access.authz import Principal
    from sparrow.frontends.kafka.codec.responses import Piece
    from sparrow.frontends.kafka.frontend import KafkaFrontend, Listener

log = logging.getLogger("sparrow.kafka")

_LAST_WORDS_S: Final = 5.0
_RESERVED_FROM_BYTES: Final = 4 << 10
"""Smaller frames need no reservation: so many bytes per connection are bounded by the number of connections."""
_TURN_S: Final = 0.01
"""How long a connection's requests are worked on before the loop does something else."""
_PROGRESS_SHARE: Final = 20
"""An unfinished frame must grow by this part of its size within the stall time-out."""


class _Answer:
    """A place in the order of answers. `pieces` is None until it is known; [] where none is sent."""

    __slots__ = ("_begun_at", "_observe", "pieces")

    def __init__(self, observe: Callable[[float], None], begun_at: float) -> None:
        self.pieces: list[Piece] | None = None
        self._observe = observe
        self._begun_at = begun_at

    def is_known(self, pieces: list[Piece]) -> None:
        """Set it; the time that it took is counted, the wait for the disk or for new records included."""
        self.pieces = pieces
        self._observe(perf_counter() - self._begun_at)


class Connection(asyncio.BufferedProtocol):
    """Feeds requests to `dispatch`. Loop thread only.

    `principal` is who speaks; the SASL handlers set it. `state` is a place for what handlers keep per connection (SASL exchange,
    fetch statistics), by name.
    """

    def __init__(self, frontend: KafkaFrontend, listener: Listener, number: int) -> None:
        self.frontend = frontend
        self.listener = listener
        self.id = f"k{number}"
        self.principal: Principal = ANONYMOUS
        self.is_authenticated = not listener.sasl
        self.session_ends_at: float | None = None
        """When the client must have logged in again, on the loop's clock; None: never (KIP-368)."""
        self.software = ""
        """Name and version that the client gave in ApiVersions (KIP-511)."""
        self.api_key = -1
        """Of the request that was begun last."""
        self.peer_host = ""
        self.local_host = ""
        self.state: dict[str, Any] = {}
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._budget = frontend.budget if self.is_authenticated else frontend.login_budget
        self._frames: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0
        """Of `_frames`."""
        self._receiver = FrameReceiver(frontend.scratch, self._take)
        self._reserved_bytes = 0
        """Of the receive budget; negative: asked for, not granted yet."""
        self._answers: deque[_Answer] = deque()
        self._working: asyncio.Task[None] | None = None
        self._is_paused = False
        self._can_write = True
        self._is_ending = False
        self._muted_until = 0.0
        self._unmuting: asyncio.TimerHandle | None = None
        self._opened_at = self._last_received_at = self._progress_at = self._loop.time()
        self._received_bytes = self._progress_bytes = 0
        self._unsent_before = 0
        self._last_sent_at = self._opened_at

    @property
    def may_ask(self) -> bool:
        """Whether the client has logged in where it must, and its session has not ended."""
        ends_at = self.session_ends_at
        return self.is_authenticated and (ends_at is None or self._loop.time() < ends_at)

    # ── called by the transport ───────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        limits = self.frontend.limits
        self._transport.set_write_buffer_limits(
            high=limits.write_high_water_bytes
            if self.is_authenticated
            else limits.unauthenticated_write_high_water_bytes
        )
        self.peer_host = _host(transport.get_extra_info("peername"))
        self.local_host = _host(transport.get_extra_info("sockname"))
        self.principal = replace(certificate_principal(transport) or ANONYMOUS, host=self.peer_host)
        if not self.frontend.admit(self):
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the frame says what is wanted
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._last_received_at = self._loop.time()
        self._received_bytes += nbytes
        if self._is_ending:
            self._receiver.forget()
            return
        limits = self.frontend.limits
        limit = (
            limits.max_request_bytes if self.is_authenticated else limits.max_unauthenticated_request_bytes
        )
        try:
            self._receiver.received(nbytes, limit)
        except MalformedRequest as error:
            self._run()
            self.fail(str(error))
            return
        self._run()

    def eof_received(self) -> bool:
        self._run(math.inf)  # what was sent before is done, as far as it has to wait for nothing
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self._transport = None
        self._is_ending = True
        self._reserve(0)
        self._forget_frames()
        self._answers.clear()
        if self._working is not None:
            # Not before its first step: a coroutine that never ran leaves warnings behind.
            self._loop.call_soon(self._working.cancel)
        if self._unmuting is not None:
            self._unmuting.cancel()
        self.frontend.dismiss(self)

    def pause_writing(self) -> None:
        self._can_write = False
        self._balance()

    def resume_writing(self) -> None:
        self._can_write = True
        self._run()

    def logged_in(self, principal: Principal, session_ends_at: float | None) -> None:
        """Who speaks is proved; from now on it is trusted with more of the broker's memory."""
        self.principal = replace(principal, host=self.peer_host)
        self.session_ends_at = session_ends_at
        if self.is_authenticated:
            return
        self.is_authenticated = True
        self._reserve(0)
        self._budget = self.frontend.budget
        self._balance()
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=self.frontend.limits.write_high_water_bytes)

    def resume(self) -> None:
        """Go on with requests that had to wait for the door."""
        self._run()

    # ── requests, one after the other ─────────────────────────────────────────────────────────────

    def _take(self, frame: bytes | memoryview) -> None:
        self._frames.append(frame)
        self._waiting_bytes += len(frame)

    def _forget_frames(self) -> None:
        """The end: what still comes is read and dropped, as closing a socket with unread bytes takes the last answer away."""
        self._frames.clear()
        self._waiting_bytes = 0
        self._balance()

    def _run(self, turn_s: float = _TURN_S) -> None:
        """Begin requests until one has to be waited for, or others want their turn; send what is answered."""
        turn_ends_at = monotonic() + turn_s
        is_over = False
        while not is_over:
            while self._frames and self._may_begin() and not is_over:
                frame = self._frames.popleft()
                self._waiting_bytes -= len(frame)
                self._begin(frame)
                is_over = monotonic() > turn_ends_at
            self._send_answers()
            if not self._frames or not self._may_begin():
                break
        else:
            self._loop.call_soon(self._run)
        self._balance()

    def _begin(self, frame: bytes | memoryview) -> None:
        begun_at = perf_counter()
        try:
            begun = self.frontend.begin(self, frame)
        except MalformedRequest as error:
            self.fail(str(error))
            return
        except Exception:
            log.exception("connection %s of %s: a request failed", self.id, self.peer_host)
            self.abort()
            return
        if begun is None:
            return
        answer = _Answer(self.frontend.times[self.api_key], begun_at)
        self._answers.append(answer)
        if isinstance(begun, list):
            answer.is_known(begun)
        elif isinstance(begun, asyncio.Future):
            begun.add_done_callback(partial(self._settled, answer))
        else:
            self._working = self._loop.create_task(self._work(begun, answer))
            self._working.add_done_callback(self._worked)

    def _may_begin(self) -> bool:
        return (
            self._working is None
            and self._can_write
            and not self._is_ending
            and len(self._answers) < self.frontend.limits.max_unanswered_produces
            and not self._is_muted()
            and self.frontend.is_loaded
        )

    async def _work(self, coroutine: Coroutine[Any, Any, list[Piece] | None], answer: _Answer) -> None:
        try:
            answer.is_known(await coroutine or [])
        except MalformedRequest:
            answer.pieces = []
            raise

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._working = None
        if task.cancelled():  # by us, as the peer is gone; else it is nothing that could be answered
            self.abort()
            return
        error = task.exception()
        if error is not None:
            if isinstance(error, MalformedRequest):
                self.fail(str(error))
            else:
                log.error("connection %s of %s: a request failed", self.id, self.peer_host, exc_info=error)
                self.abort()
            return
        self._run()

    def _settled(self, answer: _Answer, future: asyncio.Future[list[Piece]]) -> None:
        """A Produce has its answer. Its handler turns every failure into a code, so an exception is a bug."""
        if self._transport is None:
            return
        if future.cancelled():
            self.abort()
            return
        error = future.exception()
        if error is not None:
            log.error("connection %s of %s: a produce failed", self.id, self.peer_host, exc_info=error)
            self.abort()
            return
        answer.is_known(future.result())
        if self._answers and self._answers[0] is answer:
            self._run()

    def _send_answers(self) -> None:
        answers = self._answers
        if not answers or answers[0].pieces is None or self._transport is None:
            return
        pieces: list[Piece] = []
        while answers and answers[0].pieces is not None:
            pieces += answers.popleft().pieces or ()
        if pieces and not self._transport.is_closing():
            self._transport.writelines(pieces)
        if self._is_ending and not answers and self._working is None:
            self._transport.close()

    # ── flow control ──────────────────────────────────────────────────────────────────────────────

    def mute(self, seconds: float) -> None:
        """Begin no request for so long: how a quota is enforced (KIP-219)."""
        until = self._loop.time() + seconds
        if until > self._muted_until:
            self._muted_until = until
            if self._unmuting is not None:
                self._unmuting.cancel()
            self._unmuting = self._loop.call_at(until + 0.001, self._run)

    def _is_muted(self) -> bool:
        return self._muted_until > 0.0 and self._loop.time() < self._muted_until

    def _balance(self) -> None:
        """Read, or do not."""
        if self._transport is None or self._transport.is_closing():
            return
        should_wait = bool(self._frames) and self._has_enough()
        unfinished_bytes = self._receiver.unfinished_bytes
        if unfinished_bytes or self._reserved_bytes:
            # Memory is reserved for a request whose turn has come: who has some must not wait for anything but its peer.
            is_its_turn = self._may_begin()
            self._reserve(unfinished_bytes if is_its_turn else 0)
            if not is_its_turn and unfinished_bytes > self.frontend.limits.max_waiting_bytes:
                should_wait = True
        should_pause = not self._is_ending and (should_wait or self._reserved_bytes < 0)
        if should_pause and not self._is_paused:
            self._transport.pause_reading()
        elif self._is_paused and not should_pause:
            self._last_received_at = self._progress_at = self._loop.time()
            self._transport.resume_reading()
        self._is_paused = should_pause

    def _has_enough(self) -> bool:
        """Whether the requests that wait are as many as may."""
        limits = self.frontend.limits
        return (
            len(self._frames) >= limits.max_waiting_requests
            or self._waiting_bytes >= limits.max_waiting_bytes
            or not self._can_write
            or self._is_muted()
        )

    def _reserve(self, size_bytes: int) -> None:
        """Exchange the reservation of the receive budget for one of the unfinished request; without room, reading waits."""
        if size_bytes < _RESERVED_FROM_BYTES:
            size_bytes = 0
        if size_bytes == abs(self._reserved_bytes):
            return
        if self._reserved_bytes < 0:
            self._budget.withdraw(self._granted)
        elif self._reserved_bytes:
            self._budget.release(self._reserved_bytes)
        self._reserved_bytes = 0
        if size_bytes and not self._budget.reserve(size_bytes, self._granted):
            self._reserved_bytes = -size_bytes
        elif size_bytes:
            self._reserved_bytes = size_bytes

    def _granted(self) -> None:
        self._reserved_bytes = -self._reserved_bytes
        self._balance()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    @property
    def is_settled(self) -> bool:
        """Nothing is being worked on."""
        return self._working is None and not self._answers

    @property
    def unsent_bytes(self) -> int:
        """Of answers that the socket has not taken."""
        if self._transport is None:
            return 0
        waiting = sum(len(piece) for answer in self._answers for piece in answer.pieces or ())
        return waiting + self._transport.get_write_buffer_size()

    def sweep(self, now: float) -> None:
        """Close a connection that is silent for too long, too slow, or takes nothing of what it is sent. One that waits for us is not
        silent."""
        limits = self.frontend.limits
        if self._transport is None:
            return
        if (
            self._is_stuck(now)
            or (not self.is_authenticated and (now - self._opened_at) * 1000 > limits.login_timeout_ms)
            or (not self._is_paused and self._is_late(now))
        ):
            self.abort()

    def _is_late(self, now: float) -> bool:
        """Whether the peer makes no progress with a request that it began, or has been silent for too long."""
        limits = self.frontend.limits
        if not self._receiver.is_between_frames:
            wanted_bytes = max(1, self._receiver.unfinished_bytes // _PROGRESS_SHARE)
            if self._received_bytes - self._progress_bytes >= wanted_bytes:
                self._progress_bytes, self._progress_at = self._received_bytes, now
            return (now - self._progress_at) * 1000 > limits.stall_timeout_ms
        self._progress_bytes, self._progress_at = self._received_bytes, now
        is_idle = self.is_settled and not self._frames
        return is_idle and (now - self._last_received_at) * 1000 > limits.idle_timeout_ms

    def _is_stuck(self, now: float) -> bool:
        """Whether the peer has taken no byte for too long. There is less patience while others need the memory."""
        assert self._transport is not None
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_before or not unsent_bytes:
            self._unsent_before, self._last_sent_at = unsent_bytes, now
            return False
        limits = self.frontend.limits
        silent_ms = (now - self._last_sent_at) * 1000
        return silent_ms > limits.idle_timeout_ms or (
            silent_ms > limits.stall_timeout_ms and self.frontend.outbox.is_full
        )

    def finish(self) -> None:
        """Take no more requests; close when the answers that are due have been sent."""
        self._is_ending = True
        self._forget_frames()
        self._send_answers()
        if self.is_settled and self._transport is not None:
            self._transport.close()

    def close_after(self, seconds: float) -> None:
        """Take no more requests; close a little later, so that the last answer is read and guessing is slow."""
        self._is_ending = True
        self._forget_frames()
        self._loop.call_later(seconds, self.finish)

    def fail(self, why: str) -> None:
        """The peer does not speak the protocol: close. What was asked before is answered first."""
        log.warning("connection %s of %s closed: %s", self.id, self.peer_host, why)
        self._receiver.forget()
        self._reserve(0)
        self.finish()
        self._loop.call_later(_LAST_WORDS_S, self.abort)

    def abort(self) -> None:
        """Close now."""
        self._is_ending = True
        if self._transport is not None:
            self._transport.abort()


def _host(address: Any) -> str:
    return str(address[0]) if isinstance(address, tuple) else ""
