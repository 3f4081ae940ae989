"""A node of a cluster, and the shard that it may own.

A node has a row in the ledger that expires, and renews it. It owns the shard from a take until
another node takes it. That is certain for commits, which carry the epoch. Answers that need no
commit (reads) are given only while the node trusts its lease: until `TRUST_S` after the moment in
which the last successful renewal was *sent*, by a clock that also runs while the machine or the
process sleeps. The row expires later than that, so nobody else owns the shard before. A renewal
counts only if the shard was still this node's after it: a node that slept for longer than its lease
can renew its row, and has lost the shard nevertheless.

A node whose session at the ledger ended is likely to be dead: its lock is free. A standby waits for
`GRACE_S`, in which a node that lives gets its lock again, and then takes the shard. It does not
where the ledger itself was started lately, which frees all locks. So a node without its lock trusts
itself for `UNLOCKED_TRUST_S` only, which is shorter; and one that did not run for as long as that
(its session may have ended meanwhile) not at all, before its next renewal.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import SparrowError
from sparrow.cluster.errors import LedgerUnavailable, NotOwner
from sparrow.cluster.ledger import NODE_TTL_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparrow.cluster.ledger import Ledger, LedgerStatus, NodeInfo, Taken

_LOG = logging.getLogger(__name__)
TTL_MS: Final = NODE_TTL_MS
TRUST_S: Final = 8.0
UNLOCKED_TRUST_S: Final = 0.7
BEAT_S: Final = 0.2
"""Time between the looks at whether this process has stood still."""
RENEW_S: Final = 2.0
RETRY_S: Final = 0.25
POLL_S: Final = 0.05
HANDOVER_POLL_S: Final = 0.01
"""The same while the owner is about to let the shard go."""
GRACE_S: Final = 1.0
GIVE_UP_S: Final = 20.0
"""Time without trust after which an owner lets its clients go: if it alone is cut off from the
ledger, another node has the shard by then.
"""
RETURN_MS: Final = 3000
"""Time after the start of the ledger's server in which an expired row says nothing."""
STAND_BACK_S: Final = 10.0
"""Time for which a node that has handed over leaves the shard to the others."""
SETTLED_MS: Final = 15_000
"""Time after the start of the ledger's server in which a free lock says nothing."""


