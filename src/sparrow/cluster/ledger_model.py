"""The public fake of the ledger: the same contract in memory, with faults by seed.

    state = LedgerState()                    # outlives the nodes
    ledger = MemoryLedger(state, LedgerFaults(seed=7, lost_responses=0.1))

Each node has a `MemoryLedger` of its own over one `LedgerState`. The same seed and the same calls
give the same faults. No method belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrow.base.clock import SystemClock
from sparrow.base.errors import DiskFull
from sparrow.cluster.errors import LedgerRefused, LedgerUnavailable, OutcomeUnknown
from sparrow.cluster.ledger import (
    HANDOVER_MS,
    MAX_OBJECT_AGE_MS,
    EntryRow,
    LedgerCheck,
    LedgerStatus,
    NodeInfo,
    ShardContent,
    ShardInfo,
    Taken,
    WalRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparrow.base.clock import Clock
    from sparrow.cluster.ledger import Commit


@dataclass(frozen=True, slots=True)
class LedgerFaults:
    """Probabilities (0.0 to 1.0) of faults, decided by a generator with this seed.

    Attributes:
        lost_requests: a call does not reach the ledger; a commit's outcome is then unknown.
        lost_responses: a call happens, and its caller does not learn of it.
        disk_full: a commit is refused.
        max_iterations: of the event loop that a call waits before it happens, and its response
            afterwards.
    """

    seed: int = 0
    lost_requests: float = 0.0
    lost_responses: float = 0.0
    disk_full: float = 0.0
    max_iterations: int = 2


@dataclass(slots=True)
class _Node:
    incarnation: uuid.UUID
    addresses: dict[str, str]
    expires_at_ms: int
    is_draining: bool = False
    is_connected: bool = True
    objects: str = ""


@dataclass(slots=True)
class _Shard:
    epoch: int = 0
    owner: int | None = None
    seq: int = 0
    handover: int | None = None
    handover_at_ms: int = 0
    released_by: int | None = None
    taken_from: int | None = None
    taken_at_ms: int | None = None
    takeover_ms: int | None = None
    wal: dict[int, tuple[WalRow, bytes | None]] = field(default_factory=dict)
    entries: dict[tuple[bytes, bytes], EntryRow] = field(default_factory=dict)


class LedgerState:
    """The content of a ledger in memory. Attributes are for tests."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.cluster_id = str(uuid.uuid4())
        self.objects = ""
        self.nodes: dict[int, _Node] = {}
        self.shards: dict[int, _Shard] = {0: _Shard()}
        self.garbage: dict[str, int] = {}
        self.next_node = 1
        self.up_since_ms = 0
        self.is_down = False
        """While True, no call reaches the ledger."""

    def lose_rows(self, shard: int, first_seq: int) -> None:
        """Forget the rows of the batches from a commit on, as a database that was restored from an
        old backup.
        """
        rows = self.shards[shard].wal
        for seq in [seq for seq in rows if seq >= first_seq]:
            del rows[seq]


