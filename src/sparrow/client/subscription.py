"""A subscription: records in, in order per partition, over lost links.

- **Reading.** Message by message (`async for message in sub`), in batches (`sub.batches()`), or by number (`sub.pull`); all three share
  one position, so they may be mixed. One task reads at a time.
- **Lost link.** Reading goes on at the first record that was not handed out; nothing is handed out twice or left out.
- **Groups.** `commit="manual"`: `commit()` commits what was handed out. `commit="auto"`: at intervals, at a revocation and at the end, what was handed out
  before the last step is committed; so whoever crashes gets the last message or batch again (at least once). A partition that the group takes
  back is given up when the user has taken the next step, so that what is in hand can be finished and committed; waiting for that is bounded by half
  the rebalance timeout.
- **Memory.** At most `prefetch_bytes` of batches wait (and one DELIVER beyond), by credit that is given back in halves.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

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
from sparrow.client.calls import Calls
from sparrow.client.delivery import repeated
from sparrow.client.intake import Intake, Key
from sparrow.client.options import parse_start
from sparrow.client.retry import Backoff
from sparrow.client.selection import Selection
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

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
    from types import TracebackType

    from sparrow.client.connection import Connection
    from sparrow.client.link import Link
    from sparrow.client.options import StartAt, SubscribeOptions
    from sparrow.records.record import Record

    OnAssigned = Callable[[list[tuple[str, int, int]]], Awaitable[None] | None]
    OnRevoked = Callable[[list[Key], str], Awaitable[None] | None]

_logger = logging.getLogger("sparrow.client")

LOST = "LOST"
"""The reason of a revocation that a new link brought to light."""
_PULL_RECORDS = 1000
_PULL_WAIT_S = 30.0
_PULL_GRACE_S = 5.0
"""How long the answer to a pull may take beyond its wait."""


class Subscription:
    """Made by `client.subscribe(…)`; use it as `async with`, or `await start()` and `close()`. Loop thread only."""

    def __init__(
        self,
        connection: Connection,
        topics: Sequence[str],
        start: StartAt,
        options: SubscribeOptions,
        *,
        positions: dict[Key, int] | None = None,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
        on_close: Callable[[Subscription], None] | None = None,
    ) -> None:
        """`positions` are offsets to begin at, for some partitions."""
        self.options = options
        self._connection = connection
        self._loop = connection.loop
        self._selection = Selection(topics, parse_start(start))
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_close = on_close
        self.intake = Intake()
        """What came and what was handed out; for whoever iterates by `advance`."""
        self._calls = Calls(self._loop)
        self._link: Link | None = None
        self._channel = 0
        self._told_version = -1
        self._is_started = False
        self._is_open = False
        self._was_open = False
        self._is_closed = False
        self._refusal: SparrowError | None = None
        """Why the broker did not open the channel, the last time."""
        self._member_id = ""
        self._positions = positions
        """Where to go on after a lost link; None before the first."""
        self._former: set[Key] = set()
        self._failure: SparrowError | None = None
        self._changed = asyncio.Event()
        self._was_assigned = asyncio.Event()
        self._arrival: asyncio.Future[None] | None = None
        self._is_idle = False
        self._stepped = asyncio.Event()
        self._pulling: asyncio.Future[Any] | None = None
        self._closed: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._backoff = Backoff(connection.options.backoff_initial_s, connection.options.backoff_max_s)

    # ── its life ──────────────────────────────────────────────────────────────────────────────────

    @property
    def assignment(self) -> list[Key]:
        """The partitions that are read now: (topic, partition)."""
        return sorted(key for key, cursor in self.intake.cursors.items() if cursor.is_ours)

    @property
    def positions(self) -> dict[Key, int]:
        """The next offset to be handed out, by partition."""
        self.intake.to_commit(only_processed=False)
        return {key: cursor.handed for key, cursor in self.intake.cursors.items() if cursor.is_ours}

    @property
    def topics(self) -> list[str]:
        """The names and patterns subscribed to."""
        return self._selection.names

    @property
    def member_id(self) -> str:
        """This member's name in its group; "" without one."""
        return self._member_id

    async def start(self) -> Self:
        """Subscribe. Without a group the positions are fixed when this returns: what is published later comes.

        Raises:
            ConnectionLost: the broker could not be reached within the client's `call_timeout_s`.
            SparrowError: the broker refuses.
        """
        if self._is_started:
            return self
        self._is_started = True
        self._connection.attach(self)
        timeout_s = self._connection.options.call_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_open()
                if await self._expects_assignment():
                    await self._was_assigned.wait()
                    await self._until_open()
        except TimeoutError:
            await self._shut()
            raise self._refusal or ConnectionLost(
                f"the broker at {self._connection.address} did not subscribe within {timeout_s:g} s"
            ) from None
        except BaseException:
            await self._shut()
            raise
        if self.options.commit == "auto":
            self._spawn(self._commit_at_intervals())
        return self

    async def _expects_assignment(self) -> bool:
        """Whether the broker will tell partitions soon: a group may have none for us, and a pattern may match nothing."""
        if self.options.group:
            return False
        if self._selection.has_topics:
            return True
        return bool(await self._matching_topics())

    async def close(self) -> None:
        """End the subscription; with automatic commits, everything that was handed out is committed."""
        await self._end(only_processed=False)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def abandon(self) -> None:
        """End the subscription in the middle of something: what is in hand is not committed automatically, and comes again."""
        await self._end(only_processed=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end(only_processed=error is not None)

    async def _end(self, *, only_processed: bool) -> None:
        if self.options.commit == "auto" and self._failure is None and self._is_open:
            with suppress(SparrowError):
                await self._commit(self.intake.to_commit(only_processed=only_processed))
        await self._shut()

    async def _shut(self) -> None:
        if self._on_close is not None:
            self._on_close(self)
        self._is_closed = True
        self._connection.detach(self)
        for task in self._tasks:
            task.cancel()
        link = self._link
        if link is not None and link.may_send(Close, self._channel):
            self._closed = self._loop.create_future()
            link.send(Close(), self._channel)
            await asyncio.wait([self._closed], timeout=1.0)
        self._is_open = False
        self._fail(ConnectionLost("the subscription is closed"))

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._messages()

    async def _messages(self) -> AsyncGenerator[Record, None]:
        intake = self.intake
        while await self.advance():
            for message in intake.rest:
                intake.last = message
                yield message

    async def batches(self) -> AsyncGenerator[list[Record], None]:
        """Lists of messages as they come: each of one partition, never empty, at most about `max_deliver_bytes`."""
        while batch := await self.next_batch():
            yield batch

    async def next_batch(self) -> list[Record]:
        """The next of `batches`; [] when the subscription was closed."""
        # A queue that is always full must not keep the loop from reading, nor other tasks from running.
        await asyncio.sleep(0)
        while self._step():
            batch = self.intake.take_batch()
            if batch:
                self._return_credit()
                return batch
            await self._wait_for_more()
        return []

    async def advance(self) -> bool:
        """Wait until `intake.rest` has messages to iterate over; False when the subscription was closed."""
        await asyncio.sleep(0)
        while self._step():
            if self.intake.refill():
                self._return_credit()
                return True
            await self._wait_for_more()
        return False

    async def pull(self, max_messages: int = 100, *, wait_s: float = 1.0) -> list[Record]:
        """At most `max_messages`, waiting at most `wait_s` for the first; [] is an answer.

        What came beyond `max_messages` is kept for the next pull. While there is no link, this waits as if nothing came.

        Raises:
            SparrowError: the subscription is over.
        """
        if max_messages < 1 or wait_s < 0:
            raise InvalidArgument(
                f"pull of {max_messages} messages, waiting {wait_s} s; ask for 1 or more, and wait 0 or more"
            )
        if not self._step():
            raise ConnectionLost("the subscription is closed")
        taken = self.intake.take(max_messages)
        if not taken:
            await self._wait_within(max_messages, wait_s)
            taken = self.intake.take(max_messages)
        self._return_credit()
        return taken

    def _step(self) -> bool:
        """The user asks for more. False if the subscription was closed; raises if it failed."""
        if self._is_closed:
            return False
        self._check_started()
        if self._failure is not None:
            raise repeated(self._failure)
        self.intake.step()
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
                    while not self.intake.has_more:
                        await self._wait_for_arrival()
            return
        while not self.intake.has_more and await self._pull(max_messages, deadline):
            pass

    async def _wait_for_arrival(self) -> None:
        """Wait until something is queued, or the subscription is over."""
        if self._failure is not None:
            raise repeated(self._failure)
        if self.intake.has_more:
            return
        if self._arrival is None or self._arrival.done():
            self._arrival = self._loop.create_future()
        self._return_credit()
        await asyncio.wait([self._arrival])

    async def _pull(self, max_messages: int, deadline: float) -> bool:
        """Ask once; False when the wait is over."""
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
        """The PULL that is under way (one whose asker went away is taken up), else a new one."""
        if self._pulling is None or self._pulling.done():
            assert self._link is not None  # it is open
            ref, self._pulling = self._calls.begin()
            wait_ms = max(0, round((deadline - self._loop.time()) * 1000))
            self._link.send(Pull(ref, max_messages, self.options.prefetch_bytes, wait_ms), self._channel)
        return self._pulling

    def _return_credit(self) -> None:
        """Give back what was taken, when it is half of the prefetch."""
        intake = self.intake
        if intake.unreturned_bytes * 2 >= self.options.prefetch_bytes and self.options.mode == "push":
            link = self._link
            if link is not None and self._is_open and link.may_send(Credit, self._channel):
                link.send(Credit(intake.unreturned_bytes), self._channel)
                intake.unreturned_bytes = 0

    # ── commits ───────────────────────────────────────────────────────────────────────────────────

    async def commit(self, message: Record | None = None) -> None:
        """Commit the offsets of what was handed out so far, or of one partition up to and including `message`. Durable when it returns.

        Raises:
            InvalidArgument: the subscription has no group.
            StaleMember: the message's partition is not ours any more; another member gets it again.
            ConnectionLost: not connected again within the client's `call_timeout_s`.
        """
        if not self.options.group:
            raise InvalidArgument("only a member of a group commits; subscribe with group=…")
        if message is None:
            await self._commit(self.intake.to_commit(only_processed=False))
            return
        key = (message.topic, message.partition)
        if key not in self.intake.cursors:
            raise _stale(key, self.options.group)
        await self._commit({key: message.offset + 1})

    async def _commit(self, offsets: dict[Key, int]) -> None:
        """Commit over lost links, as long as the partitions are ours."""
        deadline = self._loop.time() + self._connection.options.call_timeout_s
        while offsets:
            try:
                await self._commit_once(offsets, deadline)
            except ConnectionLost:
                if self._failure is not None or self._loop.time() >= deadline:
                    raise
                await asyncio.sleep(0)
                offsets = {key: offset for key, offset in offsets.items() if key in self.intake.cursors}
            else:
                self.intake.committed(offsets)
                return

    async def _commit_once(self, offsets: dict[Key, int], deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._until_open()
                await self._call(
                    lambda ref: Commit(ref, [OffsetCommit(t, p, o) for (t, p), o in offsets.items()])
                )
        except TimeoutError:
            raise TimedOut(
                f"the broker at {self._connection.address} did not confirm a commit of group {self.options.group!r} within"
                f" {self._connection.options.call_timeout_s:g} s; whether it is durable is not known"
            ) from None

    async def _commit_at_intervals(self) -> None:
        while True:
            await asyncio.sleep(self.options.auto_commit_interval_s)
            await self._commit_processed()

    async def _commit_processed(self) -> None:
        try:
            await self._commit(self.intake.to_commit(only_processed=True))
        except SparrowError as error:
            _logger.warning("automatic commit of group %r failed: %s", self.options.group, error.text)

    # ── changes of what is read ───────────────────────────────────────────────────────────────────

    async def add(self, *topics: str, start: StartAt = "end") -> None:
        """Read more topics or patterns.

        Raises:
            SparrowError: the broker refuses; nothing changed.
        """
        selectors = self._selection.add(topics, parse_start(start))
        try:
            await self._update(lambda ref: Update(ref, selectors, []))
        except SparrowError:
            self._selection.drop(topics)
            raise

    async def drop(self, *topics: str) -> None:
        """Read these names or patterns, as they were subscribed, no more.

        Raises:
            InvalidArgument: one of them is not subscribed to.
        """
        names = self._selection.drop(topics)
        await self._update(lambda ref: Update(ref, [], names))

    async def _update(self, update: Callable[[int], Head]) -> None:
        """Tell the broker of a change; a link that is opened later is told all that is selected anyway."""
        version = self._selection.version
        timeout_s = self._connection.options.call_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_open()
                while self._told_version < version:
                    if await self._told(update):
                        return
                    await self._until_open()
        except TimeoutError:
            raise ConnectionLost(
                f"not connected again to {self._connection.address} within {timeout_s:g} s; the change is made when it is"
            ) from None

    async def _told(self, update: Callable[[int], Head]) -> bool:
        """Whether the broker answered; False when the link was lost first."""
        try:
            await self._call(update)
        except ConnectionLost:
            if self._failure is not None:
                raise
            await asyncio.sleep(0)
            return False
        return True

    async def _call(self, request: Callable[[int], Head]) -> Any:
        """A call on the channel, and its answer."""
        link = self._link
        assert link is not None  # the channel is open
        ref, future = self._calls.begin()
        link.send(request(ref), self._channel)
        link.hold()
        try:
            return await future
        finally:
            link.release()

    # ── the channel ───────────────────────────────────────────────────────────────────────────────

    def link_up(self, link: Link) -> None:
        self._link = link
        self._spawn(self._open(link))

    def link_down(self, error: SparrowError) -> None:
        self._link = None
        self._channel_lost(error)

    def connection_ended(self, error: SparrowError) -> None:
        self._fail(error)

    def writable(self) -> None:
        """Nothing is sent in bulk here."""

    def received(self, head: Head, batches: memoryview | None) -> None:
        if isinstance(head, Deliver) and batches is not None:
            self.intake.deliver((head.topic, head.partition), head.offset, head.next_offset, batches)
            if head.ref < 0:
                self._wake()
        else:
            self._control(head)

    def _control(self, head: Head) -> None:
        if isinstance(head, Response):
            self._calls.answer(head)
        elif isinstance(head, Pulled):
            self._calls.answer(Response(head.ref, None, head.records))
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

    async def _open(self, link: Link) -> None:
        """Open the channel on a link, going on where the last one ended."""
        try:
            version = self._selection.version
            selectors = (
                self._selection.first() if self._positions is None else await self._selectors_again(link)
            )
            options = self.options
            is_push = options.mode == "push"
            self._channel = link.open_channel(
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
            self._told_version = version
        except ConnectionLost:
            pass  # the next link tries again
        except SparrowError as error:
            if error.retriable and self._was_open:
                self._loop.call_later(self._backoff.next_delay_s(), self._open_again)
            else:
                self._fail(error)

    async def _selectors_again(self, link: Link) -> list[Any]:
        positions = self._positions or {}
        existing = await self._matching_topics(link)
        if not self.options.group:
            return self._selection.again(positions, existing)
        topics = sorted({topic for topic, _ in positions})
        timeout_s = self._connection.options.call_timeout_s
        answer = await link.call("group.offsets", {"group": self.options.group, "topics": topics}, timeout_s)
        committed = {(topic, partition) for topic, partition, *_ in answer["offsets"]} if topics else set()
        uncommitted = {key: offset for key, offset in positions.items() if key not in committed}
        return self._selection.again_in_group(uncommitted, existing)

    async def _matching_topics(self, link: Link | None = None) -> list[str]:
        """Names of the topics that the patterns match now."""
        found: list[str] = []
        for pattern in self._selection.patterns:
            if link is None:
                answer = await self._connection.call("topic.list", {"pattern": pattern}, is_read=True)
            else:
                answer = await link.call(
                    "topic.list", {"pattern": pattern}, self._connection.options.call_timeout_s
                )
            found += [topic["name"] for topic in answer["topics"]]
        return found

    def _subscribed(self, head: Subscribed) -> None:
        self._member_id = head.member_id
        self._former = set(self.intake.cursors)
        self._backoff.reset()
        self._is_open = self._was_open = True
        self._change()

    def _refused(self, error: SparrowError) -> None:
        """The broker ended the channel."""
        self._refusal = error
        self._channel_lost(ConnectionLost(f"the broker ended the subscription: {error.text}"))
        if isinstance(error, StaleMember | UnknownMember):
            self._put_out(error)
        elif not error.retriable:
            self._fail(error)
            return
        self._loop.call_later(self._backoff.next_delay_s(), self._open_again)

    def _open_again(self) -> None:
        if self._link is not None and self._failure is None and not self._is_open:
            self._spawn(self._open(self._link))

    def _put_out(self, error: SparrowError) -> None:
        """The group goes on without this member: join again, as a new one, with what was committed."""
        _logger.warning("put out of group %r, joining again: %s", self.options.group, error.text)
        self._member_id = ""
        keys = list(self.intake.cursors)
        self.intake.stop(keys)
        self.intake.forget(keys)
        self._positions = {}
        if keys:
            self._tell_revoked(keys, error.code)

    def _channel_lost(self, error: SparrowError) -> None:
        if self._is_open:
            self._positions = self.intake.interrupt()
        self._is_open = False
        self._calls.fail(error if isinstance(error, ConnectionLost) else ConnectionLost(error.text))
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _fail(self, error: SparrowError) -> None:
        """The subscription is over."""
        if self._failure is None:
            self._failure = error
            self._calls.fail(error)
            self._change()
            self._was_assigned.set()
            self._wake()

    # ── partitions come and go ────────────────────────────────────────────────────────────────────

    def _assigned(self, head: Assigned) -> None:
        intake = self.intake
        added = []
        for place in head.added:
            key = (place.topic, place.partition)
            was_kept = key in self._former and intake.cursors[key].is_ours
            if key in self._former:
                intake.resume(place.topic, place.partition, place.offset)
            else:
                intake.assign(place.topic, place.partition, place.offset)
            if not was_kept:
                added.append((place.topic, place.partition, place.offset))
        lost = self._former.difference((place.topic, place.partition) for place in head.added)
        self._former = set()
        if lost:
            intake.stop(lost)
            intake.forget(lost)
            self._tell_revoked(sorted(lost), LOST)
        self._was_assigned.set()
        if added and self._on_assigned is not None:
            self._spawn(_run(self._on_assigned, added))

    def _revoke(self, head: Revoke) -> None:
        keys = [(topic, partition) for topic, partition in head.partitions]
        self._former.difference_update(keys)
        self.intake.stop(keys)
        self._return_credit()
        if head.reason:
            self.intake.forget(keys)
            self._was_assigned.set()
            _logger.warning("%s", _why_revoked(keys, head.reason))
            self._tell_revoked(keys, head.reason)
        else:
            self._spawn(self._give_back(head.epoch, keys))

    async def _give_back(self, epoch: int, keys: list[Key]) -> None:
        """Finish with partitions that the group takes back, commit, then let go."""
        link = self._link
        await self._wait_until_finished(keys)
        if self.options.commit == "auto":
            await self._commit_processed()
        if self._on_revoked is not None:
            await _run(self._on_revoked, keys, "")
        if link is not None and link is self._link:  # else the next link tells anew what is ours
            self.intake.forget(keys)
            if link.may_send(Revoked, self._channel):
                link.send(Revoked(epoch, keys), self._channel)

    async def _wait_until_finished(self, keys: list[Key]) -> None:
        """Wait until the user took the step after what was handed out of these partitions; not longer than the group can wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.rebalance_timeout_ms / 2000):
                while self.intake.holds(keys) and not self._is_idle:
                    self._stepped.clear()
                    await self._stepped.wait()

    def _tell_revoked(self, keys: list[Key], reason: str) -> None:
        if self._on_revoked is not None:
            self._spawn(_run(self._on_revoked, keys, reason))

    # ── waiting and waking ────────────────────────────────────────────────────────────────────────

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

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
                raise repeated(self._failure)
            await self._changed.wait()

    def _spawn(self, doing: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run(callback: Callable[..., Awaitable[None] | None], *arguments: Any) -> None:
    """A user's callback, plain or async; what it raises is logged, for there is nobody else to tell."""
    try:
        answer = callback(*arguments)
        if inspect.isawaitable(answer):
            await answer
    except Exception:
        _logger.exception("the callback %r failed", callback)


def _why_revoked(keys: list[Key], reason: str) -> str:
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in keys)
    if reason == OffsetOutOfRange.code:
        return (
            f"the log of {shown} does not have the offset to read next; reading goes on where the log begins or ends"
            f" ({reason})"
        )
    return f"{shown} cannot be read any more: {reason}"


def _stale(key: Key, group: str) -> StaleMember:
    return StaleMember(
        f"partition {key[1]} of topic {key[0]!r} does not belong to this member of group {group!r} any more; another member gets its"
        " uncommitted messages again"
    )
