"""What a consumer says of leased records, on its way to the broker: many small settlements become few SETTLE frames.

Strategy: everything that is settled within one turn of the loop is sorted and merged into ranges, so that a thousand single acknowledgements
of neighbours cost one range. The broker answers per range and leaves a range that is not wholly leased as it was; so a range of several parts
that failed is sent once more, part by part, and each part gets the answer that is its own.

A statement whose link was lost before its answer came is sent again on the next one, and what the broker could not do now is sent again later.
It may have kept the first copy; then it answers the second that the record is not leased (any more). Therefore, of what was sent again:

- ack and reject: NOT_LEASED counts as done. LEASE_EXPIRED and LEASED_BY_ANOTHER do not: a record that was finished has no lease to end.
- nack and release: each of the three counts as done; the record is back in the queue, or beyond, which is all that was wanted.
- extend: nothing counts as done, for an extension that was kept can be made again.

A record that was nacked or released may be leased to the same consumer again before the answer is here. Then the broker has kept it, and to say it again
would end the new lease: so it counts as done at once, and is not repeated.

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
RETURN: Final = int(SettleVerb.RETURN)

MAX_RANGES: Final = 4096
"""Of one SETTLE; the broker takes no more than 256 KiB."""
MAX_STATEMENT_BYTES: Final = 192 << 10
_SETTLEMENT_BYTES: Final = 64
_RANGE_BYTES: Final = 19
_CHARACTER_BYTES: Final = 4
"""UTF-8 at its longest."""

Key: TypeAlias = "tuple[int, str, int, int, str, int]"
"""Verb, topic, partition, delay in ms (-1: by the policy), text, which delivery (0: any): what a `Settlement` says of all its ranges."""
Part: TypeAlias = "tuple[Key, int, int, Any]"
"""Key, first and last offset, and who waits: a future, a `Tally`, None (a failure is reported), or `QUIET`."""

_first_of = itemgetter(1)
_GIVES_BACK: Final = frozenset({NACK, RETURN})


class Quiet:
    """Nobody wants to know."""

    def done(self) -> bool:
        return True


QUIET: Final = Quiet()


class Tally:
    """One future for several parts: done when all are, with the first error if there was one."""

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


class Statement:
    """What one SETTLE says."""

    __slots__ = ("deadline", "is_again", "kept", "members", "not_before", "serial", "settlements")

    def __init__(self, serial: int, deadline: float) -> None:
        self.serial = serial
        """Grows with each turn; what is sent again keeps its own."""
        self.deadline = deadline
        """Monotonic time after which its answer is not waited for any more."""
        self.not_before = 0.0
        """Monotonic time before which it is not sent."""
        self.is_again = False
        """Whether the broker may have kept an earlier copy."""
        self.settlements: list[Settlement] = []
        self.members: list[list[Part]] = []
        """The parts of each settlement, by their first offset."""
        self.kept: list[Part] = []
        """Parts of which it is known before the answer that the broker has them."""

    def parts(self) -> Iterator[Part]:
        for members in self.members:
            yield from members

    def parts_of(self, topic: str, partition: int) -> Iterator[Part]:
        """Those that give records of a partition back."""
        for settlement, members in zip(self.settlements, self.members, strict=True):
            if settlement.verb in _GIVES_BACK and (settlement.topic, settlement.partition) == (
                topic,
                partition,
            ):
                yield from members


class Settling:
    """The settlements of one consumer. Loop thread only."""

    def __init__(self, failed: Callable[[Part, SparrowError], None]) -> None:
        """`failed` is told of parts that nobody waits for."""
        self._failed = failed
        self._pending: list[Part] = []
        self._unsent: list[Statement] = []
        self._sent: dict[int, Statement] = {}
        self._serial = 0
        self._next_ref = 0

    # ── what is there ─────────────────────────────────────────────────────────────────────────────

    @property
    def last_serial(self) -> int:
        """What was added until now has serials up to this one (`is_done` asks for them), once it was closed in."""
        return self._serial

    @property
    def is_empty(self) -> bool:
        return not (self._pending or self._unsent or self._sent)

    def is_done(self, serial: int) -> bool:
        """Whether everything up to a serial is answered."""
        return not self._pending and all(
            statement.serial > serial for statement in (*self._unsent, *self._sent.values())
        )

    def next_deadline(self) -> float | None:
        """When `expire` has something to do at the earliest; monotonic."""
        return min((s.deadline for s in (*self._unsent, *self._sent.values())), default=None)

    def next_rest(self) -> float | None:
        """The first `not_before` among what is not sent."""
        return min((s.not_before for s in self._unsent), default=None)

    # ── out ───────────────────────────────────────────────────────────────────────────────────────

    def add(self, part: Part) -> bool:
        """Take a part in; True when it is the first since `close_in`."""
        self._pending.append(part)
        return len(self._pending) == 1

    def close_in(self, deadline: float) -> None:
        """Make statements of what was added."""
        pending = self._pending
        if pending:
            self._pending = []
            self._serial += 1
            self._unsent += composed(pending, self._serial, deadline)

    def take(self, now: float) -> list[Settle]:
        """What is to be sent now; from here on it is unanswered."""
        unsent, self._unsent = self._unsent, []
        taken = []
        for statement in unsent:
            if statement.not_before > now:
                self._unsent.append(statement)
                continue
            self._next_ref += 1
            self._sent[self._next_ref] = statement
            taken.append(Settle(self._next_ref, statement.settlements))
        return taken

    # ── answers ───────────────────────────────────────────────────────────────────────────────────

    def answer(self, head: Settled, retry_at: float) -> bool:
        """Take an answer in; what may pass is sent again at `retry_at`. False if nobody waits for it any more."""
        statement = self._sent.pop(head.ref, None)
        if statement is None:
            return False
        if head.failures:
            self._partly(statement, head.failures, retry_at)
        else:
            for members in statement.members:
                _complete(members)
        return True

    def _partly(self, statement: Statement, failures: Iterable[SettleFailure], retry_at: float) -> None:
        failed = {(failure.settlement, failure.range): failure for failure in failures}
        again: list[Part] = []
        later: list[Part] = []
        for index, settlement in enumerate(statement.settlements):
            for position, (first, last) in enumerate(settlement.ranges):
                members = [p for p in statement.members[index] if first <= p[1] and p[2] <= last]
                failure = failed.get((index, position))
                if failure is None:
                    _complete(members)
                elif failure.retriable:
                    later += members
                elif len(members) > 1:
                    again += members
                else:
                    self._refused(members, from_code(failure.code, failure.text), is_again=statement.is_again)
        self._repeat(again, statement, 0.0, is_again=statement.is_again)
        self._repeat(later, statement, retry_at, is_again=True)

    def _refused(self, members: list[Part], error: SparrowError, *, is_again: bool) -> None:
        for part in members:
            if is_again and _counts_as_done(part[0][0], error):
                _complete([part])
            else:
                self.fail_part(part, error)

    def _repeat(self, parts: list[Part], former: Statement, not_before: float, *, is_again: bool) -> None:
        """Send parts once more, each as a range of its own."""
        for statement in composed(parts, former.serial, former.deadline, is_merged=False):
            statement.is_again = is_again
            statement.not_before = not_before
            self._unsent.append(statement)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────

    def leased_again(self, topic: str, partition: int, ranges: Sequence[tuple[int, int, int]]) -> None:
        """Records came: what is unanswered and gave some of them back was kept."""
        for statement in self._sent.values():
            for part in statement.parts_of(topic, partition):
                if any(first <= part[2] and part[1] <= last for first, last, _ in ranges):
                    statement.kept.append(part)
                    _complete([part])

    def link_lost(self) -> None:
        """What is unanswered is sent again on the next link."""
        sent, self._sent = self._sent, {}
        again: list[Statement] = []
        for statement in sent.values():
            if statement.kept:
                parts = [part for part in statement.parts() if part not in statement.kept]
                again += composed(parts, statement.serial, statement.deadline)
            else:
                again.append(statement)
        for statement in again:
            statement.is_again = True
        self._unsent[:0] = again

    def expire(self, now: float, why: Callable[[Part], TimedOut]) -> int:
        """Give up what is overdue; returns how many answers are not waited for any more."""
        overdue = [ref for ref, statement in self._sent.items() if statement.deadline <= now]
        late = [self._sent.pop(ref) for ref in overdue]
        late += [statement for statement in self._unsent if statement.deadline <= now]
        self._unsent = [statement for statement in self._unsent if statement.deadline > now]
        for statement in late:
            for part in statement.parts():
                self.fail_part(part, why(part))
        return len(overdue)

    def fail(self, error: SparrowError) -> None:
        """Nothing will be answered any more."""
        statements = [*self._sent.values(), *self._unsent]
        pending = self._pending
        self._sent, self._unsent, self._pending = {}, [], []
        for part in (*(part for statement in statements for part in statement.parts()), *pending):
            self.fail_part(part, error)

    def fail_part(self, part: Part, error: SparrowError) -> None:
        """Tell whoever waits for a part, or else the owner."""
        outcome = part[3]
        if outcome is None:
            self._failed(part, error)
        elif not outcome.done():
            outcome.set_exception(type(error)(*error.args))


def composed(
    parts: Iterable[Part], serial: int, deadline: float, *, is_merged: bool = True
) -> list[Statement]:
    """Statements that say all of this, each within the limits of a frame. Extensions go first: an ack of the same record may follow."""
    groups: dict[Key, list[Part]] = {}
    for part in parts:
        members = groups.get(part[0])
        if members is None:
            groups[part[0]] = [part]
        else:
            members.append(part)
    items = list(groups.items())
    if len(items) > 1:
        items.sort(key=_is_no_extension)
    statements: list[Statement] = []
    room_ranges = room_bytes = 0
    for key, members in items:
        members.sort(key=_first_of)
        for ranges, owners in _ranges(members, is_merged=is_merged):
            verb, topic, partition, delay_ms, text, delivery = key
            size_bytes = _SETTLEMENT_BYTES + _CHARACTER_BYTES * (len(topic) + len(text))
            size_bytes += _RANGE_BYTES * len(ranges)
            if not statements or len(ranges) > room_ranges or size_bytes > room_bytes:
                statements.append(Statement(serial, deadline))
                room_ranges, room_bytes = MAX_RANGES, MAX_STATEMENT_BYTES
            statements[-1].settlements.append(
                Settlement(verb, topic, partition, ranges, delay_ms, text, delivery)
            )
            statements[-1].members.append(owners)
            room_ranges -= len(ranges)
            room_bytes -= size_bytes
    return statements


def _is_no_extension(item: tuple[Key, list[Part]]) -> bool:
    return item[0][0] != EXTEND


def _ranges(members: list[Part], *, is_merged: bool) -> Iterator[tuple[list[tuple[int, int]], list[Part]]]:
    """Sorted parts as ranges, neighbours merged, with the parts they are made of; at most `MAX_RANGES` at a time."""
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
            yield ranges, members[start:index]
            ranges, start = [], index
        first, last = next_first, next_last
    ranges.append((first, last))
    yield ranges, members[start:] if start else members


def _complete(members: list[Part]) -> None:
    for part in members:
        outcome = part[3]
        if outcome is not None and not outcome.done():
            outcome.set_result(None)


def _counts_as_done(verb: int, error: SparrowError) -> bool:
    if verb in {ACK, REJECT}:
        return isinstance(error, NotLeased) and not isinstance(error, LeaseExpired | LeasedByAnother)
    return verb in _GIVES_BACK and isinstance(error, NotLeased)