class MemoryLedger:
    """A `Ledger` over a `LedgerState`."""

    def __init__(self, state: LedgerState, faults: LedgerFaults | None = None) -> None:
        self.state = state
        self.faults = faults or LedgerFaults()
        self.commits = 0
        self._random = random.Random(self.faults.seed)  # noqa: S311 - faults must be repeatable
        self._node: int | None = None
        self._when_disconnected: Callable[[], None] = lambda: None

    @property
    def location(self) -> str:
        return "memory:"

    async def open(self) -> LedgerCheck:
        await self._arrive()
        return LedgerCheck(self.state.cluster_id, self.state.clock.wall_ms(), self.state.objects)

    async def note_objects(self, location: str) -> str:
        await self._arrive()
        self.state.objects = self.state.objects or location
        return self.state.objects

    async def join(self, incarnation: uuid.UUID, addresses: Mapping[str, str], ttl_ms: int) -> int:
        await self._arrive()
        state = self.state
        node, state.next_node = state.next_node, state.next_node + 1
        state.nodes[node] = _Node(incarnation, dict(addresses), state.clock.wall_ms() + ttl_ms)
        self._node = node
        await self._respond()
        return node

    async def renew(
        self,
        node: int,
        ttl_ms: int,
        addresses: Mapping[str, str],
        *,
        draining: bool = False,
        objects: str = "",
    ) -> bool:
        await self._arrive()
        found = self.state.nodes.get(node)
        if found is not None:
            found.expires_at_ms = self.state.clock.wall_ms() + ttl_ms
            found.addresses = dict(addresses)
            found.is_draining = draining
            found.objects = objects
            found.is_connected = True
        await self._respond()
        return found is not None

    @property
    def holds_lock(self) -> bool:
        return True  # `renew` gets it

    async def leave(self, node: int) -> None:
        await self._arrive()
        self.state.nodes.pop(node, None)

    def watch(self, when_disconnected: Callable[[], None]) -> None:
        self._when_disconnected = when_disconnected

    def disconnect(self, notify: Callable[[Callable[[], None]], object] = lambda when: when()) -> None:
        """End the session that holds the node's lock. `notify` calls what the node wants to be
        called then.
        """
        found = None if self._node is None else self.state.nodes.get(self._node)
        if found is not None:
            found.is_connected = False
            notify(self._when_disconnected)

    async def take(self, shard: int, node: int, dead: int | None = None) -> Taken | None:
        await self._arrive()
        row = self.state.shards[shard]
        if row.owner not in (None, node, dead) and self._is_alive(row.owner):
            return None
        row.epoch += 1
        if row.owner != node:
            row.taken_from = row.released_by if row.owner is None else row.owner
            row.taken_at_ms = self.state.clock.wall_ms()
            row.takeover_ms = row.handover = row.released_by = None
        row.owner = node
        await self._respond()
        return Taken(row.epoch, row.seq)

    def _is_alive(self, node: int | None) -> bool:
        found = None if node is None else self.state.nodes.get(node)
        return found is not None and found.expires_at_ms > self.state.clock.wall_ms()

    async def retake(self, shard: int, node: int) -> Taken | None:
        await self._arrive()
        row = self.state.shards[shard]
        if row.owner != node:
            return None
        row.epoch += 1
        await self._respond()
        return Taken(row.epoch, row.seq)

    async def release(self, shard: int, epoch: int) -> bool:
        await self._arrive()
        row = self.state.shards[shard]
        if row.epoch != epoch or row.owner is None:
            return False
        row.epoch += 1
        row.released_by, row.owner = row.owner, None
        row.handover = None
        await self._respond()
        return True

    async def ask_handover(self, shard: int, node: int) -> bool:
        await self._arrive()
        row = self.state.shards[shard]
        if row.owner != node:
            return False
        row.handover, row.handover_at_ms = node, self.state.clock.wall_ms()
        await self._respond()
        return True

    async def note_served(self, shard: int, node: int, takeover_ms: int) -> None:
        await self._arrive()
        row = self.state.shards[shard]
        if row.owner == node:
            row.takeover_ms = takeover_ms
        await self._respond()

    async def commit(self, shard: int, epoch: int, commit: Commit) -> bool:
        try:
            await self._arrive()
        except LedgerUnavailable as error:
            raise OutcomeUnknown(error.text) from None
        row = self.state.shards[shard]
        if (row.epoch, row.seq) != (epoch, commit.seq - 1):
            return False
        if self._random.random() < self.faults.disk_full:
            raise DiskFull("the ledger is full, as its seed wanted")
        now_ms = self.state.clock.wall_ms()
        if commit.object_key is not None and now_ms - commit.object_ms > MAX_OBJECT_AGE_MS:
            raise LedgerRefused(f"the object {commit.object_key} is too old to be committed")
        self._apply(row, epoch, commit, now_ms)
        try:
            await self._respond()
        except LedgerUnavailable as error:
            raise OutcomeUnknown(error.text) from None
        return True

    def _apply(self, row: _Shard, epoch: int, commit: Commit, now_ms: int) -> None:
        row.seq = commit.seq
        self.commits += 1
        if commit.manifest is not None:
            size = 0 if commit.payload is None else len(commit.payload)
            found = WalRow(commit.seq, epoch, commit.at_ms, commit.manifest, commit.object_key, size)
            row.wal[commit.seq] = (found, commit.payload)
        for entry in commit.puts:
            row.entries[entry.kind, entry.key] = entry
        for key in commit.deletes:
            row.entries.pop(key, None)
        for seq in commit.drops:
            dropped, _ = row.wal.pop(seq, (None, None))
            if dropped is not None and dropped.object_key is not None:
                self.state.garbage[dropped.object_key] = now_ms

    async def load(self, shard: int) -> ShardContent:
        await self._arrive()
        row = self.state.shards[shard]
        return ShardContent([row.wal[seq][0] for seq in sorted(row.wal)], list(row.entries.values()))

    async def entries(self, shard: int, kinds: Sequence[bytes]) -> list[EntryRow]:
        await self._arrive()
        return [row for row in self.state.shards[shard].entries.values() if row.kind in kinds]

    async def payload(self, shard: int, seq: int) -> bytes | None:
        await self._arrive()
        return self.state.shards[shard].wal.get(seq, (None, None))[1]

    async def garbage(self, older_than_ms: int, limit: int) -> list[str]:
        await self._arrive()
        before_ms = self.state.clock.wall_ms() - older_than_ms
        return [key for key, dead_ms in self.state.garbage.items() if dead_ms <= before_ms][:limit]

    async def forget_garbage(self, keys: Sequence[str]) -> None:
        await self._arrive()
        for key in keys:
            self.state.garbage.pop(key, None)

    async def named(self, prefix: str) -> set[str]:
        await self._arrive()
        rows = [row for shard in self.state.shards.values() for row, _ in shard.wal.values()]
        keys = {row.object_key for row in rows if row.object_key is not None} | self.state.garbage.keys()
        return {key for key in keys if key.startswith(prefix)}

    async def now_ms(self) -> int:
        await self._arrive()
        return self.state.clock.wall_ms()

    async def status(self) -> LedgerStatus:
        await self._arrive()
        state = self.state
        now_ms = state.clock.wall_ms()
        return LedgerStatus(
            [
                NodeInfo(
                    number,
                    node.incarnation,
                    dict(node.addresses),
                    node.expires_at_ms - now_ms,
                    node.is_connected,
                    node.is_draining,
                    node.objects,
                )
                for number, node in state.nodes.items()
            ],
            [
                ShardInfo(
                    number,
                    row.epoch,
                    row.owner,
                    row.seq,
                    row.handover if now_ms - row.handover_at_ms < HANDOVER_MS else None,
                    row.taken_from,
                    None if row.taken_at_ms is None else now_ms - row.taken_at_ms,
                    row.takeover_ms,
                )
                for number, row in state.shards.items()
            ],
            now_ms - state.up_since_ms,
        )

    async def close(self) -> None:
        """Free the node's lock."""
        found = None if self._node is None else self.state.nodes.get(self._node)
        if found is not None:
            found.is_connected = False

    def with_faults(self, **faults: float) -> None:
        """Change probabilities; the sequence of the generator continues."""
        self.faults = dataclasses.replace(self.faults, **faults)  # type: ignore[arg-type]  # floats

    async def _arrive(self) -> None:
        for _ in range(self._random.randint(1, max(1, self.faults.max_iterations))):
            await asyncio.sleep(0)
        if self.state.is_down or self._random.random() < self.faults.lost_requests:
            raise LedgerUnavailable("the ledger does not answer; try again")

    async def _respond(self) -> None:
        for _ in range(self._random.randint(0, max(0, self.faults.max_iterations - 1))):
            await asyncio.sleep(0)
        if self._random.random() < self.faults.lost_responses:
            raise LedgerUnavailable("the response of the ledger was lost, as its seed wanted")
