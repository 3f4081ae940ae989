"""One Kafka connection: frames in, responses out, in order.

Requests are handled one at a time, as in Kafka, with one exception: while a Produce waits for the
disk, later requests are handled. Its records are in the log already, so the order is kept, and one
sync serves all waiting requests. Responses are sent in the order of the requests. Reading stops
while too much is unhandled, unanswered or unsent, so memory stays bounded.
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

from sparrow.base.transport import write_pieces
from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.access.sessions import Guard
from sparrow.frontends.kafka.frame_receiver import (
    SCRATCH_BYTES,
    SMALL_READ_BYTES,
    FrameReceiver,
    MalformedRequest,
)
from sparrow.frontends.transport.tls import certificate_principal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparrow.broker.access.authz import Principal
    from sparrow.frontends.kafka.codec.responses import Piece
    from sparrow.frontends.kafka.frontend import KafkaFrontend, Listener
    from sparrow.frontends.transport.admission import ConnectionSlot
    from sparrow.frontends.transport.send_budget import Backlog, Reservation

log = logging.getLogger("sparrow.kafka")

_LINGER_S: Final = 5.0
_RESERVED_FROM_BYTES: Final = 4 << 10
"""Smaller frames need no reservation: their memory is bounded by the number of connections."""
_TIME_SLICE_S: Final = 0.01
"""Time for the requests of one connection before the loop runs other tasks."""
_PROGRESS_SHARE: Final = 20
"""An unfinished frame must grow by this fraction (1/20) of its size within the stall timeout."""


class _PendingResponse:
    """An entry in the queue of responses. `pieces` is None until the response is known; [] if none
    is sent.
    """

    __slots__ = ("_begun_at", "_observe", "pieces", "reservation")

    def __init__(self, observe: Callable[[float], None], begun_at: float) -> None:
        self.pieces: list[Piece] | None = None
        self.reservation: Reservation | None = None
        """The memory of the response's records."""
        self._observe = observe
        self._begun_at = begun_at

    def set_pieces(self, pieces: list[Piece]) -> None:
        """Set the response and record its latency, including waits for the disk or for new
        records.
        """
        self.pieces = pieces
        self._observe(perf_counter() - self._begun_at)


