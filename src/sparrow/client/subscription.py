"""A subscription: delivers records in order per partition, and survives lost connections.

- **Reading.** Message by message (`async for message in sub`), in batches (`sub.batches()`), or by
  number (`sub.pull`). All three share one position, so they may be mixed. One task reads at a time.
- **Lost connection.** Reading continues at the first record that was not handed out; no record is
  handed out twice or left out.
- **Groups.** `commit="manual"`: `commit()` commits what was handed out. `commit="auto"`: at
  intervals, at a revocation and at the end, what was handed out before the last step is committed,
  so a consumer that crashes gets its last message or batch again (at least once). A partition that
  the group takes back is given up when the user has taken the next step, so that records in hand
  can be finished and committed; that wait is bounded by half the rebalance timeout.
- **Unreadable batches.** `on_corrupt="fail"`: records before it are handed out, then each step
  raises `CorruptBatch` with the position. "skip": the batch is logged and counted
  (`skipped_batches`), and reading continues behind it.
- **Memory.** At most `prefetch_bytes` of batches wait (and one DELIVER beyond). The bound is
  credit, returned in halves.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sparrow.base.errors import (
    ConnectionLost,
    InvalidArgument,
    OffsetOutOfRange,
    SparrowError,
    StaleMember,
    TimedOut,
    UnknownMember,
    from_code,
)
from sparrow.base.forks import used_after_fork, watch
from sparrow.base.retry import Backoff
from sparrow.base.units import counted
from sparrow.client.batch import copy_of
from sparrow.client.fetch_buffer import FetchBuffer
from sparrow.client.options import parse_start
from sparrow.client.requests import PendingRequests
from sparrow.client.selection import TopicSelection
from sparrow.protocol.native.messages import (
    Assigned,
    Close,
    Closed,
    Commit,
    Credit,
    Deliver,
    Error,
    Head,
    OffsetCommit,
    Pull,
    Pulled,
    Response,
    Revoke,
    Revoked,
    Subscribe,
    Subscribed,
    Update,
)
from sparrow.records.readable import SKIP

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
    from types import TracebackType

    from sparrow.client.connection import Connection
    from sparrow.client.options import StartAt, SubscribeOptions
    from sparrow.client.session import Session
    from sparrow.records.record import Record
    from sparrow.records.topic_partition import TopicPartition

    OnAssigned = Callable[[list[tuple[str, int, int]]], Awaitable[None] | None]
    OnRevoked = Callable[[list[TopicPartition], str], Awaitable[None] | None]

T = TypeVar("T")
_logger = logging.getLogger("sparrow.client")

LOST = "LOST"
"""The reason of a revocation that was discovered on a new connection."""
_PULL_RECORDS = 1000
_PULL_WAIT_S = 30.0
_PULL_GRACE_S = 5.0
"""The most that the response to a pull may take beyond its wait."""


class Subscription:
    """Records of topics and patterns, made by `client.subscribe(…)`; use it as `async with`, or
    `await start()` and `close()`. Loop thread only.
    """

    def __init__(
        self,
        session: Session,
        topics: Sequence[str],
        start: StartAt,
        options: SubscribeOptions,
        *,
        positions: dict[TopicPartition, int] | None = None,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
        on_close: Callable[[Subscription], None] | None = None,
    ) -> None:
        """Create a subscription that is not started. `positions` are offsets to start at, for some
        partitions.
        """
        self.options = options
        self._session = session
        self._loop = session.loop
        self._selection = TopicSelection(topics, parse_start(start))
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_close = on_close
        self.buffer = FetchBuffer(skips_corrupt=options.on_corrupt == SKIP)
        """Received records and the positions of the user; for callers that iterate by `advance`."""
        self._requests = PendingRequests(self._loop)
        self._connection: Connection | None = None
        self._channel = 0
        self._sent_version = -1
        self._is_started = False
        self._is_open = False
        self._was_open = False
        self._is_closed = False
        self._refusal: SparrowError | None = None
        """The error with which the broker last refused to open the channel."""
        self._member_id = ""
        self._positions = positions
        """Offsets to continue at after a lost connection; None before the first."""
        self._former: set[TopicPartition] = set()
        self._failure: SparrowError | None = None
        self._changed = asyncio.Event()
        self._was_assigned = asyncio.Event()
        self._arrivals: dict[asyncio.Future[None], None] = {}
        self._is_idle = False
        self._stepped = asyncio.Event()
        self._pull_reply: asyncio.Future[Any] | None = None
        self._closed: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._backoff = Backoff(session.options.backoff_initial_s, session.options.backoff_max_s)
        watch(self)

    def forked(self, parent: int) -> None:
        """Handle a fork; see `sparrow.base.forks`."""
        self._failure = used_after_fork(f"the subscription to {', '.join(self.topics)}", parent)
        self._connection = None
        self._is_open = False
        self.buffer.empty()

    def __repr__(self) -> str:
        group = f", group {self.options.group!r}" if self.options.group else ""
        names = ", ".join(map(repr, self.topics))
        return f"<Subscription to {names} of {self._session.address}{group}, {self._state}>"

    @property
    def _state(self) -> str:
        if self._session.is_forked:
            return self._session.state
        if self._is_closed:
            return "closed"
        if self._failure is not None:
            return f"ended by {self._failure.code}"
        if not self._is_started:
            return "not started"
        partitions = sum(cursor.is_assigned for cursor in self.buffer.cursors.values())
        return f"{'open' if self._is_open else 'connecting again'}, {counted(partitions, 'partition')}"

    # ── lifecycle ─────────────────────────────────────────────────────────────────────────────────

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now: (topic, partition)."""
        return sorted(key for key, cursor in self.buffer.cursors.items() if cursor.is_assigned)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to hand out, by partition."""
        self.buffer.to_commit(only_processed=False)
        return {key: cursor.handed for key, cursor in self.buffer.cursors.items() if cursor.is_assigned}

    @property
    def skipped_batches(self) -> int:
        """Number of unreadable batches that were skipped (`on_corrupt="skip"`)."""
        return self.buffer.skipped_batches

    @property
    def topics(self) -> list[str]:
        """The names and patterns subscribed to."""
        return self._selection.names

    @property
    def member_id(self) -> str:
        """The ID of this member in its group; "" without a group."""
        return self._member_id

    async def start(self) -> Self:
        """Subscribe. Without a group the positions are fixed when this returns: records published
        later are delivered.

        Raises:
            ConnectionLost: the broker could not be reached within the client's `call_timeout_s`.
            SparrowError: the broker refuses.
        """
        self._session.check_process()
        if self._is_started:
            return self
        self._is_started = True
        self._session.attach(self)
        timeout_s = self._session.options.call_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_open()
                if await self._expects_assignment():
                    await self._was_assigned.wait()
                    await self._until_open()
        except TimeoutError:
            await self._shut()
            raise self._refusal or ConnectionLost(
                f"the broker at {self._session.address} did not subscribe within {timeout_s:g} s"
            ) from None
        except BaseException:
            await self._shut()
            raise
        if self.options.commit == "auto":
            self._spawn(self._commit_at_intervals())
        return self

    async def _expects_assignment(self) -> bool:
        """Return True if the broker will assign partitions soon. A group may have none for this
        member, and a pattern may match no topic.
        """
        if self.options.group:
            return False
        if self._selection.has_topics:
            return True
        return bool(await self._matching_topics())

    async def close(self) -> None:
        """End the subscription. With automatic commits, everything that was handed out is
        committed.
        """
        await self._end(only_processed=False)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def abandon(self) -> None:
        """End the subscription after an error: records in hand are not committed automatically, and
        will be delivered again.
        """
        await self._end(only_processed=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end(only_processed=error is not None)

    async def _end(self, *, only_processed: bool) -> None:
        if self._session.is_forked:
            return
        if self.options.commit == "auto" and self._failure is None and self._is_open:
            with suppress(SparrowError):
                await self._commit(self.buffer.to_commit(only_processed=only_processed))
        await self._shut()

    async def _shut(self) -> None:
        if self._on_close is not None:
            self._on_close(self)
        self._is_closed = True
        self._session.detach(self)
        for task in self._tasks:
            task.cancel()
        connection = self._connection
        if connection is not None and connection.may_send(Close, self._channel):
            self._closed = self._loop.create_future()
            connection.send(Close(), self._channel)
            await asyncio.wait([self._closed], timeout=1.0)
        self._is_open = False
        self._fail(ConnectionLost("the subscription is closed"))

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._messages()

    async def _messages(self) -> AsyncGenerator[Record, None]:
        buffer = self.buffer
        while await self.advance():
            for message in buffer.rest:
                buffer.last = message
                yield message

    async def batches(self) -> AsyncGenerator[list[Record], None]:
        """Yield lists of messages as they arrive, each of one partition, never empty, about
        `max_deliver_bytes` at most.
        """
        while batch := await self.next_batch():
            yield batch

    async def next_batch(self) -> list[Record]:
        """Return the next list of `batches`; [] when the subscription was closed."""
        await self._yield_if_full()
        while self._step():
            batch = self._report_skipped(self.buffer.take_batch())
            if batch:
                self._return_credit()
                return batch
            await self._wait_for_more()
        return []

    async def advance(self) -> bool:
        """Wait until `buffer.rest` has messages to iterate over; return False when the subscription
        was closed.
        """
        await self._yield_if_full()
        while self._step():
            if self._report_skipped(self.buffer.refill()):
                self._return_credit()
                return True
            await self._wait_for_more()
        return False

    async def pull(self, max_messages: int = 100, *, wait_s: float = 1.0) -> list[Record]:
        """Return at most `max_messages`, waiting at most `wait_s` seconds for the first; [] if none
        came.

        Messages beyond `max_messages` are kept for the next pull. Without a connection this waits
        as if no message came.

        Raises:
            SparrowError: the subscription has ended.
        """
        if max_messages < 1 or wait_s < 0:
            raise InvalidArgument(
                f"pull of {max_messages} messages, waiting {wait_s} s; ask for 1 or more, and wait 0 or more"
            )
        if not self._step():
            raise ConnectionLost("the subscription is closed")
        taken = self.buffer.take(max_messages)
        if not taken:
            await self._wait_within(max_messages, wait_s)
            taken = self.buffer.take(max_messages)
        self._return_credit()
        return self._report_skipped(taken)

    def _report_skipped(self, found: T) -> T:
        """Log the batches that were skipped before `found`."""
        skipped = self.buffer.skipped
        while skipped:
            _logger.warning("skipped: %s", skipped.popleft().text)
        return found

    async def _yield_if_full(self) -> None:
        """Let the loop read and other tasks run: a buffer that is always full must not keep them
        from it. Without records the wait for them does so.
        """
        if self.buffer.has_more:
            await asyncio.sleep(0)

    def _step(self) -> bool:
        """Note that the user asks for more. Return False if the subscription was closed; raise if
        it failed.
        """
        if self._is_closed:
            return False
        self._check_started()
        if self._failure is not None:
            raise copy_of(self._failure)
        self.buffer.step()
        self._stepped.set()
        return True

    async def _wait_for_more(self) -> None:
        self._is_idle = True
        try:
            if self.options.mode == "pull":
                await self._wait_within(_PULL_RECORDS, _PULL_WAIT_S)
            else:
                await self._wait_for_arrival()
        finally:
            self._is_idle = False

    async def _wait_within(self, max_messages: int, wait_s: float) -> None:
        deadline = self._loop.time() + wait_s
        if self.options.mode == "push":
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    while not self.buffer.has_more:
                        await self._wait_for_arrival()
            return
        while not self.buffer.has_more and await self._pull(max_messages, deadline):
            pass

    async def _wait_for_arrival(self) -> None:
        """Wait until records are queued, or the subscription has ended."""
        if self._failure is not None:
            raise copy_of(self._failure)
        if self.buffer.has_more:
            return
        arrival = self._loop.create_future()
        self._arrivals[arrival] = None
        self._return_credit()
        try:
            await arrival
        finally:
            self._arrivals.pop(arrival, None)

    async def _pull(self, max_messages: int, deadline: float) -> bool:
        """Pull once; return False when the wait is over."""
        try:
            async with asyncio.timeout_at(max(deadline, self._loop.time()) + _PULL_GRACE_S):
                if not self._is_open:
                    async with asyncio.timeout_at(deadline):
                        await self._until_open()
                await asyncio.shield(self._ask(max_messages, deadline))
        except TimeoutError:
            return False
        except ConnectionLost:
            if self._failure is not None:
                raise
        return self._loop.time() < deadline

    def _ask(self, max_messages: int, deadline: float) -> asyncio.Future[Any]:
        """Return the response of the PULL under way (also one whose caller was cancelled), or send
        a new one.
        """
        if self._pull_reply is None or self._pull_reply.done():
            assert self._connection is not None  # it is open
            ref, self._pull_reply = self._requests.begin()
            wait_ms = max(0, round((deadline - self._loop.time()) * 1000))
            self._connection.send(
                Pull(ref, max_messages, self.options.prefetch_bytes, wait_ms), self._channel
            )
        return self._pull_reply

    def _return_credit(self) -> None:
        """Return credit to the broker once it is half of the prefetch."""
        buffer = self.buffer
        if buffer.unreturned_bytes * 2 >= self.options.prefetch_bytes and self.options.mode == "push":
            connection = self._connection
            if connection is not None and self._is_open and connection.may_send(Credit, self._channel):
                connection.send(Credit(buffer.unreturned_bytes), self._channel)
                buffer.unreturned_bytes = 0

    # ── commits ───────────────────────────────────────────────────────────────────────────────────

    async def commit(self, message: Record | None = None) -> None:
        """Commit the offsets of everything handed out so far, or of one partition up to and
        including `message`. The commit is durable when this returns.

        Raises:
            InvalidArgument: the subscription has no group.
            StaleMember: the message's partition was revoked; another member gets the message again.
            ConnectionLost: not connected again within the client's `call_timeout_s`.
        """
        self._session.check_process()
        if not self.options.group:
            raise InvalidArgument("only a member of a group commits; subscribe with group=…")
        if message is None:
            await self._commit(self.buffer.to_commit(only_processed=False))
            return
        key = (message.topic, message.partition)
        if key not in self.buffer.cursors:
            raise _stale(key, self.options.group)
        await self._commit({key: message.offset + 1})

    async def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        """Commit, retrying over lost connections as long as the partitions are assigned."""
        deadline = self._loop.time() + self._session.options.call_timeout_s
        while offsets:
            try:
                await self._commit_once(offsets, deadline)
            except ConnectionLost:
                if self._failure is not None or self._loop.time() >= deadline:
                    raise
                await asyncio.sleep(0)
                offsets = {key: offset for key, offset in offsets.items() if key in self.buffer.cursors}
            else:
                self.buffer.committed(offsets)
                return

    async def _commit_once(self, offsets: dict[TopicPartition, int], deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._until_open()
                await self._call(
                    lambda ref: Commit(ref, [OffsetCommit(t, p, o) for (t, p), o in offsets.items()])
                )
        except TimeoutError:
            raise TimedOut(
                f"the broker at {self._session.address} did not confirm a commit of group "
                f"{self.options.group!r} within {self._session.options.call_timeout_s:g} s; whether it is "
                "durable is not known"
            ) from None

    async def _commit_at_intervals(self) -> None:
        while True:
            await asyncio.sleep(self.options.auto_commit_interval_s)
            await self._commit_processed()

    async def _commit_processed(self) -> None:
        try:
            await self._commit(self.buffer.to_commit(only_processed=True))
        except SparrowError as error:
            _logger.warning("automatic commit of group %r failed: %s", self.options.group, error.text)

    # ── changing the selection ────────────────────────────────────────────────────────────────────

    async def add(self, *topics: str, start: StartAt = "end") -> None:
        """Read further topics or patterns.

        Raises:
            SparrowError: the broker refuses; nothing changed.
        """
        self._session.check_process()
        selectors = self._selection.add(topics, parse_start(start))
        try:
            await self._update(lambda ref: Update(ref, selectors, []))
        except SparrowError:
            self._selection.drop(topics)
            raise

    async def drop(self, *topics: str) -> None:
        """Stop reading these names or patterns, given as they were subscribed.

        Raises:
            InvalidArgument: one of them is not subscribed to.
        """
        self._session.check_process()
        names = self._selection.drop(topics)
        await self._update(lambda ref: Update(ref, [], names))

    async def _update(self, update: Callable[[int], Head]) -> None:
        """Send a change to the broker, unless a new connection has sent the whole selection
        meanwhile.
        """
        version = self._selection.version
        timeout_s = self._session.options.call_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_open()
                while self._sent_version < version:
                    if await self._send_update(update):
                        return
                    await self._until_open()
        except TimeoutError:
            raise ConnectionLost(
                f"not connected again to {self._session.address} within {timeout_s:g} s; the "
                "change is made when it is"
            ) from None

    async def _send_update(self, update: Callable[[int], Head]) -> bool:
        """Return True if the broker responded; False if the connection was lost first."""
        try:
            await self._call(update)
        except ConnectionLost:
            if self._failure is not None:
                raise
            await asyncio.sleep(0)
            return False
        return True

    async def _call(self, request: Callable[[int], Head]) -> Any:
        """Send a request on the channel and return its result."""
        connection = self._connection
        assert connection is not None  # the channel is open
        ref, future = self._requests.begin()
        connection.send(request(ref), self._channel)
        connection.hold()
        try:
            return await future
        finally:
            connection.release()

    # ── the channel ───────────────────────────────────────────────────────────────────────────────

    def connection_up(self, connection: Connection) -> None:
        self._connection = connection
        self._spawn(self._open(connection))

    def connection_down(self, error: SparrowError) -> None:
        self._connection = None
        self._channel_lost(error)

    def session_ended(self, error: SparrowError) -> None:
        self._fail(error)

    def writable(self) -> None:
        """Do nothing: a subscription sends no bulk data."""

    def received(self, head: Head, batches: memoryview | None) -> None:
        if isinstance(head, Deliver) and batches is not None:
            self.buffer.deliver((head.topic, head.partition), head.offset, head.next_offset, batches)
            if head.ref < 0:
                self._wake()
        else:
            self._control(head)

    def _control(self, head: Head) -> None:
        if isinstance(head, Response):
            self._requests.complete(head)
        elif isinstance(head, Pulled):
            self._requests.complete(Response(head.ref, None, head.records))
        elif isinstance(head, Subscribed):
            self._subscribed(head)
        elif isinstance(head, Assigned):
            self._assigned(head)
        elif isinstance(head, Revoke):
            self._revoke(head)
        elif isinstance(head, Error):
            self._refused(from_code(head.code, head.text))
        elif isinstance(head, Closed) and self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    async def _open(self, connection: Connection) -> None:
        """Open the channel on a connection, continuing where the last one ended."""
        try:
            version = self._selection.version
            selectors = (
                self._selection.first()
                if self._positions is None
                else await self._selectors_again(connection)
            )
            options = self.options
            is_push = options.mode == "push"
            self._channel = connection.open_channel(
                Subscribe(
                    selectors,
                    push=is_push,
                    credit_bytes=options.prefetch_bytes if is_push else 0,
                    max_deliver_bytes=min(options.max_deliver_bytes, options.prefetch_bytes),
                    group=options.group,
                    member_id=self._member_id,
                    session_timeout_ms=options.session_timeout_ms,
                    rebalance_timeout_ms=options.rebalance_timeout_ms,
                    isolation=options.isolation,
                ),
                self,
            )
            self._sent_version = version
        except ConnectionLost:
            pass  # the next connection tries again
        except SparrowError as error:
            if error.retriable and self._was_open:
                self._loop.call_later(self._backoff.next_delay_s(), self._open_again)
            else:
                self._fail(error)

    async def _selectors_again(self, connection: Connection) -> list[Any]:
        positions = self._positions or {}
        existing = await self._matching_topics(connection)
        if not self.options.group:
            return self._selection.again(positions, existing)
        topics = sorted({topic for topic, _ in positions})
        timeout_s = self._session.options.call_timeout_s
        complete = await connection.call(
            "group.offsets", {"group": self.options.group, "topics": topics}, timeout_s
        )
        committed = {(topic, partition) for topic, partition, *_ in complete["offsets"]} if topics else set()
        uncommitted = {key: offset for key, offset in positions.items() if key not in committed}
        return self._selection.again_in_group(uncommitted, existing)

    async def _matching_topics(self, connection: Connection | None = None) -> list[str]:
        """Return the names of the topics that the patterns match now."""
        found: list[str] = []
        for pattern in self._selection.patterns:
            if connection is None:
                complete = await self._session.call("topic.list", {"pattern": pattern}, is_read=True)
            else:
                complete = await connection.call(
                    "topic.list", {"pattern": pattern}, self._session.options.call_timeout_s
                )
            found += [topic["name"] for topic in complete["topics"]]
        return found

    def _subscribed(self, head: Subscribed) -> None:
        self._member_id = head.member_id
        self._former = set(self.buffer.cursors)
        self._backoff.reset()
        self._is_open = self._was_open = True
        self._change()

    def _refused(self, error: SparrowError) -> None:
        """Handle an error with which the broker ended the channel."""
        self._refusal = error
        self._channel_lost(ConnectionLost(f"the broker ended the subscription: {error.text}"))
        if isinstance(error, StaleMember | UnknownMember):
            self._rejoin(error)
        elif not error.retriable:
            self._fail(error)
            return
        self._loop.call_later(self._backoff.next_delay_s(), self._open_again)

    def _open_again(self) -> None:
        if self._connection is not None and self._failure is None and not self._is_open:
            self._spawn(self._open(self._connection))

    def _rejoin(self, error: SparrowError) -> None:
        """Rejoin the group as a new member, at the committed offsets, after the broker removed this
        one.
        """
        _logger.warning("put out of group %r, joining again: %s", self.options.group, error.text)
        self._member_id = ""
        keys = list(self.buffer.cursors)
        self.buffer.stop(keys)
        self.buffer.forget(keys)
        self._positions = {}
        if keys:
            self._notify_revoked(keys, error.code)

    def _channel_lost(self, error: SparrowError) -> None:
        if self._is_open:
            self._positions = self.buffer.interrupt()
        self._is_open = False
        self._requests.fail(error if isinstance(error, ConnectionLost) else ConnectionLost(error.text))
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _fail(self, error: SparrowError) -> None:
        """End the subscription with an error."""
        if self._failure is None:
            self._failure = error
            self._requests.fail(error)
            self._change()
            self._was_assigned.set()
            self._wake()

    # ── assignment ────────────────────────────────────────────────────────────────────────────────

    def _assigned(self, head: Assigned) -> None:
        buffer = self.buffer
        added = []
        for assigned in head.added:
            key = (assigned.topic, assigned.partition)
            was_kept = key in self._former and buffer.cursors[key].is_assigned
            if key in self._former:
                buffer.resume(assigned.topic, assigned.partition, assigned.offset)
            else:
                buffer.assign(assigned.topic, assigned.partition, assigned.offset)
            if not was_kept:
                added.append((assigned.topic, assigned.partition, assigned.offset))
        lost = self._former.difference((assigned.topic, assigned.partition) for assigned in head.added)
        self._former = set()
        if lost:
            buffer.stop(lost)
            buffer.forget(lost)
            self._notify_revoked(sorted(lost), LOST)
        self._was_assigned.set()
        if added and self._on_assigned is not None:
            self._spawn(_run(self._on_assigned, added))

    def _revoke(self, head: Revoke) -> None:
        keys = [(topic, partition) for topic, partition in head.partitions]
        self._former.difference_update(keys)
        self.buffer.stop(keys)
        self._return_credit()
        if head.reason:
            self.buffer.forget(keys)
            self._was_assigned.set()
            _logger.warning("%s", _why_revoked(keys, head.reason))
            self._notify_revoked(keys, head.reason)
        else:
            self._spawn(self._hand_over(head.epoch, keys))

    async def _hand_over(self, epoch: int, keys: list[TopicPartition]) -> None:
        """Finish with partitions that the group takes back: wait for the user, commit, then release
        them.
        """
        connection = self._connection
        await self._wait_until_finished(keys)
        if self.options.commit == "auto":
            await self._commit_processed()
        if self._on_revoked is not None:
            await _run(self._on_revoked, keys, "")
        if (
            connection is not None and connection is self._connection
        ):  # otherwise the next connection reports what is still assigned
            self.buffer.forget(keys)
            if connection.may_send(Revoked, self._channel):
                connection.send(Revoked(epoch, keys), self._channel)

    async def _wait_until_finished(self, keys: list[TopicPartition]) -> None:
        """Wait until the user took the step after the records of these partitions, at most half the
        rebalance timeout.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.rebalance_timeout_ms / 2000):
                while self.buffer.holds(keys) and not self._is_idle:
                    self._stepped.clear()
                    await self._stepped.wait()

    def _notify_revoked(self, keys: list[TopicPartition], reason: str) -> None:
        if self._on_revoked is not None:
            self._spawn(_run(self._on_revoked, keys, reason))

    # ── waiting and waking ────────────────────────────────────────────────────────────────────────

    def _wake(self) -> None:
        for arrival in self._arrivals:
            if not arrival.done():
                arrival.set_result(None)

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _check_started(self) -> None:
        if not self._is_started:
            raise InvalidArgument(
                "the subscription was not started; use it as `async with`, or await start()"
            )

    async def _until_open(self) -> None:
        self._check_started()
        while not self._is_open:
            if self._failure is not None:
                raise copy_of(self._failure)
            await self._changed.wait()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run(callback: Callable[..., Awaitable[None] | None], *arguments: Any) -> None:
    """Run a user's callback, plain or async. An exception is logged, as there is no caller to raise
    it to.
    """
    try:
        complete = callback(*arguments)
        if inspect.isawaitable(complete):
            await complete
    except Exception:
        _logger.exception("the callback %r failed", callback)


def _why_revoked(keys: list[TopicPartition], reason: str) -> str:
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in keys)
    if reason == OffsetOutOfRange.code:
        return (
            f"the log of {shown} does not have the offset to read next; reading goes on where the log begins "
            f"or ends ({reason})"
        )
    return f"{shown} cannot be read any more: {reason}"


def _stale(key: TopicPartition, group: str) -> StaleMember:
    return StaleMember(
        f"partition {key[1]} of topic {key[0]!r} does not belong to this member of group {group!r} any more; "
        "another member gets its uncommitted messages again"
    )
