"""The seam of the ledger: the one place of truth of a cluster.

A *shard* is owned by one node at a time, under an *epoch* that grows with each take. Everything
that the shard keeps is committed by one call (`commit`), which checks the epoch: where the new
batches are (a *manifest*, with the bytes themselves or the key of an object), and the entries that
changed. A change that is not in the ledger did not happen.

Invariants that every implementation keeps (`tests/conformance/ledger.py`):

* commits of a shard have the numbers 1, 2, 3, … (`seq`), without holes, and each happens once;
* a commit happens whole or not at all, and is on stable storage when the call returns True;
* once `take` has returned, no commit of an earlier epoch happens any more, whenever it was sent;
  `take` waits for one that is under way, and its `seq` says whether that happened;
* a shard is taken from another node only if that node let it go, its row has expired by the
  ledger's own clock, or the caller says that it is dead;
* times are the ledger's own; the clocks of nodes count nowhere.

`postgres.PostgresLedger` is the real one, `ledger_model.MemoryLedger` the public fake.

Concurrency: methods are coroutines of one event loop; calls of `commit` are made one after the
other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Mapping, Sequence

MAX_OBJECT_AGE_MS = 600_000
"""A commit that names an object with an older key is refused: the object may be collected as
garbage.
"""

NODE_TTL_MS = 10_000
"""Time after which the row of a node expires that does not renew it."""
HANDOVER_MS = 60_000
"""Time for which a node is asked to let a shard go."""


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An entry of a shard: a value under (kind, key), which are bytes here."""

    kind: bytes
    key: bytes
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything of a shard that waits, to be kept by one call.

    Attributes:
        seq: number of the commit; that of the last one plus 1.
        at_ms: time of the node, for people.
        manifest: description of the batches; None: there are none, and no row is written.
        payload: the bytes of the batches, if they are in the row.
        object_key: key of the object that has the bytes otherwise.
        object_ms: time in that key.
        puts, deletes: entries that change; each (kind, key) occurs once.
        drops: earlier commits whose rows are removed; their objects become garbage.
    """

    seq: int
    at_ms: int
    manifest: bytes | None = None
    payload: bytes | None = None
    object_key: str | None = None
    object_ms: int = 0
    puts: Sequence[EntryRow] = ()
    deletes: Sequence[tuple[bytes, bytes]] = ()
    drops: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class WalRow:
    """A commit that carried batches. `payload_bytes`: size of the payload in the row; 0: it is an
    object.
    """

    seq: int
    epoch: int
    at_ms: int
    manifest: bytes
    object_key: str | None
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A shard after a take: its new epoch, and the number of its last commit."""

    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class ShardContent:
    """The rows of a shard; `wal` by seq."""

    wal: list[WalRow]
    entries: list[EntryRow]


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node's row, with what the ledger knows of it.

    Attributes:
        expires_in_ms: until its row expires; negative: it has expired.
        is_connected: its session holds its lock; False is a hint that the node is dead.
        objects: what it says of the object store, see `outage`.
    """

    id: int
    incarnation: uuid.UUID
    addresses: Mapping[str, str]
    expires_in_ms: int
    is_connected: bool
    is_draining: bool
    objects: str = ""

    @property
    def seen_ms(self) -> int:
        """Milliseconds since the node renewed its row."""
        return max(NODE_TTL_MS - self.expires_in_ms, 0)


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A shard's row.

    Attributes:
        owner: id of a node; None: nobody owns it.
        handover: the node that is asked to let the shard go; None: nobody.
        taken_from: the owner before, if there was one.
        taken_ms: since the owner took it; None: nobody ever did.
        takeover_ms: from when the owner before was gone until clients were served again; None: they
            are not yet.
    """

    id: int
    epoch: int
    owner: int | None
    seq: int
    handover: int | None = None
    taken_from: int | None = None
    taken_ms: int | None = None
    takeover_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """All nodes and shards. `up_ms`: since the ledger's server was started, by which locks of
    sessions were lost.
    """

    nodes: list[NodeInfo]
    shards: list[ShardInfo]
    up_ms: int


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """Properties of the ledger that a start checks. `warnings` are sentences.

    Attributes:
        objects: the place of the cluster's objects, without secrets; "": none was noted.
    """

    cluster_id: str
    now_ms: int
    objects: str = ""
    warnings: list[str] = field(default_factory=list)