def boot_time() -> float:
    """Return seconds since the machine was started, also while it slept."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Ownership:
    """One node, and its claim on one shard. Loop thread only.

    Args:
        addresses: of the node's listeners, by their names; other nodes tell them to clients.
        now: seconds of a clock that never stands still; for tests.
    """

    def __init__(
        self,
        ledger: Ledger,
        addresses: Mapping[str, str],
        *,
        shard: int = 0,
        now: Callable[[], float] = boot_time,
    ) -> None:
        self._ledger = ledger
        self._addresses = addresses
        self._shard = shard
        self._now = now
        self.node = -1
        """The node's id in the ledger; -1 before `join`."""
        self.epoch = -1
        """The epoch of the last take; -1: this node does not own the shard."""
        self._trusted_until = float("-inf")
        self._beat_at = now()
        self._doubts = 0
        """Number of times that the trust was cut short: no renewal that was sent before counts."""
        self._tasks: list[asyncio.Task[None]] = []
        self._renew_now = asyncio.Event()
        self._is_draining = False
        self._is_away = False
        self.when_lost: Callable[[NotOwner], object] = lambda _: None
        """Called when the shard is found to be another node's."""
        self.when_seen: Callable[[Sequence[NodeInfo]], None] = lambda _: None
        """Called now and then with the other nodes, while this one owns the shard."""
        self.when_asked: Callable[[], None] = lambda: None
        """Called when this node is to hand over, and there is a standby."""
        self.describe_objects: Callable[[], str] = lambda: ""
        """Returns what the node's row says of the object store."""
        self.gives_up: Callable[[Sequence[NodeInfo]], bool] = lambda _: False
        """Returns True if the shard is better off with one of these nodes."""
        self.owner_objects = ""
        """The state of the object store in the owner's row when `stand_by` last looked."""
        self.others: Sequence[NodeInfo] = ()
        """The other nodes that could take over, when this one last looked."""
        self._gone_since: float | None = None
        """When the owner before was gone, by this node's clock; None: it is not."""
        self.seen_owner: NodeInfo | None = None
        """The other node that owned the shard when `stand_by` last looked; None: there was none, or
        it is likely to be dead.
        """
        self.seen_epoch = -1
        self.seen_seq = -1
        """The shard's epoch, and the number of its last commit, when this node last looked."""
        self._lost_lock_since: tuple[int, float] | None = None
        """(owner whose lock is free, since when)."""

    async def join(self) -> None:
        """Register the node, and begin to renew its row.

        Raises:
            LedgerUnavailable, InvalidConfig
        """
        sent_at = self._now()
        self.node = await self._ledger.join(uuid.uuid4(), self._addresses, TTL_MS)
        self._trusted_until, self._beat_at = sent_at + TRUST_S, self._now()
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(self._renew()), loop.create_task(self._beat())]
            self._ledger.watch(lambda: self._doubt(UNLOCKED_TRUST_S))

    async def _renew(self) -> None:
        delay_s = RENEW_S
        while True:
            try:
                async with asyncio.timeout(delay_s):
                    await self._renew_now.wait()
            except TimeoutError:
                pass
            self._renew_now.clear()
            is_well = await self._renew_once() and self._ledger.holds_lock
            delay_s = RENEW_S if is_well else RETRY_S

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self._beat_once()

    def _beat_once(self) -> None:
        if self._stood_still:
            self._doubt(0.0)
        self._beat_at = self._now()

    @property
    def _stood_still(self) -> bool:
        return self._now() - self._beat_at >= UNLOCKED_TRUST_S

    def _doubt(self, trust_s: float) -> None:
        """Trust the lease for so long at most, and renew it."""
        self._doubts += 1
        self._trusted_until = min(self._trusted_until, self._now() + trust_s)
        self._renew_now.set()

    async def _renew_once(self) -> bool:
        sent_at, doubts = self._now(), self._doubts
        try:
            is_known = await self._ledger.renew(
                self.node,
                TTL_MS,
                self._addresses,
                draining=self._is_draining,
                objects=self.describe_objects(),
            )
            if not is_known:  # it was away for so long that its row is gone
                self.node = await self._ledger.join(uuid.uuid4(), self._addresses, TTL_MS)
            status = await self._ledger.status() if self.epoch >= 0 else None
        except SparrowError as error:
            self._note(error)
            if self.epoch >= 0 and self._now() >= self._trusted_until + GIVE_UP_S:
                self._lose()
            return False
        self._note(None)
        if status is not None and self.epoch >= 0:
            if self._owner(status)[0] != self.node:
                self._lose()
                return True
            self._look(status)
        if doubts == self._doubts:
            self._trusted_until = sent_at + (TRUST_S if self._ledger.holds_lock else UNLOCKED_TRUST_S)
        return True

    def _lose(self) -> None:
        self._trusted_until = float("-inf")
        self.when_lost(NotOwner("another broker owns the data by now; connect again"))

    def _look(self, status: LedgerStatus) -> None:
        """Find out which other nodes there are, for clients of this one."""
        self.others = standbys(status, self.node)
        self.when_seen(self.others)
        shard = next(each for each in status.shards if each.id == self._shard)
        is_asked = shard.handover == self.node and bool(self.others)
        if not self._is_draining and (is_asked or self.gives_up(self.others)):
            self.when_asked()

    def _note(self, error: SparrowError | None) -> None:
        """Log that the ledger is away, or back, once."""
        if error is not None and not self._is_away:
            _LOG.warning("the ledger is away: %s", error.text)
        elif error is None and self._is_away:
            _LOG.info("the ledger is back")
        self._is_away = error is not None

    # ── owning ──

    @property
    def is_trusted(self) -> bool:
        """True if no other node can own the shard by now, if this one took it."""
        return self._now() < self._trusted_until and not self._stood_still

    async def stand_by(self) -> Taken:
        """Wait until the shard can be taken, and take it."""
        while True:
            try:
                status = await self._ledger.status()
                self._remember(status)
                dead = self._judge(status)
                if self.is_trusted and not self._is_draining and self._may_take(status, dead):
                    taken = await self._ledger.take(self._shard, self.node, dead)
                    if taken is not None:
                        self.epoch, self.seen_owner = taken.epoch, None
                        self._gone_since = self._now() if self._gone_since is None else self._gone_since
                        return taken
            except LedgerUnavailable as error:
                self._note(error)
                await asyncio.sleep(RETRY_S)
            lets_go = self.seen_owner is not None and self.seen_owner.is_draining
            await asyncio.sleep(HANDOVER_POLL_S if lets_go else POLL_S)

    def _owner(self, status: LedgerStatus) -> tuple[int | None, NodeInfo | None]:
        owner = next(each.owner for each in status.shards if each.id == self._shard)
        return owner, next((node for node in status.nodes if node.id == owner), None)

    def _remember(self, status: LedgerStatus) -> None:
        _, node = self._owner(status)
        shard = next(each for each in status.shards if each.id == self._shard)
        self.seen_epoch, self.seen_seq = shard.epoch, shard.seq
        is_alive = node is not None and node.expires_in_ms > 0 and node.is_connected
        self.seen_owner = node if node is not None and is_alive and node.id != self.node else None
        self.others = standbys(status, self.node)
        self.owner_objects = "" if self.seen_owner is None else self.seen_owner.objects
        if node is None or node.id == self.node or not node.is_connected:
            self._gone_since = self._now() if self._gone_since is None else self._gone_since
        elif node.expires_in_ms <= 0:  # it hangs: it was well when it renewed last
            self._gone_since = self._now() - node.seen_ms / 1000
        else:
            self._gone_since = None

    def _may_take(self, status: LedgerStatus, dead: int | None) -> bool:
        owner, node = self._owner(status)
        if owner in (None, self.node, dead) or node is None:
            return True
        # All rows expire while the ledger is away; the owner renews first when it is back.
        return node.expires_in_ms <= 0 and status.up_ms >= RETURN_MS

    def _judge(self, status: LedgerStatus) -> int | None:
        """Return the owner if its session has been gone for long enough; else None."""
        owner, node = self._owner(status)
        if owner is None or node is None or node.is_connected or status.up_ms < SETTLED_MS:
            self._lost_lock_since = None
            return None
        if self._lost_lock_since is None or self._lost_lock_since[0] != owner:
            self._lost_lock_since = (owner, self._now())
        return owner if self._now() - self._lost_lock_since[1] >= GRACE_S else None

    async def retake(self) -> Taken:
        """Take the own shard again, as often as the ledger does not answer.

        Raises:
            NotOwner: another node has it, or had it in the meantime: this one knows nothing of its
                commits.
        """
        while True:
            try:
                taken = await self._ledger.retake(self._shard, self.node)
            except LedgerUnavailable:
                await asyncio.sleep(RETRY_S)
                continue
            if taken is None:
                raise NotOwner("another broker owns the data by now; connect again")
            self.epoch = taken.epoch
            return taken

    async def release(self) -> None:
        """Let the shard go, so that a standby takes it at once.

        Raises:
            LedgerUnavailable: a standby takes it when the node's row has expired.
        """
        epoch, self.epoch = self.epoch, -1
        if epoch >= 0:
            await self._ledger.release(self._shard, epoch)

    async def note_served(self) -> float:
        """Tell the ledger that clients are served. Return the seconds since the owner before was
        gone.

        Raises:
            LedgerUnavailable
        """
        now = self._now()
        took_s = now - (now if self._gone_since is None else self._gone_since)
        self._gone_since = None
        await self._ledger.note_served(self._shard, self.node, round(took_s * 1000))
        return took_s

    async def stand_back(self) -> None:
        """After `drain` and `release`: let another node take the shard, and then stand by again."""
        until = self._now() + STAND_BACK_S
        while self._now() < until:
            try:
                status = await self._ledger.status()
                self._remember(status)
                owner, node = self._owner(status)
            except LedgerUnavailable:
                await asyncio.sleep(RETRY_S)
                continue
            if owner is not None and node is not None and owner != self.node:
                break
            await asyncio.sleep(POLL_S)
        self._is_draining = False
        await self._renew_once()

    @property
    def is_draining(self) -> bool:
        """True between `drain` and the end of `stand_back`."""
        return self._is_draining

    @property
    def addresses(self) -> Mapping[str, str]:
        """The addresses of this node's listeners."""
        return self._addresses

    async def announce(self, addresses: Mapping[str, str]) -> None:
        """Change the addresses of the node's listeners."""
        self._addresses = addresses
        await self._renew_once()

    async def drain(self) -> None:
        """Take nothing any more, and say so."""
        self._is_draining = True
        await self._renew_once()

    async def leave(self) -> None:
        """Stop renewing, and remove the node's row."""
        tasks, self._tasks = self._tasks, []
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._trusted_until = float("-inf")
        try:
            await self._ledger.leave(self.node)
        except LedgerUnavailable as error:
            _LOG.warning("the node's row stays until it expires: %s", error.text)


def standbys(status: LedgerStatus, owner: int | None) -> list[NodeInfo]:
    """Return the nodes that can take over from an owner."""
    return [
        node
        for node in status.nodes
        if node.id != owner and node.expires_in_ms > 0 and node.is_connected and not node.is_draining
    ]
