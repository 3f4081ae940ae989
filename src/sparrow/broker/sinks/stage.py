"""A stage: the output of one attempt of one task for a batch, invisible until the batch is
committed.

It is a transaction of the broker, with a transactional id from a pool of slots (`stage_table`):
Kafka's clients and tools see it as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from sparrow.broker.producer_ids import ProducerIdentity

if TYPE_CHECKING:
    import asyncio

    from sparrow.broker.publishes import Published

PREFIX: Final = "sparrow-stage-"
"""Prefix of the transactional ids of stages; no other producer can have such an id."""


class Stage(Struct, eq=False):
    """One stage. Only the coordinator changes it. Loop thread only."""

    slot: int
    sink_id: str
    run: str
    batch: int
    task: int
    attempt: int
    timeout_ms: int
    opened_ms: int
    """Wall time, in ms."""
    producer_id: int = -1
    epoch: int = -1
    is_open: bool = True
    """True if it takes batches: neither decided, nor being decided."""
    is_synced: bool = True
    """True if everything except `pending` is on stable storage; not known after a start."""
    pending: set[asyncio.Future[Published]] = field(default_factory=set)
    """Publishes that are not confirmed."""
    channels: int = 0
    """The number of channels that publish into it now."""
    abandoned_s: float | None = None
    """The time (clock.monotonic, s) at which the last channel was lost before its client had closed
    it; None otherwise.
    """
    failure: BaseException | None = None
    """Error of a publish whose records may be in the log, but not on stable storage."""

    @property
    def stage_id(self) -> str:
        """The id that clients use; never given twice."""
        return f"{self.slot}-{self.producer_id}-{self.epoch}"

    @property
    def transactional_id(self) -> str:
        return f"{PREFIX}{self.slot}"

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)


def is_reserved(transactional_id: str) -> bool:
    """Return True if only stages may have the transactional id."""
    return transactional_id.startswith(PREFIX)


def slot_of(transactional_id: str) -> int | None:
    """Return the slot that has this transactional id, or None."""
    number = transactional_id.removeprefix(PREFIX)
    return int(number) if is_reserved(transactional_id) and number.isdecimal() else None