class Ledger(Protocol):
    """A connection to the ledger. See the module's text."""

    @property
    def location(self) -> str:
        """The place of the ledger for people, without secrets."""
        ...

    async def open(self) -> LedgerCheck:
        """Connect, make or migrate the tables, and check that commits are durable.

        Raises:
            InvalidConfig: it cannot be used; the sentence says why, and what to do.
            NewerFormat: a later Sparrow has written it.
            LedgerUnavailable: it does not answer.
        """
        ...

    async def note_objects(self, location: str) -> str:
        """Remember the place of the cluster's objects, unless there is one. Return the place that
        counts.

        Raises:
            LedgerUnavailable
        """
        ...

    async def join(self, incarnation: uuid.UUID, addresses: Mapping[str, str], ttl_ms: int) -> int:
        """Register a node, whose row expires after `ttl_ms`, and hold its lock. Return its id.

        Raises:
            LedgerUnavailable
        """
        ...

    async def renew(
        self,
        node: int,
        ttl_ms: int,
        addresses: Mapping[str, str],
        *,
        draining: bool = False,
        objects: str = "",
    ) -> bool:
        """Let the node's row expire `ttl_ms` from now. Return False if the row is gone.

        Raises:
            LedgerUnavailable: the row may have been renewed.
        """
        ...

    @property
    def holds_lock(self) -> bool:
        """False while another session holds the node's lock, or none: an earlier one of this node
        that the ledger takes to be alive.
        """
        ...

    async def leave(self, node: int) -> None:
        """Remove the node's row, and free its lock.

        Raises:
            LedgerUnavailable
        """
        ...

    def watch(self, when_disconnected: Callable[[], None]) -> None:
        """Call `when_disconnected` when the session that holds the node's lock has ended: the next
        `renew` gets it again.
        """
        ...

    async def take(self, shard: int, node: int, dead: int | None = None) -> Taken | None:
        """Take a shard if it is free, the node's own, its owner's row has expired, or its owner is
        `dead`. Return None if none of that holds.

        Raises:
            LedgerUnavailable: it may have been taken.
        """
        ...

    async def retake(self, shard: int, node: int) -> Taken | None:
        """Take the node's own shard again, behind a commit that is under way. Return None if
        another node has taken it, also if that one has let it go again by now.

        Raises:
            LedgerUnavailable: it may have been taken.
        """
        ...

    async def release(self, shard: int, epoch: int) -> bool:
        """Let a shard go under the next epoch. Return False if it was not owned under `epoch`.

        Raises:
            LedgerUnavailable: it may have been released.
        """
        ...

    async def ask_handover(self, shard: int, node: int) -> bool:
        """Ask a node to let a shard go; `status` tells it for `HANDOVER_MS`, or until there is
        another owner. Return False if it does not own the shard.

        Raises:
            LedgerUnavailable: it may have been asked.
        """
        ...

    async def note_served(self, shard: int, node: int, takeover_ms: int) -> None:
        """Remember that the owner serves clients, `takeover_ms` after the owner before was gone; no
        effect if another node owns the shard.

        Raises:
            LedgerUnavailable
        """
        ...

    async def commit(self, shard: int, epoch: int, commit: Commit) -> bool:
        """Commit. Return False if the shard is not owned under `epoch`, or `seq` is not the next.

        Raises:
            DiskFull, LedgerRefused: nothing happened.
            OutcomeUnknown
        """
        ...

    async def load(self, shard: int) -> ShardContent:
        """Return the rows of a shard, without the payloads.

        Raises:
            LedgerUnavailable
        """
        ...

    async def entries(self, shard: int, kinds: Sequence[bytes]) -> list[EntryRow]:
        """Return the entries of some kinds. May be called by nodes that do not own the shard.

        Raises:
            LedgerUnavailable
        """
        ...

    async def payload(self, shard: int, seq: int) -> bytes | None:
        """Return the payload in the row of a commit; None if there is no such row.

        Raises:
            LedgerUnavailable
        """
        ...

    async def garbage(self, older_than_ms: int, limit: int) -> list[str]:
        """Return keys of objects that no row names any more since `older_than_ms`.

        Raises:
            LedgerUnavailable
        """
        ...

    async def forget_garbage(self, keys: Sequence[str]) -> None:
        """Forget objects that were deleted.

        Raises:
            LedgerUnavailable
        """
        ...

    async def named(self, prefix: str) -> set[str]:
        """Return the keys with a prefix of all objects that a row names, or that are garbage.

        Raises:
            LedgerUnavailable
        """
        ...

    async def now_ms(self) -> int:
        """Return the ledger's time, in ms since 1970-01-01T00:00:00Z.

        Raises:
            LedgerUnavailable
        """
        ...

    async def status(self) -> LedgerStatus:
        """Return all nodes and shards.

        Raises:
            LedgerUnavailable
        """
        ...

    async def close(self) -> None:
        """Close the connections. Again: no effect."""
        ...
