"""A job: a record that is leased to this consumer, with methods that settle it.

Each of them takes effect when it is called, and returns a future that is done when the broker has
the settlement on stable storage; await it to learn of an error. A job is settled once; a second
time raises `NotLeased`. The `_nowait` methods return nothing: failures go to the queue
(`queue.failures`, or its `on_failure`), and `queue.flush()` waits for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument, NotLeased
from sparrow.client.reply_target import reply_target
from sparrow.client.settlements import ACK, EXTEND, NACK, QUIET, REJECT, RELEASE
from sparrow.records.wellknown import MESSAGE_ID, parse_text

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from sparrow.client.batch import RecordMetadata
    from sparrow.client.lease import Lease
    from sparrow.client.settlements import SettlementKey
    from sparrow.records.record import Record

MAX_TEXT: Final = 1000
"""Limit of an error's or reason's length, in characters; longer text is cut."""
MAX_DELAY_S: Final = 30 * 86_400
MAX_EXTENSION_S: Final = 43_200
"""The limit of a queue's `lease_ms`, too."""
OPEN: Final = -1
"""The value of a job that is not settled."""
_WORDS: Final = {ACK: "acknowledged", NACK: "nacked", REJECT: "rejected", RELEASE: "released"}


def delay_ms_of(delay_s: float | None) -> int:
    """Return a delay in ms as the protocol has it; -1 for None: the policy's delay.

    Raises:
        InvalidArgument: negative, more than 30 days, or not a number.
    """
    if delay_s is None:
        return -1
    if not 0 <= delay_s <= MAX_DELAY_S:
        raise InvalidArgument(f"delay_s is {delay_s}; it must be 0 to {MAX_DELAY_S} seconds (30 days)")
    return round(delay_s * 1000)


def wire_text(text: str) -> str:
    """Return an error or reason as the protocol has it: cut to `MAX_TEXT`, with escapes for
    characters that UTF-8 cannot encode, as in undecodable file names.
    """
    text = str(text)[:MAX_TEXT]  # many programs pass `error=exception`
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def extension_ms_of(seconds: float | None) -> int:
    """Return a lease extension in ms as the protocol has it; -1 for None: the queue's lease time.

    Raises:
        InvalidArgument: not positive, or more than 12 hours.
    """
    if seconds is None:
        return -1
    if not 0 < seconds <= MAX_EXTENSION_S:
        raise InvalidArgument(
            f"a lease cannot be extended by {seconds} seconds; it must be more than 0, and at most "
            f"{MAX_EXTENSION_S}"
        )
    return max(1, round(seconds * 1000))


def settled_before(what: str, verb: int) -> NotLeased:
    """Return the error of a second settlement."""
    return NotLeased(f"{what} was {_WORDS.get(verb, 'settled')} before; it is settled once")