class Connection(asyncio.BufferedProtocol):
    """Passes the requests of one connection to `dispatch`. Loop thread only.

    `principal` is the authenticated client; the SASL handlers set it. `state` holds data that
    handlers keep per connection (SASL exchange, fetch statistics), by name.
    """

    __slots__ = (
        "_backlog",
        "_budget",
        "_can_write",
        "_frames",
        "_guard",
        "_is_ending",
        "_is_paused",
        "_last_received_at",
        "_last_sent_at",
        "_loop",
        "_muted_until",
        "_opened_at",
        "_progress_at",
        "_progress_bytes",
        "_received_bytes",
        "_receiver",
        "_reserved_bytes",
        "_responses",
        "_task",
        "_transport",
        "_unmuting",
        "_unsent_before",
        "_waiting_bytes",
        "api_key",
        "frontend",
        "id",
        "is_authenticated",
        "listener",
        "local_host",
        "peer_host",
        "principal",
        "reservation",
        "session_ends_at",
        "slot",
        "state",
    )

    def __init__(self, frontend: KafkaFrontend, listener: Listener, number: int) -> None:
        self.frontend = frontend
        self.listener = listener
        self.id = f"k{number}"
        self.principal: Principal = ANONYMOUS
        self.is_authenticated = not listener.sasl
        self.session_ends_at: float | None = None
        """Deadline for logging in again, on the loop's clock; None: never (KIP-368)."""
        self.api_key = -1
        """The key of the request that was begun last."""
        self.peer_host = ""
        self.local_host = ""
        self.slot: ConnectionSlot | None = None
        self.state: dict[str, Any] = {}
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._guard = Guard(frontend.broker.sessions, self._login_is_over)
        self._budget = frontend.budget if self.is_authenticated else frontend.login_budget
        self._frames: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0
        """The bytes in `_frames`."""
        self._receiver = FrameReceiver(frontend.scratch, self._take)
        self._reserved_bytes = 0
        """Reserved bytes of the receive budget; negative: requested but not granted yet."""
        self._responses: deque[_PendingResponse] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_paused = False
        self._can_write = True
        self._is_ending = False
        self._muted_until = 0.0
        self._unmuting: asyncio.TimerHandle | None = None
        self._opened_at = self._last_received_at = self._progress_at = self._loop.time()
        self._received_bytes = self._progress_bytes = 0
        self._backlog: Backlog | None = None
        self.reservation: Reservation | None = None
        """The memory for the records of the response that is being made."""
        self._unsent_before = 0
        self._last_sent_at = self._opened_at

    @property
    def may_ask(self) -> bool:
        """Return True if the client has logged in where it must, and its session has not ended."""
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
        self.principal = self._with_address(certificate_principal(transport) or ANONYMOUS)
        if not self.frontend.admit(self):
            self._transport.abort()
            return
        self._guard.hold(self.principal)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the frame determines the size
        return self._receiver.buffer(SMALL_READ_BYTES if self._budget.is_tight else SCRATCH_BYTES)

    def buffer_updated(self, nbytes: int) -> None:
        self._last_received_at = self._loop.time()
        self._received_bytes += nbytes
        if self._is_ending:
            self._receiver.forget()
            return
        if self._received_bytes == nbytes and self._rejects_other_protocol(self.frontend.scratch[:nbytes]):
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

    def _rejects_other_protocol(self, first: memoryview) -> bool:
        """Reply to a client of another protocol and close. Return False if the client speaks
        Kafka's.
        """
        found = self.frontend.wrong_port.reply(first, self.peer_host)
        if found is None or self._transport is None:
            return False
        self._is_ending = True
        self._receiver.forget()
        self._transport.write(found[1])
        if found[1] and self._transport.can_write_eof():
            self._transport.write_eof()
            self._loop.call_later(_LINGER_S, self.abort)
        else:
            self._transport.close()
        return True

    def eof_received(self) -> bool:
        self._run(math.inf)  # requests that came before are handled, unless they have to wait
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason is not needed
        self._transport = None
        self._guard.close()
        self._is_ending = True
        self._reserve(0)
        self._forget_frames()
        for response in self._responses:
            if response.reservation is not None:
                response.reservation.give_back()
        self._responses.clear()
        self._receiver.close()
        if self._backlog is not None:
            self._backlog.close()
        if self._task is not None:
            # not before the task's first step: a coroutine that never ran causes a warning
            self._loop.call_soon(self._task.cancel)
        if self._unmuting is not None:
            self._unmuting.cancel()
        self.frontend.dismiss(self)

    def pause_writing(self) -> None:
        self._can_write = False
        self._update_reading()

    def resume_writing(self) -> None:
        self._can_write = True
        self._run()

    def logged_in(self, principal: Principal, session_ends_at: float | None) -> None:
        """Set the authenticated principal and let the connection use the larger budgets."""
        self.principal = self._with_address(principal)
        self.session_ends_at = session_ends_at
        self._guard.hold(self.principal)
        if self.is_authenticated:
            return
        self.is_authenticated = True
        if self.slot is not None:
            self.slot.settle()
        self._reserve(0)
        self._budget = self.frontend.budget
        self._update_reading()
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=self.frontend.limits.write_high_water_bytes)

    def _with_address(self, principal: Principal) -> Principal:
        return replace(principal, host=self.peer_host, listener=self.listener.name)

    def _login_is_over(self, why: str) -> None:
        log.info("connection %s of %s closed: %s", self.id, self.peer_host, why)
        self.abort()

    def resume(self) -> None:
        """Handle the requests that waited until the codec was loaded."""
        self._run()

    # ── requests, one after the other ─────────────────────────────────────────────────────────────

    def _take(self, frame: bytes | memoryview) -> None:
        self._frames.append(frame)
        self._waiting_bytes += len(frame)

    def _forget_frames(self) -> None:
        """Drop received frames. Later bytes are still read and dropped: closing a socket with
        unread bytes would discard the last response.
        """
        self._frames.clear()
        self._waiting_bytes = 0
        self._update_reading()

    def _run(self, slice_s: float = _TIME_SLICE_S) -> None:
        """Begin requests until one has to be waited for or the time slice ends; send finished
        responses.
        """
        slice_ends_at = monotonic() + slice_s
        is_over = False
        while not is_over:
            while self._frames and self._may_begin() and not is_over:
                frame = self._frames.popleft()
                self._waiting_bytes -= len(frame)
                self._begin(frame)
                is_over = monotonic() > slice_ends_at
            self._send_responses()
            if not self._frames or not self._may_begin():
                break
        else:
            self._loop.call_soon(self._run)
        self._update_reading()

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
        if self.is_authenticated and self.slot is not None and not self.slot.is_settled:
            self.slot.settle()
        if begun is None:
            return
        response = _PendingResponse(self.frontend.times[self.api_key], begun_at)
        self._responses.append(response)
        if isinstance(begun, list):
            response.set_pieces(begun)
        elif isinstance(begun, asyncio.Future):
            begun.add_done_callback(partial(self._produce_done, response))
        else:
            self._task = self._loop.create_task(self._work(begun, response))
            self._task.add_done_callback(self._task_done)

    def _may_begin(self) -> bool:
        return (
            self._task is None
            and self._can_write
            and not self._is_ending
            and len(self._responses) < self.frontend.limits.max_unanswered_produces
            and not self._is_muted()
            and self.frontend.is_loaded
        )

    async def _work(
        self, coroutine: Coroutine[Any, Any, list[Piece] | None], response: _PendingResponse
    ) -> None:
        try:
            response.set_pieces(await coroutine or [])
            response.reservation, self.reservation = self.reservation, None
        except MalformedRequest:
            response.pieces = []
            raise
        finally:
            if self.reservation is not None or self._transport is None:
                self._give_back(response)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        # cancelled by us, as the peer is gone; otherwise there is no response to send
        if task.cancelled():
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

    def _give_back(self, response: _PendingResponse) -> None:
        """Release the memory of a response that is not sent."""
        for reservation in (self.reservation, response.reservation):
            if reservation is not None:
                reservation.give_back()
        self.reservation = None

    def _produce_done(self, response: _PendingResponse, future: asyncio.Future[list[Piece]]) -> None:
        """Send the response of a Produce. Its handler converts every failure to an error code, so
        an exception is a bug.
        """
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
        response.set_pieces(future.result())
        if self._responses and self._responses[0] is response:
            self._run()

    def _send_responses(self) -> None:
        responses = self._responses
        if self._transport is None:
            return
        pieces: list[Piece] = []
        reservations: list[Reservation] = []
        while responses and responses[0].pieces is not None:
            response = responses.popleft()
            pieces += response.pieces or ()
            if response.reservation is not None:
                reservations.append(response.reservation)
        if pieces and not self._transport.is_closing():
            write_pieces(self._transport, pieces)
        for reservation in reservations:
            reservation.sent()
        # Checked even if nothing was sent now: the loop decides if the last response or the end of
        # its task comes first.
        if self._is_ending and self.is_settled:
            self._transport.close()

    # ── flow control ──────────────────────────────────────────────────────────────────────────────

    def mute(self, seconds: float) -> None:
        """Begin no requests for `seconds`, to enforce a quota (KIP-219)."""
        until = self._loop.time() + seconds
        if until > self._muted_until:
            self._muted_until = until
            if self._unmuting is not None:
                self._unmuting.cancel()
            self._unmuting = self._loop.call_at(until + 0.001, self._run)

    def _is_muted(self) -> bool:
        return self._muted_until > 0.0 and self._loop.time() < self._muted_until

    def _update_reading(self) -> None:
        """Pause or resume reading."""
        if self._transport is None or self._transport.is_closing():
            return
        should_wait = bool(self._frames) and self._is_full()
        unfinished_bytes = self._receiver.unfinished_bytes
        if unfinished_bytes or self._reserved_bytes:
            # Memory is reserved only for a request that can begin at once: a connection with a
            # reservation must wait for nothing but its peer.
            may_begin = self._may_begin()
            self._reserve(unfinished_bytes if may_begin else 0)
            is_small = unfinished_bytes <= self._max_waiting_bytes
            if not may_begin and not is_small:
                should_wait = True
            self._receiver.may_grow = self._reserved_bytes > 0 or is_small
        should_pause = not self._is_ending and (should_wait or self._reserved_bytes < 0)
        if should_pause and not self._is_paused:
            self._transport.pause_reading()
        elif self._is_paused and not should_pause:
            self._last_received_at = self._progress_at = self._loop.time()
            self._transport.resume_reading()
        self._is_paused = should_pause

    def _is_full(self) -> bool:
        """Return True if no more requests may wait."""
        return (
            len(self._frames) >= self.frontend.limits.max_waiting_requests
            or self._waiting_bytes >= self._max_waiting_bytes
            or not self._can_write
            or self._is_muted()
        )

    @property
    def _max_waiting_bytes(self) -> int:
        """Limit of the bytes of waiting requests; small while memory is scarce, as these bytes are
        not reserved.
        """
        return SMALL_READ_BYTES if self._budget.is_tight else self.frontend.limits.max_waiting_bytes

    def _reserve(self, size_bytes: int) -> None:
        """Replace the reservation of receive memory by one for the unfinished request. Without
        room, reading waits.
        """
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
        self._update_reading()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    @property
    def is_settled(self) -> bool:
        """True if no request is in progress."""
        return self._task is None and not self._responses

    @property
    def backlog(self) -> Backlog:
        """The records that were sent and not taken by the client yet."""
        if self._backlog is None:
            budget = self.frontend.send_budget
            self._backlog = budget.backlog(self._write_buffer_bytes, self._end_slow_reader)
        return self._backlog

    def _write_buffer_bytes(self) -> int:
        """Return the number of bytes that the socket has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _end_slow_reader(self, why: str) -> None:
        log.warning("connection %s of %s closed: %s", self.id, self.peer_host, why)
        self.abort()

    def sweep(self, now: float) -> None:
        """Close the connection if it is idle or too slow, or if the peer does not take its
        responses. A connection that waits for the broker is not idle.
        """
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
        """Return True if an unfinished request makes no progress, or the peer was idle for too
        long.
        """
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
        """Return True if the peer has taken no byte for too long."""
        assert self._transport is not None
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_before or not unsent_bytes:
            self._unsent_before, self._last_sent_at = unsent_bytes, now
            return False
        return (now - self._last_sent_at) * 1000 > self.frontend.limits.idle_timeout_ms

    def finish(self) -> None:
        """Accept no more requests; close when the pending responses have been sent."""
        self._is_ending = True
        self._forget_frames()
        self._send_responses()
        if self.is_settled and self._transport is not None:
            self._transport.close()

    def close_after(self, seconds: float) -> None:
        """Accept no more requests; close after a delay, so that the last response is read and
        guessing is slow.
        """
        self._is_ending = True
        self._forget_frames()
        self._loop.call_later(seconds, self.finish)

    def fail(self, why: str) -> None:
        """Close after a protocol violation; pending requests are answered first."""
        log.warning("connection %s of %s closed: %s", self.id, self.peer_host, why)
        self._receiver.forget()
        self._reserve(0)
        self.finish()
        self._loop.call_later(_LINGER_S, self.abort)

    def abort(self) -> None:
        """Close at once."""
        self._is_ending = True
        if self._transport is not None:
            self._transport.abort()


def _host(address: Any) -> str:
    return str(address[0]) if isinstance(address, tuple) else ""
