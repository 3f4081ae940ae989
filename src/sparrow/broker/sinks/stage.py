"""A stage: what one attempt of one task wrote of a batch, unseen until the batch is committed.

It is a transaction of the broker, on a transactional id out of a pool (`slots`): Kafka's clients and tools see it as such.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sparrow.broker.producer_ids import ProducerIdentity

if TYPE_CHECKING:
    import asyncio

    from sparrow.broker.partition import Published

PREFIX: Final = "sparrow-stage-"
"""Of the transactional ids of stages; nobody else gets such a one."""


@dataclass(slots=True, eq=False)
class Stage:
    """Changed by the coordinator alone. Loop thread only."""

    slot: int
    sink_id: str
    run: str
    batch: int
    task: int
    attempt: int
    timeout_ms: int
    opened_ms: int
    """Wall time."""
    producer_id: int = -1
    epoch: int = -1
    is_open: bool = True
    """Whether it takes batches: neither decided, nor being decided."""
    is_synced: bool = True
    """Whether all but what is `pending` is on stable storage; not known after a start."""
    pending: set[asyncio.Future[Published]] = field(default_factory=set)
    """Publishes that are not confirmed."""
    channels: int = 0
    """That publish into it now."""
    abandoned_s: float | None = None
    """When the last of them was lost (clock.monotonic) before its client had closed it; None after that, or when there is another."""
    failure: BaseException | None = None
    """Of a publish whose records may be there, but not on stable storage."""

    @property
    def stage_id(self) -> str:
        """What clients name it by; never given twice."""
        return f"{self.slot}-{self.producer_id}-{self.epoch}"

    @property
    def transactional_id(self) -> str:
        return f"{PREFIX}{self.slot}"

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)


def is_reserved(transactional_id: str) -> bool:
    """Whether only stages have such an id."""
    return transactional_id.startswith(PREFIX)


def slot_of(transactional_id: str) -> int | None:
    """The slot whose transactional id this is; None if it is no slot's."""
    number = transactional_id.removeprefix(PREFIX)
    return int(number) if is_reserved(transactional_id) and number.isdecimal() else None
