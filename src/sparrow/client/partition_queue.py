"""The queue of batches for one partition: which one is sent next, and how responses change the
queue.

A batch moves through the queue like this. The state machine is pure: times and bytes are the
caller's.

    open ──full, or due──▶ ready ──numbered──▶ sent ──confirmed, or failed for good──▶ (gone)
                             ▲                  │
                             └── again ◀────────┴── refused for now, or the connection was lost

Rules that keep order and exactness for an idempotent producer (KIP-98):

- Sequences are assigned in the order in which batches are first sent, and never change under one
  identity.
- When one batch is refused, nothing more is sent until all sent batches are confirmed or refused
  (the broker refuses what follows a gap). Then all refused batches are sent again in their first
  order, with their first sequences.
- At most `MAX_IN_FLIGHT` batches are in flight: the broker remembers twice as many, so a batch that
  is sent again is always recognised.
- Until an identity's first batch is confirmed, only one is in flight: a broker that does not know
  the producer accepts any first sequence, so a second batch must not arrive first.
- Before sequences restart (another identity), every batch that the broker may have under the old
  ones is sent until it is confirmed or refused.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.client.batch import ProducerBatch

MAX_IN_FLIGHT = 16
SEQUENCE_MASK = 0x7FFFFFFF
"""Sequences are 31 bits and wrap to 0, as Kafka's do."""


class PartitionQueue:
    """The batches of one partition that wait to be sent or confirmed. Loop thread only."""

    __slots__ = (
        "again",
        "is_idempotent",
        "is_proven",
        "is_runnable",
        "next_sequence",
        "open",
        "partition",
        "ready",
        "refused",
        "retry_at",
        "sent",
        "topic",
    )

    def __init__(self, topic: str, partition: int, *, is_idempotent: bool) -> None:
        self.topic = topic
        self.partition = partition
        self.is_idempotent = is_idempotent
        self.open: ProducerBatch | None = None
        self.ready: deque[ProducerBatch] = deque()
        self.again: deque[ProducerBatch] = deque()
        """Sent before; they go first, in order."""
        self.sent: deque[ProducerBatch] = deque()
        """In flight, in order."""
        self.refused: list[ProducerBatch] = []
        self.next_sequence = 0
        self.is_proven = not is_idempotent
        self.retry_at = 0.0
        """Monotonic time before which nothing is sent again; 0 if that is past (`rested`)."""
        self.is_runnable = False
        """True while it is in the sender's queue of runnable partitions."""

    # ── content ───────────────────────────────────────────────────────────────────────────────────

    def batches(self) -> Iterator[ProducerBatch]:
        """Yield all batches that are not settled, oldest first."""
        yield from sorted((*self.again, *self.refused, *self.sent), key=_serial)
        yield from self.ready
        if self.open is not None:
            yield self.open

    @property
    def is_undecided(self) -> bool:
        """True if it is unknown whether the broker has one of the batches."""
        return bool(self.sent) or any(b.may_be_written for b in (*self.again, *self.refused))

    def close_open(self) -> None:
        """Close the open batch: it accepts no more messages."""
        batch, self.open = self.open, None
        if batch is not None:
            batch.is_open = False
            self.ready.append(batch)

    # ── choosing the next batch ───────────────────────────────────────────────────────────────────

    def next_batch(self, *, only_undecided: bool) -> ProducerBatch | None:
        """Return the batch to send now; None if there is none, or a response must be awaited first.

        Args:
            only_undecided: sequences will restart; send nothing new, only what the broker may have
                already.
        """
        if self.refused or self.retry_at or len(self.sent) >= (MAX_IN_FLIGHT if self.is_proven else 1):
            return None
        if only_undecided:
            return next((batch for batch in self.again if batch.may_be_written), None)
        if self.again:
            return self.again[0]
        if not self.ready and self.open is not None and self.open.is_due:
            self.close_open()
        return self.ready[0] if self.ready else None

    def number(self, batch: ProducerBatch) -> int:
        """Return the sequence of the batch's first record; -1 without idempotence."""
        if not self.is_idempotent or batch.sequence >= 0:
            return batch.sequence
        sequence = self.next_sequence
        self.next_sequence = (sequence + len(batch.timestamps)) & SEQUENCE_MASK
        return sequence

    def start(self, batch: ProducerBatch) -> None:
        """Mark the batch that `next_batch` returned as sent."""
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

    # ── responses ─────────────────────────────────────────────────────────────────────────────────

    def resolve(self, batch: ProducerBatch) -> None:
        """Remove a sent batch that is confirmed, or refused for good."""
        self._unsend(batch)
        if self.refused:
            self._resume()

    def confirm(self, batch: ProducerBatch) -> None:
        """Remove a sent batch that is confirmed."""
        self.is_proven = True
        self._unsend(batch)
        if self.refused:
            self._resume()

    def refuse(self, batch: ProducerBatch, *, may_be_written: bool, retry_at: float = 0.0) -> None:
        """Keep a sent batch that is refused for now, to be sent again."""
        self._unsend(batch)
        batch.may_be_written = may_be_written
        self.refused.append(batch)
        self.retry_at = max(self.retry_at, retry_at)
        self._resume()

    def rested(self) -> None:
        """Send again what was refused: the time for it has come."""
        self.retry_at = 0.0

    def connection_lost(self) -> list[ProducerBatch]:
        """Prepare to send all sent batches again. Return those that were already given up, which
        are dropped.
        """
        dropped = [batch for batch in self.sent if batch.is_settled]
        self._take_again(batch for batch in self.sent if not batch.is_settled)
        self.sent.clear()
        self._resume()
        return dropped

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a sent batch that is too large by its parts, each with its share of the
        sequences.
        """
        self._unsend(batch)
        self.refused.extend(parts)
        self._resume()

    def withdraw(self, batch: ProducerBatch) -> None:
        """Remove a batch that is given up. A sent one stays until it is confirmed or refused, or
        the connection is lost.
        """
        if batch is self.open:
            self.open = None
        for place in (self.ready, self.again, self.refused):
            if batch in place:
                place.remove(batch)
        self._resume()

    def leaves_gap(self, batch: ProducerBatch) -> bool:
        """Return True if giving this batch up leaves a gap in the sequences, so that they must
        restart.

        The last sequences are assigned again if nothing that carries them can still be on its way
        to the broker.
        """
        if not self.is_idempotent or batch.sequence < 0:
            return False
        if batch.sends <= 1 and not batch.may_be_written and self._end(batch) == self.next_sequence:
            self.next_sequence = batch.sequence
            return False
        return True

    @staticmethod
    def _end(batch: ProducerBatch) -> int:
        return (batch.sequence + len(batch)) & SEQUENCE_MASK

    def restart(self) -> None:
        """Restart the sequences at 0 for another identity, in the order of the batches."""
        self.next_sequence = 0
        self.is_proven = not self.is_idempotent
        for batch in (*self.again, *self.ready):
            batch.sequence = -1
            batch.may_be_written = False

    def _unsend(self, batch: ProducerBatch) -> None:
        if self.sent and self.sent[0] is batch:
            self.sent.popleft()
        else:
            self.sent.remove(batch)

    def _resume(self) -> None:
        """Queue refused batches again once nothing is in flight."""
        if self.refused and not self.sent:
            refused, self.refused = self.refused, []
            self._take_again(refused)

    def _take_again(self, batches: Iterator[ProducerBatch] | list[ProducerBatch]) -> None:
        self.again = deque(sorted((*self.again, *batches), key=_serial))


def _serial(batch: ProducerBatch) -> tuple[int, int]:
    return batch.serial, batch.first
