"""Producer identities: numbers never given twice, taken from the meta store in blocks.

A block is reserved durably before its first number is handed out, so a crash wastes numbers and repeats none.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.base.errors import UnknownProducer
from sparrow.meta.store import Put

if TYPE_CHECKING:
    from sparrow.meta.store import MetaStore

BLOCK = 1000
_KIND = "counter"
_KEY = "producer-id"


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What an idempotent producer writes into its batches."""

    producer_id: int
    epoch: int


class ProducerIds:
    """Hands out producer ids; one per broker."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._next = 0
        self._reserved = 0
        self._reserving = asyncio.Lock()

    async def load(self) -> None:
        """Continue behind everything that was ever reserved."""
        fact = await self._meta.get(_KIND, _KEY)
        self._next = self._reserved = int(fact.value) if fact else 0

    async def allocate(self) -> ProducerIdentity:
        """A new identity, epoch 0."""
        async with self._reserving:
            if self._next == self._reserved:
                reserved = self._reserved + BLOCK
                await self._meta.write([Put(_KIND, _KEY, str(reserved).encode())])
                self._reserved = reserved
            self._next += 1
            return ProducerIdentity(self._next - 1, 0)

    def resume(self, producer_id: int, epoch: int) -> ProducerIdentity:
        """An identity that was handed out before, for a producer that reconnects.

        Raises:
            UnknownProducer: this broker never handed it out.
        """
        if not 0 <= producer_id < self._next or epoch < 0:
            raise UnknownProducer(
                f"producer {producer_id} was not made by this broker; open the producer with a new identity"
            )
        return ProducerIdentity(producer_id, epoch)
