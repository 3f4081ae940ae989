"""The parts that all logs of a shard's store share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.cluster.ledger import EntryRow
from sparrow.cluster.log_entries import CLEAN_KIND, NUMBER_KIND
from sparrow.cluster.settlement import settle_future
from sparrow.storage.damage import Damages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.base.errors import SparrowError
    from sparrow.cluster.committer import Group, ShardCommitter
    from sparrow.cluster.payloads import CommitPayload, PayloadCache

TRUST_POLL_S: Final = 0.02


class StoreResources:
    """The committer and the cache of a shard, the damages found, and the trust in the lease."""

    def __init__(
        self, committer: ShardCommitter, cache: PayloadCache, location: str, is_trusted: Callable[[], bool]
    ) -> None:
        self.committer = committer
        self.cache = cache
        self.damages = Damages()
        self.is_trusted = is_trusted
        """Returns False if another node may own the shard by now: reads have to wait."""
        self.next_number = 1
        self.is_marked_clean = False
        """True while the ledger says that the last owner closed the shard."""
        self._location = location

    def number_row(self) -> EntryRow:
        """Return the entry with the number of the next new log."""
        return EntryRow(NUMBER_KIND, b"", self.next_number.to_bytes(8, "big"), 1)

    def before_append(self, group: Group) -> None:
        """Let the ledger forget that the last owner closed the shard."""
        if not self.is_marked_clean:
            return
        self.is_marked_clean = False
        group.entries[CLEAN_KIND, b""] = None

        def settle(error: SparrowError | None) -> None:
            self.is_marked_clean = self.is_marked_clean or error is not None

        group.settlements.append(settle)

    async def trusted(self) -> None:
        """Wait until no other node can own the shard.

        Raises:
            NotOwner: the shard is lost.
        """
        while not self.is_trusted():
            if self.committer.failure is not None:
                raise type(self.committer.failure)(self.committer.failure.text)
            await asyncio.sleep(TRUST_POLL_S)

    async def write(self, puts: Sequence[EntryRow], deletes: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Change entries, and wait for the commit."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.committer.add_entries(puts, deletes, settle_future(done, None))
        await done

    def path_of(self, payload: CommitPayload) -> str:
        """Return where a payload is, for people."""
        if payload.object_key is None:
            return f"commit {payload.seq} in the ledger"
        return f"{self._location}/{payload.object_key}"
