"""The things that a person should look at: rules over the current state and marks of a while ago.

Marks (the number of dead letters of each queue, the lag of each group) are set once a minute and
kept for a quarter of an hour, so that "grows" means something. The rules look at everything when
somebody asks, and the result is kept for a few seconds for all that ask.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import SparrowError
from sparrow.broker.groups.description import GroupType
from sparrow.broker.metrics.collector import Slices
from sparrow.model.status import Attention

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.composition import Parts
    from sparrow.broker.queues.queue import Queue

MARK_INTERVAL_S: Final = 60.0
MARKS: Final = 15
OLD_JOB_MS: Final = 10 * 60_000
"""A ready job that waits longer is worth a look."""
LEAST_LAG: Final = 1_000
"""A smaller lag is no reason to worry, growing or not."""
GROWING_MARKS: Final = 5
"""Minutes in which a lag grew."""
SILENT_MS: Final = 120_000
"""A running pipeline reports more often."""
MOST: Final = 50
_FAILING: Final = frozenset({"failing", "refused"})


class Marks(NamedTuple):
    """Numbers of one moment."""

    dead: dict[str, int]
    lags: dict[str, int]


class AttentionRules:
    """The rules. Loop thread only."""

    def __init__(self, parts: Parts, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock
        self._marks: deque[Marks] = deque(maxlen=MARKS)
        self._marked_at = clock.monotonic()

    async def maybe_mark(self) -> None:
        """Set a mark if a minute is over; the first one is that of the start."""
        if not self._marks:
            self._marks.append(Marks(await self._dead_at_start(), {}))
        if self._clock.monotonic() - self._marked_at >= MARK_INTERVAL_S:
            self._marked_at = self._clock.monotonic()
            await self.mark()

    async def mark(self) -> None:
        """Set a mark now."""
        self._marks.append(Marks(await self._dead(), await self._lags()))

    async def look(self) -> list[Attention]:
        """Return what needs attention, the gravest first, at most `MOST`."""
        found = [*await self._queues(), *await self._groups(), *self._webhooks(), *self._pipelines()]
        return [*found, *await self._schedules()][:MOST]

    # ── numbers ───────────────────────────────────────────────────────────────────────────────────

    async def _dead(self) -> dict[str, int]:
        slices, found = Slices(), {}
        for queue in list(self._parts.queue_registry):
            await slices.pause()
            dead = self.dead_of(queue)
            if dead:
                found[queue.name] = dead
        return found

    async def _dead_at_start(self) -> dict[str, int]:
        """Return the dead letters of each queue without those that came since the start."""
        slices, found = Slices(), {}
        for queue in list(self._parts.queue_registry):
            await slices.pause()
            dead = self._dead_queue_of(queue)
            if dead is not None:
                came = sum(each.partition.records_in for each in dead.sources if not each.is_gone)
                found[queue.name] = max(0, dead.unfinished - came)
        return found

    def dead_of(self, queue: Queue) -> int:
        """Return the unfinished records on the dead-letter topic of a queue."""
        dead = self._dead_queue_of(queue)
        return dead.unfinished if dead is not None else 0

    def _dead_queue_of(self, queue: Queue) -> Queue | None:
        topic = queue.definition.policy.dead_letters_of(queue.name)
        return self._parts.queue_registry.find(topic) if topic is not None else None

    async def _lags(self) -> dict[str, int]:
        slices, found = Slices(), {}
        for name in list(self._parts.group_registry.names()):
            await slices.pause()
            lag = self.lag_of(name)
            if lag >= LEAST_LAG:
                found[name] = lag
        return found

    def lag_of(self, group: str) -> int:
        """Return how many records a group has still to read; 0 for a share group, whose queue says
        it. Closed logs are left out: nothing is published to them.
        """
        registry = self._parts.group_registry
        try:
            if registry.info(group).type is GroupType.SHARE:
                return 0
            committed = registry.fetch_offsets(group)
        except SparrowError:  # deleted meanwhile
            return 0
        lag = 0
        for (name, index), position in committed.items():
            topic = self._parts.topic_registry.find(name)
            if topic is not None and index < len(topic.partitions):
                partition = topic.partitions[index]
                if partition.is_open:
                    start, end = partition.start_offset, partition.visible_end
                    lag += max(0, end - max(position.offset, start))
        return lag

    # ── rules ─────────────────────────────────────────────────────────────────────────────────────

    async def _queues(self) -> list[Attention]:
        slices, found = Slices(), []
        before = self._marks[0].dead if self._marks else await self._dead_at_start()
        for queue in list(self._parts.queue_registry):
            await slices.pause()
            if queue.definition.kind == "dead":
                continue
            name = queue.name
            grown = self.dead_of(queue) - before.get(name, 0)
            if grown > 0:
                new = f"{grown:,} new dead letter{'s' if grown > 1 else ''}"
                found.append(Attention("dead_letters", f"Queue {name} has {new}.", "queue", name))
            waits_ms = _oldest_ready_ms(queue)
            if waits_ms >= OLD_JOB_MS:
                why = "it is paused" if queue.definition.is_paused else _why_waiting(queue)
                minutes = waits_ms // 60_000
                text = f"The oldest job of queue {name} waits for {minutes:,} min; {why}."
                found.append(Attention("oldest_job", text, "queue", name))
        return found

    async def _groups(self) -> list[Attention]:
        if len(self._marks) < GROWING_MARKS:
            return []
        before = self._marks[-GROWING_MARKS].lags
        slices, found = Slices(), []
        for name, old in before.items():
            await slices.pause()
            lag = self.lag_of(name)
            if lag > old:
                text = f"Group {name} falls behind: {lag:,} messages, {lag - old:,} more than 5 min ago."
                found.append(Attention("lag", text, "group", name))
        return found

    def _webhooks(self) -> list[Attention]:
        registry, found = self._parts.webhook_registry, []
        for each in registry:
            statistics = registry.statistics((each.queue, each.name))
            if statistics.state in _FAILING:
                why = statistics.last_error or statistics.state
                text = f"Webhook {each.name} of queue {each.queue} fails: {why}"
                found.append(Attention("webhook", text, "webhook", each.queue, each.name))
        return found

    async def _schedules(self) -> list[Attention]:
        slices, found = Slices(), []
        for entry in self._parts.schedule_registry:
            await slices.pause()
            problem = "" if entry.definition.is_paused else self._parts.schedule_targets.problem(entry)
            if problem:
                text = f"Schedule {entry.name} publishes nothing: {problem}"
                found.append(Attention("schedule", text, "schedule", entry.name))
        return found

    def _pipelines(self) -> list[Attention]:
        found, now_ms = [], self._clock.wall_ms()
        for report in self._parts.pipelines.all():
            silent_ms = now_ms - report.updated_ms
            if report.state == "failed":
                text = f"Flow {report.flow} of pipeline {report.name} failed: {report.error or 'no reason'}"
            elif report.state == "running" and silent_ms > SILENT_MS:
                minutes = silent_ms // 60_000
                text = f"Flow {report.flow} of pipeline {report.name} is silent for {minutes} min."
            else:
                continue
            found.append(Attention("pipeline", text, "pipeline", report.name, report.flow))
        return found


def _oldest_ready_ms(queue: Queue) -> int:
    """Return the age of the oldest ready record; 0 if none is ready."""
    from sparrow.broker.queues.description import oldest_by_priority

    queue.scanner.catch_up(at_once=True)
    return max(oldest_by_priority(queue).values(), default=0)


def _why_waiting(queue: Queue) -> str:
    return "nobody takes from it" if not queue.consumers else "its consumers are busy"
