"""Status and history of the broker for people, `broker.status`.

A sample is taken every five seconds (`record`), whether or not somebody looks; everything else is
computed when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument
from sparrow.base.version import VERSION
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.status.attention import AttentionRules
from sparrow.broker.status.history import INTERVAL_MS, JOINED, Histories
from sparrow.broker.status.sampler import (
    GAUGES,
    QUEUE_GAUGES,
    QUEUE_RATES,
    RATES,
    Sampler,
    quantile_ms,
    rates_between,
)
from sparrow.model.access import CLUSTER_NAME
from sparrow.model.status import Attention, BrokerHistory, BrokerStatus, MessageRates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.base.clock import Clock
    from sparrow.broker.access.access import Access
    from sparrow.broker.composition import Parts
    from sparrow.broker.measures import Measures
    from sparrow.broker.status.sampler import Totals
    from sparrow.storage.store import LogStore

SHORT: Final = "15m"
LONG: Final = "24h"
SPANS: Final = (SHORT, LONG)
SERIES: Final = (*RATES, *GAUGES)
QUEUE_SERIES: Final = (*QUEUE_RATES, *QUEUE_GAUGES)
_ATTENTION_S: Final = 5.0
"""Time for which one look at everything serves all that ask."""
_SYNC_SAMPLES: Final = 12
"""Samples of syncs that the times of the last minute are made of."""
_FORECAST_SAMPLES: Final = 60
"""A forecast takes five minutes: other programs write to the disk as well, now and then."""
_FULL_WITHIN_MS: Final = 30 * 86_400_000
"""A forecast farther away is none."""
_DISK_LOW: Final = 2.0
"""Free space below so many times the reserve needs attention."""
_MOMENT_S: Final = 5.0
"""Totals of an older moment are not compared with those of now."""
_SIZE_S: Final = 60.0
"""Time between two walks over the sizes of all topics while nobody looks."""
MAX_REASONS: Final = 100


class StatusService:
    """The service; loop thread only.

    Args:
        started_ms: when the broker started.
    """

    def __init__(
        self,
        parts: Parts,
        measures: Measures,
        logs: LogStore,
        clock: Clock,
        access: Access,
        *,
        cluster_id: str,
        started_ms: int,
    ) -> None:
        self._parts = parts
        self._logs = logs
        self._clock = clock
        self._access = access
        self._cluster_id = cluster_id
        self._started_ms = started_ms
        self._sampler = Sampler(parts, measures, logs)
        self._rules = AttentionRules(parts, clock)
        self._histories = Histories(SERIES, QUEUE_SERIES)
        self._before = self._sampler.totals()
        self._before_s = clock.monotonic()
        self._syncs: list[tuple[int, ...]] = [self._before.syncs]
        self._queue_totals: dict[str, tuple[int, int, int]] = {}
        self._attention: list[Attention] = []
        self._looked_at = float("-inf")
        self._moment: tuple[Totals, float] | None = None
        self._state = ""
        self._state_at = float("-inf")

    # ── samples ───────────────────────────────────────────────────────────────────────────────────

    async def record(self) -> None:
        """Take a sample. Called every `INTERVAL_MS`."""
        now_ms, now_s = self._clock.wall_ms(), self._clock.monotonic()
        totals, seconds = self._sampler.totals(), now_s - self._before_s
        rates = rates_between(self._before, totals, seconds)
        self._syncs = [*self._syncs, totals.syncs][-_SYNC_SAMPLES - 1 :]
        self._histories.add(now_ms, {**rates, **self._gauges(self._before, totals)})
        self._before, self._before_s = totals, now_s
        self._record_queues(now_ms, seconds)
        await self._rules.maybe_mark()

    def _gauges(self, before: Totals, now: Totals) -> dict[str, float]:
        unfinished, dead = self._sampler.jobs()
        gauges: dict[str, float] = {
            "connections": sum(self._sampler.connections().values()),
            "bytes": self._sampler.size_bytes(self._clock.monotonic(), _SIZE_S),
            "unfinished": unfinished,
            "dead": dead,
        }
        free_bytes = self._sampler.free_bytes()
        if free_bytes >= 0:
            gauges["free_bytes"] = free_bytes
        for name, part in (("sync_p50_ms", 0.5), ("sync_p99_ms", 0.99)):
            value = quantile_ms(self._logs.sync_times.bounds, before.syncs, now.syncs, part)
            if value >= 0:
                gauges[name] = value
        return gauges

    def _record_queues(self, now_ms: int, seconds: float) -> None:
        totals = {}
        for queue_id, queue, now in self._sampler.queues():
            totals[queue_id] = now
            before = self._queue_totals.get(queue_id, now)
            is_busy = now != before
            if not is_busy and queue_id not in self._histories.queues:
                continue
            values: dict[str, float] = {"unfinished": queue.unfinished}
            for name, new, old in zip(QUEUE_RATES, now, before, strict=True):
                values[name] = max(0, new - old) / seconds if seconds > 0 else 0.0
            self._histories.add_of_queue(queue_id, now_ms, values, is_busy=is_busy)
        self._queue_totals = totals
        self._histories.keep_queues(frozenset(totals))

    # ── what is asked for ─────────────────────────────────────────────────────────────────────────

    def reasons(self) -> tuple[str, list[str]]:
        """Return "ready", "degraded" or "not ready", and why. Takes no right."""
        refusal = self._logs.refusal()
        damages = [each.sentence for each in self._logs.damages.known()[:MAX_REASONS]]
        if refusal is not None:
            return "not ready", [refusal.text, *damages]
        return ("degraded" if damages else "ready"), damages

    def is_visible(self, principal: Principal) -> bool:
        """Return True if a principal may see the state of the broker."""
        return self._access.allows(principal, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)

    async def describe(self, *, principal: Principal = ANONYMOUS) -> BrokerStatus:
        """Return the state of the broker.

        Raises:
            NotAuthorized: needs DESCRIBE on the cluster.
        """
        self._access.require_cluster(principal, Operation.DESCRIBE)
        return await self._describe()

    async def _describe(self) -> BrokerStatus:
        status, reasons = self.reasons()
        topics, sampler = self._parts.topic_registry, self._sampler
        unfinished, dead = sampler.jobs()
        free_bytes, reserve_bytes = sampler.free_bytes(), self._logs.reserve_bytes
        syncs = self._logs.sync_times.bounds, self._syncs[0], tuple(self._logs.sync_times.cumulative())
        return BrokerStatus(
            status=status,
            reasons=reasons,
            version=VERSION,
            cluster_id=self._cluster_id,
            started_ms=self._started_ms,
            uptime_ms=self._clock.wall_ms() - self._started_ms,
            topics=len(topics),
            partitions=sum(len(topic.partitions) for topic in topics),
            groups=len(self._parts.group_registry.names()),
            queues=len(self._parts.queue_registry),
            bytes=sampler.size_bytes(self._clock.monotonic(), _MOMENT_S),
            unfinished=unfinished,
            dead=dead,
            free_bytes=free_bytes,
            total_bytes=sampler.total_bytes(),
            reserve_bytes=reserve_bytes,
            full_in_ms=-1 if free_bytes < 0 else self._full_in_ms(free_bytes - reserve_bytes),
            connections=sampler.connections(),
            rates=MessageRates(**{name: round(self._histories.short.last(name), 1) for name in RATES}),
            sync_p50_ms=quantile_ms(*syncs, 0.5),
            sync_p99_ms=quantile_ms(*syncs, 0.99),
            attention=await self._all_attention(status, reasons, free_bytes),
        )

    async def attention(self) -> list[Attention]:
        """Return what needs attention, the gravest first, for those who may describe the cluster:
        the caller has checked that.
        """
        return await self._all_attention(*self.reasons(), self._sampler.free_bytes())

    def moment(self) -> dict[str, object]:
        """Return what changes from second to second, for those who may describe the cluster: the
        caller has checked that. Rates are those since the last call, if that was just now. What
        takes a walk over all topics (`status`, `bytes`) is looked at every five seconds.
        """
        totals, now_s = self._sampler.totals(), self._clock.monotonic()
        since, since_s = self._moment or (self._before, self._before_s)
        if now_s - since_s > _MOMENT_S:
            since, since_s = self._before, self._before_s
        self._moment = totals, now_s
        if now_s - self._state_at >= _MOMENT_S:
            self._state_at, self._state = now_s, self.reasons()[0]
        unfinished, dead = self._sampler.jobs()
        rates = rates_between(since, totals, now_s - since_s)
        return {
            "time_ms": self._clock.wall_ms(),
            "status": self._state,
            "rates": {name: round(value, 1) for name, value in rates.items()},
            "connections": self._sampler.connections(),
            "bytes": self._sampler.size_bytes(now_s, _MOMENT_S),
            "free_bytes": self._sampler.free_bytes(),
            "unfinished": unfinished,
            "dead": dead,
        }

    def history(
        self,
        series: Sequence[str] = (),
        span: str = SHORT,
        queue: str = "",
        *,
        principal: Principal = ANONYMOUS,
    ) -> BrokerHistory:
        """Return samples of the past, of the broker or of one queue.

        Raises:
            NotAuthorized: needs DESCRIBE on the cluster, or on the queue.
            UnknownQueue
            InvalidArgument: no such series or span; queues have the short span alone.
        """
        if queue:
            self._access.require(principal, Operation.DESCRIBE, ResourceType.GROUP, queue)
            known: tuple[str, ...] = QUEUE_SERIES
            spans: tuple[str, ...] = (SHORT,)
            ring = self._histories.queues.get(str(self._parts.queue_registry.get(queue).definition.id))
        else:
            self._access.require_cluster(principal, Operation.DESCRIBE)
            known, spans = SERIES, SPANS
            ring = self._histories.short if span == SHORT else self._histories.long
        unknown = [each for each in series if each not in known]
        if unknown:
            raise InvalidArgument(f"there is no series {unknown[0][:80]!r}; there are {', '.join(known)}")
        if span not in spans:
            raise InvalidArgument(f"there is no history of {span[:20]!r}; there is {' and '.join(spans)}")
        return BrokerHistory(
            span,
            INTERVAL_MS if span == SHORT else INTERVAL_MS * JOINED,
            self._started_ms,
            [] if ring is None else ring.times_ms(),
            {name: [] if ring is None else ring.series(name) for name in series or known},
        )

    # ── attention and forecast ────────────────────────────────────────────────────────────────────

    async def _all_attention(self, status: str, reasons: Sequence[str], free_bytes: int) -> list[Attention]:
        if self._clock.monotonic() - self._looked_at >= _ATTENTION_S:
            self._looked_at = self._clock.monotonic()
            self._attention = await self._rules.look()
        return [*self._own_attention(status, reasons, free_bytes), *self._attention]

    def _own_attention(self, status: str, reasons: Sequence[str], free_bytes: int) -> list[Attention]:
        found = []
        if status != "ready":
            kind = "disk" if status == "not ready" else "damage"
            found = [Attention(kind, reason) for reason in reasons[:3]]
        elif 0 <= free_bytes < _DISK_LOW * self._logs.reserve_bytes:
            left = (free_bytes - self._logs.reserve_bytes) >> 20
            found.append(Attention("disk", f"The disk has {left:,} MiB left before records are refused."))
        return found

    def _full_in_ms(self, left_bytes: int) -> int:
        """Return when the disk has only the reserve left, if it goes on like in the short ring."""
        ring = self._histories.short
        times, free = ring.times_ms(), ring.series("free_bytes")
        known = [(time, value) for time, value in zip(times, free, strict=True) if value is not None]
        if left_bytes <= 0:
            return 0
        if len(known) < _FORECAST_SAMPLES:
            return -1
        (first_ms, first), (last_ms, last) = known[0], known[-1]
        if last >= first or last_ms <= first_ms:
            return -1
        full_in_ms = int(left_bytes / ((first - last) / (last_ms - first_ms)))
        return full_in_ms if full_in_ms <= _FULL_WITHIN_MS else -1
