"""A job: a record that is leased to this consumer, and the verbs that settle it.

Each verb takes effect when it is called, and returns a future that is done when the broker has it on stable storage; awaiting it is how one learns of an
error. A job is settled once; a second time raises `NotLeased` here. The verbs with `_nowait` return nothing: what fails is told to the queue
(`queue.failures`, or its `on_failure`), and `queue.flush()` waits for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument, NotLeased
from sparrow.client.settling import ACK, EXTEND, NACK, QUIET, REJECT, RETURN
from sparrow.records.wellknown import MESSAGE_ID, parse_text

if TYPE_CHECKING:
    import asyncio

    from sparrow.client.lease import Lease
    from sparrow.client.settling import Key
    from sparrow.records.record import Record

MAX_TEXT: Final = 1000
"""Characters of an error or a reason; what is longer is cut."""
MAX_DELAY_S: Final = 30 * 86_400
MAX_EXTENSION_S: Final = 43_200
"""As for the `lease_ms` of a queue."""
OPEN: Final = -1
"""Not settled."""
_WORDS: Final = {ACK: "acknowledged", NACK: "nacked", REJECT: "rejected", RETURN: "released"}


def delay_ms_of(delay_s: float | None) -> int:
    """A delay as the wire has it; None: -1, as the queue's policy says.

    Raises:
        InvalidArgument: negative, more than 30 days, or no number.
    """
    if delay_s is None:
        return -1
    if not 0 <= delay_s <= MAX_DELAY_S:
        raise InvalidArgument(f"delay_s is {delay_s}; it must be 0 to {MAX_DELAY_S} seconds (30 days)")
    return round(delay_s * 1000)


def wire_text(text: str) -> str:
    """An error or a reason as the wire has it: cut, and with escapes for what is no Unicode, as in undecodable file names."""
    text = str(text)[:MAX_TEXT]  # many will say `error=exception`
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def extension_ms_of(seconds: float | None) -> int:
    """A lease's length as the wire has it; None: -1, the queue's own.

    Raises:
        InvalidArgument: not positive, or more than 12 hours.
    """
    if seconds is None:
        return -1
    if not 0 < seconds <= MAX_EXTENSION_S:
        raise InvalidArgument(
            f"a lease cannot be extended by {seconds} seconds; it must be more than 0, and at most {MAX_EXTENSION_S}"
        )
    return max(1, round(seconds * 1000))


def settled_before(what: str, verb: int) -> NotLeased:
    """The error of who settles something a second time."""
    return NotLeased(f"{what} was {_WORDS.get(verb, 'settled')} before; it is settled once")


class LeasedRecord:
    """What a job tells, without its verbs. Any thread may read it."""

    __slots__ = ("_deadline", "_settled_by", "delivery_count", "lease", "record")

    def __init__(self, lease: Lease, record: Record, delivery_count: int) -> None:
        self.lease = lease
        """What it came with."""
        self.record = record
        """The message itself."""
        self.delivery_count = delivery_count
        """Which delivery this is, from 1."""
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
        """When it was published (or appended, if its topic says so), ms since the epoch."""
        return self.record.timestamp

    @property
    def message_id(self) -> str:
        """The header `message-id`; "" without."""
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
        """When the lease ends, by this client's count: monotonic seconds, as `time.monotonic()` tells them."""
        return self._deadline or self.lease.deadline

    @property
    def is_settled(self) -> bool:
        """Whether one of the verbs that end the lease was called."""
        return self._settled_by != OPEN

    @property
    def is_lost(self) -> bool:
        """Whether its record was delivered again meanwhile."""
        return any(first <= self.record.offset <= last for first, last in self.lease.lost)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._place}, delivery {self.delivery_count}>"

    @property
    def _place(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"

    def mark_settled(self, verb: int) -> None:
        """It was settled with all of its batch."""
        self._settled_by = verb

    def check(self) -> None:
        """Raises NotLeased: settled before; LeaseExpired: delivered again meanwhile."""
        if self._settled_by != OPEN:
            raise settled_before(f"the job {self._place}", self._settled_by)
        if self.lease.lost:
            self.lease.check(self.offset, self.offset)

    def settle(self, key: Key, outcome: object) -> None:
        """Say what becomes of it. Loop thread only. Raises as `check`, and NotLeased where the queue is closed."""
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
        lease.held_until = max(lease.held_until, self._deadline)

    def nack_key(self, delay_s: float | None, error: str) -> Key:
        return self.lease.key(NACK, delay_ms_of(delay_s), wire_text(error))

    def reject_key(self, reason: str) -> Key:
        return self.lease.key(REJECT, -1, wire_text(reason))

    def give_back(self) -> None:
        """Ready again at once, unless it is settled; nobody minds if the lease is over. Loop thread only."""
        if self._settled_by == OPEN:
            self.lease.owner.submit(self.lease, self.lease.key(RETURN), self.offset, self.offset, QUIET)
            self._settled_by = RETURN


class Job(LeasedRecord):
    """A job of the asyncio client. Loop thread only.

    What the verbs raise (those that return a future: when it is awaited, unless it is known before):
        NotLeased: it was settled before, or its queue was closed. `LeaseExpired`: too late. `LeasedByAnother`.
        TimedOut: the broker did not answer within the client's `call_timeout_s`; whether it was done is not known.
        ConnectionLost: the client ended first.
    """

    __slots__ = ()

    def ack(self) -> asyncio.Future[None]:
        """Done with it: it is never delivered again."""
        future = self.lease.owner.loop.create_future()
        self.settle(self.lease.ack_key, future)
        return future

    def nack(self, delay_s: float | None = None, *, error: str = "") -> asyncio.Future[None]:
        """It failed: deliver it again, after `delay_s` seconds (None: the queue's backoff), or move it to the dead letters at the delivery limit.

        Args:
            error: kept with the dead letter; cut at 1000 characters.
        """
        return self._settled(self.nack_key(delay_s, error))

    def reject(self, reason: str = "") -> asyncio.Future[None]:
        """It is of no use: move it to the dead letters now. The reason is cut at 1000 characters."""
        return self._settled(self.reject_key(reason))

    def release(self) -> asyncio.Future[None]:
        """It was not worked at: ready again at once, and this delivery does not count."""
        return self._settled(self.lease.key(RETURN))

    def extend(self, seconds: float | None = None) -> asyncio.Future[None]:
        """The lease ends so many seconds from now (None: the queue's lease time). May be called as often as need be."""
        future = self.lease.owner.loop.create_future()
        self.lengthen(seconds, future)
        return future

    def ack_nowait(self) -> None:
        self.settle(self.lease.ack_key, None)

    def nack_nowait(self, delay_s: float | None = None, *, error: str = "") -> None:
        self.settle(self.nack_key(delay_s, error), None)

    def reject_nowait(self, reason: str = "") -> None:
        self.settle(self.reject_key(reason), None)

    def release_nowait(self) -> None:
        self.settle(self.lease.key(RETURN), None)

    def extend_nowait(self, seconds: float | None = None) -> None:
        self.lengthen(seconds, None)

    def _settled(self, key: Key) -> asyncio.Future[None]:
        future = self.lease.owner.loop.create_future()
        self.settle(key, future)
        return future
