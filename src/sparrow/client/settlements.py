"""Settlements of leased records, on their way to the broker: many small settlements become few
SETTLE frames.

Strategy: everything that is settled within one iteration of the loop is sorted and merged into
ranges, so that a thousand single acknowledgements of neighbours cost one range. The broker responds
per range, and leaves a range unchanged that is not wholly leased; so a range of several parts that
failed is sent again part by part, and each part gets its own result.

A request whose connection was lost before its response is sent again on the next one, and
settlements that the broker cannot make now are sent again later. The broker may have kept the first
copy; then it reports for the second that the record is not leased (any more). Therefore, for
repeated settlements:

- ack and reject: NOT_LEASED counts as success. LEASE_EXPIRED and LEASED_BY_ANOTHER do not: a record
  that was finished has no lease to end.
- nack and release: each of the three counts as success; the record is back in the queue, or beyond,
  as intended.
- extend: none of them counts as success, because an extension that was kept can be repeated.

A record that was nacked or released may be leased to the same consumer again before the response
arrives. Then the broker has kept the settlement, and repeating it would end the new lease: so it
counts as success at once, and is not repeated.

Pure: no loop, no socket, no clock; futures are only completed.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sparrow.base.errors import LeasedByAnother, LeaseExpired, NotLeased, SparrowError, TimedOut, from_code
from sparrow.protocol.native.messages import Settle, Settlement, SettleVerb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sparrow.protocol.native.messages import Settled, SettleFailure

ACK: Final = int(SettleVerb.ACK)
NACK: Final = int(SettleVerb.NACK)
REJECT: Final = int(SettleVerb.REJECT)
EXTEND: Final = int(SettleVerb.EXTEND)
RELEASE: Final = int(SettleVerb.RETURN)

MAX_RANGES: Final = 4096
"""Limit of one SETTLE; the broker accepts at most 256 KiB."""
MAX_REQUEST_BYTES: Final = 192 << 10
_SETTLEMENT_BYTES: Final = 64
_RANGE_BYTES: Final = 19
_CHARACTER_BYTES: Final = 4
"""Bytes of the longest character in UTF-8."""

SettlementKey: TypeAlias = "tuple[int, str, int, int, str, int]"
"""Kind of settlement, topic, partition, delay in ms (-1: by the policy), text, number of the
delivery (0: any): the fields of a `Settlement` that all its ranges share.
"""
Part: TypeAlias = "tuple[SettlementKey, int, int, Any]"
"""Key, first and last offset, and the waiter: a future, a `CountdownFuture`, None (a failure is
reported), or `QUIET`.
"""

_first_of = itemgetter(1)
_RELEASING: Final = frozenset({NACK, RELEASE})


class Quiet:
    """A waiter that ignores the result."""

    def done(self) -> bool:
        return True


QUIET: Final = Quiet()


class CountdownFuture:
    """A waiter that completes one future for several parts: when all are done, with the first error
    if there was one.
    """

    __slots__ = ("_error", "_future", "_left")

    def __init__(self, parts: int, future: Any) -> None:
        self._left = parts
        self._future = future
        self._error: SparrowError | None = None

    def done(self) -> bool:
        return bool(self._future.done())

    def set_result(self, _: None) -> None:
        self._count(None)

    def set_exception(self, error: SparrowError) -> None:
        self._count(error)

    def _count(self, error: SparrowError | None) -> None:
        self._left -= 1
        self._error = self._error or error
        if self._left <= 0 and not self._future.done():
            if self._error is None:
                self._future.set_result(None)
            else:
                self._future.set_exception(self._error)


class SettleRequest:
    """The content of one SETTLE frame."""

    __slots__ = (
        "deadline",
        "is_releasing",
        "is_repeated",
        "kept",
        "members",
        "not_before",
        "serial",
        "settlements",
    )

    def __init__(self, serial: int, deadline: float) -> None:
        self.serial = serial
        """Grows with each `build`; repeated requests keep theirs."""
        self.deadline = deadline
        """Monotonic time after which its response is not waited for any more."""
        self.not_before = 0.0
        """Monotonic time before which it is not sent."""
        self.is_repeated = False
        """True if the broker may have kept an earlier copy."""
        self.is_releasing = False
        """True if some of it nacks or releases."""
        self.settlements: list[Settlement] = []
        self.members: list[list[Part]] = []
        """The parts of each settlement, by their first offset."""
        self.kept: list[Part] = []
        """Parts that the broker is known to have kept, before its response."""

    def parts(self) -> Iterator[Part]:
        for members in self.members:
            yield from members

    def parts_of(self, topic: str, partition: int) -> Iterator[Part]:
        """Yield the parts that nack or release records of a partition."""
        for settlement, members in zip(self.settlements, self.members, strict=True):
            if settlement.verb in _RELEASING and (settlement.topic, settlement.partition) == (
                topic,
                partition,
            ):
                yield from members


class Settlements:
    """The settlements of one consumer. Loop thread only."""

    def __init__(self, failed: Callable[[Part, SparrowError], None]) -> None:
        """Create an empty set. `failed` is called with failed parts whose waiter is None."""
        self._failed = failed
        self._pending: list[Part] = []
        self._unsent: list[SettleRequest] = []
        self._sent: dict[int, SettleRequest] = {}
        self._serial = 0
        self._next_ref = 0

    # ── content ───────────────────────────────────────────────────────────────────────────────────

    @property
    def last_serial(self) -> int:
        """The highest serial of the parts that were added before the last `build`, for
        `is_done`.
        """
        return self._serial

    @property
    def is_empty(self) -> bool:
        return not (self._pending or self._unsent or self._sent)

    def is_done(self, serial: int) -> bool:
        """Return True if everything up to a serial is confirmed or failed."""
        return not self._pending and all(
            request.serial > serial for request in (*self._unsent, *self._sent.values())
        )

    def unconfirmed(self) -> list[Part]:
        """Return the parts that the broker has not confirmed, without extensions. Any thread, while
        that of the loop is blocked.
        """
        requests = (*self._sent.values(), *self._unsent)
        parts = [part for request in requests for part in request.parts() if part not in request.kept]
        return [part for part in (*parts, *self._pending) if part[0][0] != EXTEND]

    def next_deadline(self) -> float | None:
        """Return the monotonic time at which `expire` next has something to do, or None."""
        return min((s.deadline for s in (*self._unsent, *self._sent.values())), default=None)

    def next_retry_at(self) -> float | None:
        """Return the first `not_before` among unsent requests, or None."""
        return min((s.not_before for s in self._unsent), default=None)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def add(self, part: Part) -> None:
        """Add a part, for the next `build`."""
        self._pending.append(part)

    def build(self, deadline: float) -> None:
        """Make requests of the added parts."""
        pending = self._pending
        if pending:
            self._pending = []
            self._serial += 1
            self._unsent += build_requests(pending, self._serial, deadline)

    def take(self, now: float) -> list[Settle]:
        """Return the requests to send now, and count them as sent."""
        unsent, self._unsent = self._unsent, []
        taken = []
        for request in unsent:
            if request.not_before > now:
                self._unsent.append(request)
                continue
            self._next_ref += 1
            self._sent[self._next_ref] = request
            taken.append(Settle(self._next_ref, request.settlements))
        return taken

    # ── responses ─────────────────────────────────────────────────────────────────────────────────

    def handle_reply(self, head: Settled, retry_at: float) -> bool:
        """Handle a response; retriable failures are sent again at `retry_at`. Return False if the
        request is not waited for any more.
        """
        request = self._sent.pop(head.ref, None)
        if request is None:
            return False
        if head.failures:
            self._partly(request, head.failures, retry_at)
        else:
            for members in request.members:
                _complete(members)
        return True

    def _partly(self, request: SettleRequest, failures: Iterable[SettleFailure], retry_at: float) -> None:
        failed = {(failure.settlement, failure.range): failure for failure in failures}
        again: list[Part] = []
        later: list[Part] = []
        for index, settlement in enumerate(request.settlements):
            for position, (first, last) in enumerate(settlement.ranges):
                members = [p for p in request.members[index] if first <= p[1] and p[2] <= last]
                failure = failed.get((index, position))
                if failure is None:
                    _complete(members)
                elif failure.retriable:
                    later += members
                elif len(members) > 1:
                    again += members
                else:
                    self._refused(
                        members, from_code(failure.code, failure.text), is_repeated=request.is_repeated
                    )
        self._repeat(again, request, 0.0, is_repeated=request.is_repeated)
        self._repeat(later, request, retry_at, is_repeated=True)

    def _refused(self, members: list[Part], error: SparrowError, *, is_repeated: bool) -> None:
        for part in members:
            if is_repeated and _counts_as_done(part[0][0], error):
                _complete([part])
            else:
                self.fail_part(part, error)

    def _repeat(
        self, parts: list[Part], former: SettleRequest, not_before: float, *, is_repeated: bool
    ) -> None:
        """Send parts again, each as its own range."""
        for request in build_requests(parts, former.serial, former.deadline, is_merged=False):
            request.is_repeated = is_repeated
            request.not_before = not_before
            self._unsent.append(request)

    # ── lost connections and deadlines ────────────────────────────────────────────────────────────

    def leased_again(self, topic: str, partition: int, ranges: Sequence[tuple[int, int, int]]) -> None:
        """Complete unconfirmed nacks and releases of records that were leased again: the broker has
        kept them.
        """
        for request in self._sent.values():
            if not request.is_releasing:
                continue
            for part in request.parts_of(topic, partition):
                if any(first <= part[2] and part[1] <= last for first, last, _ in ranges):
                    request.kept.append(part)
                    _complete([part])

    def connection_lost(self) -> None:
        """Prepare to send all unconfirmed requests again on the next connection."""
        sent, self._sent = self._sent, {}
        again: list[SettleRequest] = []
        for request in sent.values():
            if request.kept:
                parts = [part for part in request.parts() if part not in request.kept]
                again += build_requests(parts, request.serial, request.deadline)
            else:
                again.append(request)
        for request in again:
            request.is_repeated = True
        self._unsent[:0] = again

    def expire(self, now: float, why: Callable[[Part], TimedOut]) -> int:
        """Fail overdue requests; return the number of responses that are not waited for any
        more.
        """
        overdue = [ref for ref, request in self._sent.items() if request.deadline <= now]
        late = [self._sent.pop(ref) for ref in overdue]
        late += [request for request in self._unsent if request.deadline <= now]
        self._unsent = [request for request in self._unsent if request.deadline > now]
        for request in late:
            for part in request.parts():
                self.fail_part(part, why(part))
        return len(overdue)

    def fail(self, error: SparrowError) -> None:
        """Fail everything, as no response will come."""
        requests = [*self._sent.values(), *self._unsent]
        pending = self._pending
        self._sent, self._unsent, self._pending = {}, [], []
        for part in (*(part for request in requests for part in request.parts()), *pending):
            self.fail_part(part, error)

    def fail_part(self, part: Part, error: SparrowError) -> None:
        """Fail a part: tell its waiter, or report it if there is none."""
        outcome = part[3]
        if outcome is None:
            self._failed(part, error)
        elif not outcome.done():
            outcome.set_exception(type(error)(*error.args))


def build_requests(
    parts: Iterable[Part], serial: int, deadline: float, *, is_merged: bool = True
) -> list[SettleRequest]:
    """Return requests with all these parts, each within the limits of a frame. Extensions go first:
    an ack of the same record may follow.
    """
    groups: dict[SettlementKey, list[Part]] = {}
    for part in parts:
        members = groups.get(part[0])
        if members is None:
            groups[part[0]] = [part]
        else:
            members.append(part)
    items = list(groups.items())
    if len(items) > 1:
        items.sort(key=_is_no_extension)
    requests: list[SettleRequest] = []
    room_ranges = room_bytes = 0
    for key, members in items:
        members.sort(key=_first_of)
        for ranges, owners in _ranges(members, is_merged=is_merged):
            verb, topic, partition, delay_ms, text, delivery = key
            size_bytes = _SETTLEMENT_BYTES + _CHARACTER_BYTES * (len(topic) + len(text))
            size_bytes += _RANGE_BYTES * len(ranges)
            if not requests or len(ranges) > room_ranges or size_bytes > room_bytes:
                requests.append(SettleRequest(serial, deadline))
                room_ranges, room_bytes = MAX_RANGES, MAX_REQUEST_BYTES
            request = requests[-1]
            request.settlements.append(Settlement(verb, topic, partition, ranges, delay_ms, text, delivery))
            request.members.append(owners)
            request.is_releasing = request.is_releasing or verb in _RELEASING
            room_ranges -= len(ranges)
            room_bytes -= size_bytes
    return requests


def _is_no_extension(item: tuple[SettlementKey, list[Part]]) -> bool:
    return item[0][0] != EXTEND


def _ranges(members: list[Part], *, is_merged: bool) -> list[tuple[list[tuple[int, int]], list[Part]]]:
    """Return sorted parts as ranges, neighbours merged, with the parts they are made of; at most
    `MAX_RANGES` in each element.
    """
    full: list[tuple[list[tuple[int, int]], list[Part]]] = []
    ranges: list[tuple[int, int]] = []
    start = 0
    _, first, last, _ = members[0]
    for index in range(1, len(members)):
        _, next_first, next_last, _ = members[index]
        if next_first == last + 1 and is_merged:
            last = next_last
            continue
        ranges.append((first, last))
        if len(ranges) == MAX_RANGES:
            full.append((ranges, members[start:index]))
            ranges, start = [], index
        first, last = next_first, next_last
    ranges.append((first, last))
    full.append((ranges, members[start:] if start else members))
    return full


def _complete(members: list[Part]) -> None:
    for part in members:
        outcome = part[3]
        if outcome is not None and not outcome.done():
            outcome.set_result(None)


def _counts_as_done(verb: int, error: SparrowError) -> bool:
    if verb in {ACK, REJECT}:
        return isinstance(error, NotLeased) and not isinstance(error, LeaseExpired | LeasedByAnother)
    return verb in _RELEASING and isinstance(error, NotLeased)