class LeasedRecord:
    """The data of a job, without the methods that settle it. Any thread may read it."""

    __slots__ = ("_deadline", "_settled_by", "delivery_count", "lease", "record")

    def __init__(self, lease: Lease, record: Record, delivery_count: int) -> None:
        self.lease = lease
        """The lease that it came with."""
        self.record = record
        """The message itself."""
        self.delivery_count = delivery_count
        """Number of this delivery, from 1."""
        self._settled_by = OPEN
        self._deadline = 0.0

    @property
    def value(self) -> bytes | None:
        return self.record.value

    @property
    def key(self) -> bytes | None:
        return self.record.key

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return self.record.headers

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def partition(self) -> int:
        return self.record.partition

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def timestamp(self) -> int:
        """The time at which it was published (or appended, if its topic is set so), ms since the
        epoch.
        """
        return self.record.timestamp

    @property
    def message_id(self) -> str:
        """The value of the header `message-id`; "" without one."""
        found = ""
        for name, value in self.record.headers:
            if name == MESSAGE_ID:
                found = parse_text(value) or found
        return found

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self.lease.owner.queue

    @property
    def deadline(self) -> float:
        """The time at which the lease ends by this client's clock, monotonic seconds as of
        `time.monotonic()`.
        """
        return self._deadline or self.lease.deadline

    @property
    def is_settled(self) -> bool:
        """True once a settlement other than an extension was made."""
        return self._settled_by != OPEN

    @property
    def is_lost(self) -> bool:
        """True if the record was delivered again meanwhile."""
        return any(first <= self.record.offset <= last for first, last in self.lease.lost)

    def __repr__(self) -> str:
        owner = self.lease.owner
        where = f"queue {owner.queue!r} of {owner.address}"
        state = f"delivery {self.delivery_count}, {self._state}"
        return f"<{type(self).__name__} {self._position} of {where}, {state}>"

    @property
    def log_fields(self) -> dict[str, object]:
        """Return the fields that log lines of workers have."""
        return {
            "queue": self.queue,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "delivery_count": self.delivery_count,
        }

    @property
    def _state(self) -> str:
        if self._settled_by != OPEN:
            return _WORDS.get(self._settled_by, "settled")
        if self.is_lost:
            return "delivered again meanwhile"
        left_s = self.deadline - time.monotonic()
        return f"leased for {left_s:.1f} s" if left_s > 0 else "its lease has ended"

    @property
    def _position(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"

    def mark_settled(self, verb: int) -> None:
        """Mark the job as settled with its whole batch."""
        self._settled_by = verb

    def check(self) -> None:
        """Raise NotLeased if the job is settled, LeaseExpired if it was delivered again
        meanwhile.
        """
        if self._settled_by != OPEN:
            raise settled_before(f"the job {self._position}", self._settled_by)
        if self.lease.lost:
            self.lease.check(self.offset, self.offset)

    def settle(self, key: SettlementKey, outcome: object) -> None:
        """Settle the job. Loop thread only. Raises as `check`, and NotLeased if the queue is
        closed.
        """
        if self._settled_by != OPEN or self.lease.lost:
            self.check()
        offset = self.record.offset
        self.lease.owner.submit(self.lease, key, offset, offset, outcome)
        self._settled_by = key[0]

    def lengthen(self, seconds: float | None, outcome: object) -> None:
        """Ask for a longer lease. Loop thread only. Raises as `settle`."""
        self.check()
        lease = self.lease
        owner = lease.owner
        owner.submit(lease, lease.key(EXTEND, extension_ms_of(seconds)), self.offset, self.offset, outcome)
        self._deadline = owner.loop.time() + (owner.lease_s if seconds is None else seconds)
        lease.latest_deadline = max(lease.latest_deadline, self._deadline)

    def nack_key(self, delay_s: float | None, error: str) -> SettlementKey:
        return self.lease.key(NACK, delay_ms_of(delay_s), wire_text(error))

    def reject_key(self, reason: str) -> SettlementKey:
        return self.lease.key(REJECT, -1, wire_text(reason))

    async def _publish_reply(
        self,
        value: bytes | None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None,
    ) -> RecordMetadata:
        """Publish a reply to this job. Loop thread only. Raises as `Job.reply`."""
        topic, own = reply_target(self.record.headers)
        given = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        return await self.lease.owner.publish(topic, value, headers=[*given, *own])

    def release_quietly(self) -> None:
        """Release the job unless it is settled; an expired lease is no error. Loop thread only."""
        if self._settled_by == OPEN:
            self.lease.owner.submit(self.lease, self.lease.key(RELEASE), self.offset, self.offset, QUIET)
            self._settled_by = RELEASE


class Job(LeasedRecord):
    """A job of the asyncio client. Loop thread only.

    Errors of the methods below; those that return a future raise when it is awaited, unless the
    error is known before:

    Raises:
        NotLeased: the job was settled before, or its queue was closed. Its subclasses:
            `LeaseExpired`, `LeasedByAnother`.
        TimedOut: the broker did not respond within the client's `call_timeout_s`; it is not known
            whether the settlement took effect.
        ConnectionLost: the client was closed first.
    """

    __slots__ = ()

    def ack(self) -> asyncio.Future[None]:
        """Acknowledge the job: it is never delivered again."""
        future = self.lease.owner.loop.create_future()
        self.settle(self.lease.ack_key, future)
        return future

    def nack(self, delay_s: float | None = None, *, error: str = "") -> asyncio.Future[None]:
        """Report a failure: the job is delivered again after `delay_s` seconds (None: the queue's
        backoff), or becomes a dead letter at the delivery limit.

        Args:
            error: kept with the dead letter; cut at 1000 characters.
        """
        return self._settled(self.nack_key(delay_s, error))

    def reject(self, reason: str = "") -> asyncio.Future[None]:
        """Reject the job: it becomes a dead letter now. The reason is cut at 1000 characters."""
        return self._settled(self.reject_key(reason))

    def release(self) -> asyncio.Future[None]:
        """Release the job unused: it is ready again at once, and this delivery does not count."""
        return self._settled(self.lease.key(RELEASE))

    def extend(self, seconds: float | None = None) -> asyncio.Future[None]:
        """Let the lease end `seconds` from now (None: the queue's lease time). May be called any
        number of times.
        """
        future = self.lease.owner.loop.create_future()
        self.lengthen(seconds, future)
        return future

    async def reply(
        self,
        value: bytes | None,
        *,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
    ) -> RecordMetadata:
        """Reply to the request that the job is (`Client.request`). The job is settled as any other.

        Raises:
            InvalidArgument: the message asks for no reply. SparrowError: as `Client.publish`.
        """
        return await self._publish_reply(value, headers)

    def progress(self, fraction: float, text: str = "") -> None:
        """Report the progress of a task's job (`TaskJob.progress`); others have none.

        Raises:
            InvalidArgument: this is no job of a task.
        """
        raise InvalidArgument(
            f"a progress of {fraction} {text!r} was reported for a job that no task runs; it is for tasks "
            "with results=True"
        )

    def ack_nowait(self) -> None:
        self.settle(self.lease.ack_key, None)

    def nack_nowait(self, delay_s: float | None = None, *, error: str = "") -> None:
        self.settle(self.nack_key(delay_s, error), None)

    def reject_nowait(self, reason: str = "") -> None:
        self.settle(self.reject_key(reason), None)

    def release_nowait(self) -> None:
        self.settle(self.lease.key(RELEASE), None)

    def extend_nowait(self, seconds: float | None = None) -> None:
        self.lengthen(seconds, None)

    def _settled(self, key: SettlementKey) -> asyncio.Future[None]:
        future = self.lease.owner.loop.create_future()
        self.settle(key, future)
        return future
