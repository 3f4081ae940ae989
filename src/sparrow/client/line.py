"""The line of batches for one partition: which one goes next, and what an answer changes.

A batch moves through the line like this; the state machine is pure, times and bytes are the caller's:

    open ──full, or due──▶ ready ──numbered──▶ sent ──confirmed, or failed for good──▶ (gone)
                             ▲                  │
                             └── again ◀────────┴── refused for now, or the link was lost

Rules, which keep order and exactness for an idempotent producer (KIP-98):

- Sequences are given in the order in which batches are first sent and never change under one identity.
- When one batch is refused, nothing more is sent until all that were sent are answered (the broker refuses what follows a gap);
  then everything refused is sent again in its first order, with its first sequences.
- At most `MAX_IN_FLIGHT` batches are unanswered: the broker remembers twice as many, so a batch sent again is always recognised.
- Until an identity's first batch is confirmed, only one is under way: a broker that does not know the producer takes any first
  sequence, so a second batch must not come to be the first.
- Before sequences start anew (another identity), every batch that the broker may have under the old ones is sent until answered.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from sparrow.client.delivery import Batch

MAX_IN_FLIGHT = 16
SEQUENCE_MASK = 0x7FFFFFFF
"""Sequences are 31 bits and wrap to 0, as Kafka's do."""


class Line:
    """Loop thread only."""

    __slots__ = (
        "again",
        "is_idempotent",
        "is_proven",
        "is_queued",
        "loop",
        "next_sequence",
        "open",
        "partition",
        "ready",
        "refused",
        "retry_at",
        "sent",
        "topic",
    )

    def __init__(
        self, topic: str, partition: int, loop: asyncio.AbstractEventLoop, *, is_idempotent: bool
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.loop = loop
        self.is_idempotent = is_idempotent
        self.open: Batch | None = None
        self.ready: deque[Batch] = deque()
        self.again: deque[Batch] = deque()
        """Were sent before; go first, in order."""
        self.sent: deque[Batch] = deque()
        """Unanswered, in order."""
        self.refused: list[Batch] = []
        self.next_sequence = 0
        self.is_proven = not is_idempotent
        self.retry_at = 0.0
        """Monotonic time before which nothing is sent again."""
        self.is_queued = False
        """Whether it stands in the dispatcher's queue."""

    # ── what is there ─────────────────────────────────────────────────────────────────────────────

    def batches(self) -> Iterator[Batch]:
        """All that are not settled, oldest first."""
        yield from sorted((*self.again, *self.refused, *self.sent), key=_serial)
        yield from self.ready
        if self.open is not None:
            yield self.open

    @property
    def is_undecided(self) -> bool:
        """Whether the broker may have a batch of which it is not known."""
        return bool(self.sent) or any(b.may_be_written for b in (*self.again, *self.refused))

    def close_open(self) -> None:
        """The open batch takes no more."""
        batch, self.open = self.open, None
        if batch is not None:
            batch.is_open = False
            self.ready.append(batch)

    # ── what goes next ────────────────────────────────────────────────────────────────────────────

    def next_batch(self, now: float, *, only_undecided: bool) -> Batch | None:
        """The batch to send now, or None: nothing is there, or something must be awaited first.

        Args:
            only_undecided: sequences will start anew; nothing new is sent, only what the broker may have already.
        """
        if self.refused or now < self.retry_at or len(self.sent) >= (MAX_IN_FLIGHT if self.is_proven else 1):
            return None
        if only_undecided:
            return next((batch for batch in self.again if batch.may_be_written), None)
        if self.again:
            return self.again[0]
        if not self.ready and self.open is not None and self.open.is_due:
            self.close_open()
        return self.ready[0] if self.ready else None

    def number(self, batch: Batch) -> int:
        """The sequence of the batch's first record; -1 without idempotence."""
        if not self.is_idempotent or batch.sequence >= 0:
            return batch.sequence
        sequence = self.next_sequence
        self.next_sequence = (sequence + len(batch)) & SEQUENCE_MASK
        return sequence

    def start(self, batch: Batch) -> None:
        """The batch that `next_batch` gave is sent."""
        if self.again and batch is not self.again[0]:
            self.again.remove(batch)
        elif self.again:
            self.again.popleft()
        else:
            self.ready.popleft()
        batch.sends += 1
        batch.was_unsure = batch.may_be_written
        batch.may_be_written = True
        self.sent.append(batch)

    # ── answers ───────────────────────────────────────────────────────────────────────────────────

    def answered(self, batch: Batch) -> None:
        """The batch was taken, or is refused for good."""
        self._unsend(batch)
        self._resume()

    def confirmed(self, batch: Batch) -> None:
        """The batch was taken."""
        self.is_proven = True
        self.answered(batch)

    def refuse(self, batch: Batch, *, may_be_written: bool, retry_at: float = 0.0) -> None:
        """The batch was not taken now."""
        self._unsend(batch)
        batch.may_be_written = may_be_written
        self.refused.append(batch)
        self.retry_at = max(self.retry_at, retry_at)
        self._resume()

    def link_lost(self) -> list[Batch]:
        """Nothing that was sent will be answered any more. Returns those already given up, which are dropped."""
        dropped = [batch for batch in self.sent if batch.is_settled]
        self._take_again(batch for batch in self.sent if not batch.is_settled)
        self.sent.clear()
        self._resume()
        return dropped

    def replace(self, batch: Batch, parts: list[Batch]) -> None:
        """The sent batch is too large: its parts go in its place, each with its share of the sequences."""
        self._unsend(batch)
        self.refused.extend(parts)
        self._resume()

    def withdraw(self, batch: Batch) -> None:
        """The batch is given up. One that is sent stays in its place until it is answered or the link is lost."""
        if batch is self.open:
            self.open = None
        for place in (self.ready, self.again, self.refused):
            if batch in place:
                place.remove(batch)
        self._resume()

    def leaves_gap(self, batch: Batch) -> bool:
        """Whether giving this batch up leaves a gap in the sequences, so that they must start anew.

        The last sequences may be given again if nothing that carries them can still be on its way to the broker.
        """
        if not self.is_idempotent or batch.sequence < 0:
            return False
        if batch.sends <= 1 and not batch.may_be_written and self._end(batch) == self.next_sequence:
            self.next_sequence = batch.sequence
            return False
        return True

    @staticmethod
    def _end(batch: Batch) -> int:
        return (batch.sequence + len(batch)) & SEQUENCE_MASK

    def restart(self) -> None:
        """Another identity: sequences start at 0, in the order of the batches."""
        self.next_sequence = 0
        self.is_proven = not self.is_idempotent
        for batch in (*self.again, *self.ready):
            batch.sequence = -1
            batch.may_be_written = False

    def _unsend(self, batch: Batch) -> None:
        if self.sent and self.sent[0] is batch:
            self.sent.popleft()
        else:
            self.sent.remove(batch)

    def _resume(self) -> None:
        """When all is answered, what was refused may go again."""
        if self.refused and not self.sent:
            refused, self.refused = self.refused, []
            self._take_again(refused)

    def _take_again(self, batches: Iterator[Batch] | list[Batch]) -> None:
        self.again = deque(sorted((*self.again, *batches), key=_serial))


def _serial(batch: Batch) -> tuple[int, int]:
    return batch.serial, batch.first
