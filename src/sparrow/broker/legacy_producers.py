"""Producer ids of the plain counter that earlier versions used, after an upgrade.

The owners of such ids were not stored. So the first principal that continues with one, in a
partition that remembers it, owns it from then on: an entry per id, written before the first batch
is accepted. Until the entry is durable the batch is refused with an error after which every client
retries. An id that its rightful producer did not claim in time is refused to it, which ends that
producer with an error; no confirmed message is lost by that.

The old counter's entry is left as it is, so an older version that is started again continues with
it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import Overloaded, SparrowError
from sparrow.meta.store import ABSENT, Put

if TYPE_CHECKING:
    from sparrow.meta.store import MetaStore

_LOG = logging.getLogger(__name__)
_COUNTER_KIND: Final = "counter"
_COUNTER_KEY: Final = "producer-id"
KIND: Final = "legacy-producer"


class LegacyProducers:
    """Owners of the old ids that are still in use. Loop thread only; `load` first."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self.end = 0
        """Every id below this may be one of the plain counter; 0 in a directory that never had
        it.
        """
        self._owners: dict[int, str] = {}
        self._claims: dict[int, asyncio.Task[None]] = {}

    async def load(self) -> None:
        """Read the stored owners."""
        entry = await self._meta.get(_COUNTER_KIND, _COUNTER_KEY)
        self.end = int(entry.value) if entry else 0
        for each in await self._meta.scan(KIND):
            self._owners[int(each.key)] = each.value.decode()

    def may_resume(self, producer_id: int, owner: str) -> bool:
        """Return True unless the id belongs to another principal."""
        return producer_id < self.end and self._owners.get(producer_id, owner) == owner

    def is_owned(self, producer_id: int, owner: str, *, is_remembered: bool) -> bool:
        """Return True if `owner` has the id.

        Args:
            is_remembered: the partition that is written to knows the producer.

        Raises:
            Overloaded: the id had no owner so far; the owner is being stored. The client retries.
        """
        known = self._owners.get(producer_id)
        if known is not None or not is_remembered:
            return known == owner
        if producer_id not in self._claims:
            claim = asyncio.get_running_loop().create_task(self._claim(producer_id, owner))
            self._claims[producer_id] = claim
        raise Overloaded(
            f"producer {producer_id} was made by an earlier version of the broker, and "
            "its owner is being stored; try again in a moment"
        )

    async def _claim(self, producer_id: int, owner: str) -> None:
        try:
            await self._meta.write([Put(KIND, str(producer_id), owner.encode(), ABSENT)])
            self._owners[producer_id] = owner
        except SparrowError as error:
            _LOG.warning("the owner of producer %d could not be stored: %s", producer_id, error.text)
        finally:
            del self._claims[producer_id]

    async def settle(self) -> None:
        """Wait for writes that have begun."""
        await asyncio.gather(*self._claims.values())
