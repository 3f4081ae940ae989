"""One Kafka connection: frames in, responses out, in order.

Requests are handled one at a time, as in Kafka, with one exception: while a Produce waits for the
disk, later requests are handled. Its records are in the log already, so the order is kept, and one
sync serves all waiting requests. Responses are sent in the order of the requests. Reading stops
while too much is unhandled, unanswered or unsent, so memory stays bounded.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import replace
from functools import partial
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final

from sparrow.broker.access.authz import ANONYMOUS
from sparrow.frontends.kafka.frame_receiver import (
    SCRATCH_BYTES,
    SMALL_READ_BYTES,
    FrameReceiver,
    MalformedRequest,
)
from sparrow.frontends.transport.connection import Connection, PauseReason
from sparrow.frontends.transport.tls import certificate_principal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparrow.broker.access.authz import Principal
    from sparrow.frontends.kafka.codec.responses import Piece
    from sparrow.frontends.kafka.context import KafkaContext, Listener
    from sparrow.frontends.transport.send_budget import Reservation

_LINGER_S: Final = 5.0
"""Time for pending responses after a violation of the protocol."""
_TIME_SLICE_S: Final = 0.01
"""Time for the requests of one connection before the loop runs other tasks."""
_FULL: Final = 8
"""The reason to pause reading while no more requests may wait; see `PauseReason`."""


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


class KafkaConnection(Connection["KafkaContext"], asyncio.BufferedProtocol):
    """Passes the requests of one connection to `dispatch`. Loop thread only.

    `principal` is the authenticated client; the SASL handlers set it. `state` holds data that
    handlers keep per connection (SASL exchange, fetch statistics), by name.
    """

    __slots__ = (
        "_frames",
        "_muted_until",
        "_receiver",
        "_responses",
        "_task",
        "_unmuting",
        "_waiting_bytes",
        "api_key",
        "id",
        "limits",
        "listener",
        "local_host",
        "principal",
        "reservation",
        "session_ends_at",
        "state",
    )

    uncounted_bytes = (4 << 10) - 1

    def __init__(self, context: KafkaContext, listener: Listener) -> None:
        super().__init__(context)
        self.limits = context.limits
        self.listener = listener
        self.id = f"k{next(context.connection_numbers)}"
        self.principal: Principal = ANONYMOUS
        self.is_known = not listener.sasl
        self.session_ends_at: float | None = None
        """Deadline for logging in again, on the loop's clock; None: never (KIP-368)."""
        self.api_key = -1
        """The key of the request that was begun last."""
        self.local_host = ""
        self.state: dict[str, Any] = {}
        if not self.is_known:
            self.receive_budget = context.login_budget
        self._frames: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0
        """The bytes in `_frames`."""
        self._receiver = FrameReceiver(context.scratch, self._take)
        self._responses: deque[_PendingResponse] = deque()
        self._task: asyncio.Task[None] | None = None
        self._muted_until = 0.0
        self._unmuting: asyncio.TimerHandle | None = None
        self.reservation: Reservation | None = None
        """The memory for the records of the response that is being made."""

    @property
    def may_ask(self) -> bool:
        """Return True if the client has logged in where it must, and its session has not ended."""
        ends_at = self.session_ends_at
        return self.is_known and (ends_at is None or self.context.loop.time() < ends_at)

    # ── called by the transport ───────────────────────────────────────────────────────────────────

    def opened(self) -> None:
        assert self.transport is not None
        if not self.is_known:
            self.transport.set_write_buffer_limits(high=self.limits.unauthenticated_write_high_water_bytes)
        address = self.transport.get_extra_info("sockname")
        self.local_host = str(address[0]) if isinstance(address, tuple) else ""
        self.principal = self._with_address(certificate_principal(self.transport) or ANONYMOUS)
        self.guard.hold(self.principal)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the frame determines the size
        return self._receiver.buffer(SMALL_READ_BYTES if self.receive_budget.is_tight else SCRATCH_BYTES)

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_leaving or (not self.received_bytes and self.is_stranger(self.context.scratch[:nbytes])):
            self._receiver.forget()
            return
        self.received_bytes += nbytes
        limits = self.limits
        limit = limits.max_request_bytes if self.is_known else limits.max_unauthenticated_request_bytes
        try:
            self._receiver.received(nbytes, limit)
        except MalformedRequest as error:
            self._run()
            self.fail(str(error))
            return
        self._run()

    def eof_received(self) -> bool:
        self._run(math.inf)  # requests that came before are handled, unless they have to wait
        return False

    def lost(self) -> None:
        self._frames.clear()
        for response in self._responses:
            if response.reservation is not None:
                response.reservation.give_back()
        self._responses.clear()
        self._receiver.close()
        if self._task is not None:
            # not before the task's first step: a coroutine that never ran causes a warning
            self.context.loop.call_soon(self._task.cancel)
        if self._unmuting is not None:
            self._unmuting.cancel()
        self.context.share_members.disconnected(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._update_reading()

    def writable(self) -> None:
        self._run()

    def logged_in(self, principal: Principal, session_ends_at: float | None) -> None:
        """Set the authenticated principal and let the connection use the larger budgets."""
        self.principal = self._with_address(principal)
        self.session_ends_at = session_ends_at
        self.guard.hold(self.principal)
        if self.is_known:
            return
        self.is_known = True
        if self.slot is not None:
            self.slot.settle()
        self.reserve_input(0)
        self.receive_budget = self.context.receive_budget
        self._update_reading()
        if self.transport is not None:
            self.transport.set_write_buffer_limits(high=self.context.write_high_water_bytes)

    def _with_address(self, principal: Principal) -> Principal:
        return replace(principal, host=self.host, listener=self.listener.name)

    def _resume(self) -> None:
        """Handle the requests that waited until the broker was current."""
        if self.transport is not None:
            self._run()

    def resume(self) -> None:
        """Handle the requests that waited until the codec was loaded."""
        self._run()

    # ── requests, one after the other ─────────────────────────────────────────────────────────────

    def _take(self, frame: bytes | memoryview) -> None:
        self._frames.append(frame)
        self._waiting_bytes += len(frame)

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
            self.context.loop.call_soon(self._run)
        self._update_reading()

    def _begin(self, frame: bytes | memoryview) -> None:
        begun_at = perf_counter()
        try:
            begun = self.context.begin(self, frame)
        except MalformedRequest as error:
            self.fail(str(error))
            return
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, not the broker
            self._failed(error)
            return
        if self.is_known and self.slot is not None and not self.slot.is_settled:
            self.slot.settle()
        if begun is None:
            return
        response = _PendingResponse(self.context.times[self.api_key], begun_at)
        self._responses.append(response)
        if isinstance(begun, list):
            response.set_pieces(begun)
        elif isinstance(begun, asyncio.Future):
            begun.add_done_callback(partial(self._produce_done, response))
        else:
            self._task = self.context.loop.create_task(self._work(begun, response))
            self._task.add_done_callback(self._task_done)

    def _may_begin(self) -> bool:
        return (
            self._task is None
            and not self._pause_reasons & PauseReason.WRITE
            and not self.is_leaving
            and len(self._responses) < self.limits.max_unanswered_produces
            and not self._is_muted()
            and self.context.is_loaded
            and self.context.may_answer(self._resume)
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
            if self.reservation is not None or self.transport is None:
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
                self.context.logger.error(
                    "connection %s of %s: a request failed", self.id, self.host, exc_info=error
                )
                self.abort()
            return
        self._run()

    def _failed(self, error: BaseException) -> None:
        """Close after a bug in a handler."""
        self.context.logger.error("connection %s of %s: a request failed", self.id, self.host, exc_info=error)
        self.abort()

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
        if self.transport is None:
            return
        if future.cancelled():
            self.abort()
            return
        error = future.exception()
        if error is not None:
            self.context.logger.error(
                "connection %s of %s: a produce failed", self.id, self.host, exc_info=error
            )
            self.abort()
            return
        response.set_pieces(future.result())
        if self._responses and self._responses[0] is response:
            self._run()

    def _send_responses(self) -> None:
        responses = self._responses
        if self.transport is None:
            return
        pieces: list[Piece] = []
        reservations: list[Reservation] = []
        while responses and responses[0].pieces is not None:
            response = responses.popleft()
            pieces += response.pieces or ()
            if response.reservation is not None:
                reservations.append(response.reservation)
        if pieces:
            self.write(pieces)
        for reservation in reservations:
            reservation.sent()
        # Checked even if nothing was sent now: the loop decides if the last response or the end of
        # its task comes first.
        if self.is_leaving and self.is_settled:
            self.close()

    # ── flow control ──────────────────────────────────────────────────────────────────────────────

    def mute(self, seconds: float) -> None:
        """Begin no requests for `seconds`, to enforce a quota (KIP-219)."""
        until = self.context.loop.time() + seconds
        if until > self._muted_until:
            self._muted_until = until
            if self._unmuting is not None:
                self._unmuting.cancel()
            self._unmuting = self.context.loop.call_at(until + 0.001, self._run)

    def _is_muted(self) -> bool:
        return self._muted_until > 0.0 and self.context.loop.time() < self._muted_until

    def granted(self) -> None:
        super().granted()
        self._update_reading()

    def _update_reading(self) -> None:
        """Pause or resume reading."""
        if self.is_leaving:
            return
        is_full = bool(self._frames) and self._is_full()
        unfinished_bytes = self._receiver.unfinished_bytes
        if unfinished_bytes or self._reserved_bytes:
            # Memory is reserved only for a request that can begin at once: a connection with a
            # reservation must wait for nothing but its peer.
            may_begin = self._may_begin()
            self.reserve_input(unfinished_bytes if may_begin else 0)
            is_small = unfinished_bytes <= self._max_waiting_bytes
            is_full = is_full or (not may_begin and not is_small)
            has_memory = self._reserved_bytes > 0 and not self._pause_reasons & PauseReason.BUDGET
            self._receiver.may_grow = has_memory or is_small
        if is_full:
            self.pause_reading(_FULL)
        elif self._pause_reasons & _FULL:
            self.resume_reading(_FULL)

    def _is_full(self) -> bool:
        """Return True if no more requests may wait."""
        return (
            len(self._frames) >= self.limits.max_waiting_requests
            or self._waiting_bytes >= self._max_waiting_bytes
            or not self.can_write
            or self._is_muted()
        )

    @property
    def _max_waiting_bytes(self) -> int:
        """Limit of the bytes of waiting requests; small while memory is scarce, as these bytes are
        not reserved.
        """
        return SMALL_READ_BYTES if self.receive_budget.is_tight else self.limits.max_waiting_bytes

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    @property
    def unfinished_bytes(self) -> int:
        return 0 if self._receiver.is_between_frames else max(1, self._receiver.unfinished_bytes)

    @property
    def is_settled(self) -> bool:
        """True if no request is in progress."""
        return self._task is None and not self._responses

    @property
    def has_work(self) -> bool:
        return not self.is_settled or bool(self._frames)

    def leave(self) -> None:
        super().leave()
        self._frames.clear()
        self._waiting_bytes = 0
        self._receiver.forget()

    def finish(self) -> None:
        """Accept no more requests; close when the pending responses have been sent."""
        self.leave()
        self._send_responses()

    def close_after(self, seconds: float) -> None:
        """Accept no more requests; close after a delay, so that the last response is read and
        guessing is slow.
        """
        self.leave()
        self.context.loop.call_later(seconds, self.finish)

    def fail(self, why: str) -> None:
        """Close after a protocol violation; pending requests are answered first."""
        self.context.logger.warning("connection %s of %s closed: %s", self.id, self.host, why)
        self.finish()
        self.context.loop.call_later(_LINGER_S, self.abort)
