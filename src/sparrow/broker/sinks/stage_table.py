"""Open stages by id and by sink, and the free slots.

A slot is a transactional id that stages use one after the other, the lowest free one first: with as
many producers as there were stages at once, what partitions remember of producers stays bounded.

A batch's stages share their sign of life: as long as one task of it works, the others, which wait
for it, are kept. But a stage whose client vanished in the middle (its worker was killed) is never
committed, and is not kept for long: readers of committed records wait at its records.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import Overloaded, StageExpired
from sparrow.broker.sinks.stage import PREFIX
from sparrow.broker.transactions.state import AT_REST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparrow.broker.sinks.stage import Stage
    from sparrow.broker.transactions.state import Transaction

MAX_STAGES_OF_SINK: Final = 1_000
MAX_STAGES: Final = 10_000
ABANDONED_MS: Final = 120_000
"""Time for which a stage is kept after its client was lost in the middle and did not come back."""

_BatchKey = tuple[str, str, int]


class StageTable:
    """All open stages. Loop thread only.

    Args:
        find: returns the transaction of a transactional id, if it is known.
    """

    def __init__(self, find: Callable[[str], Transaction | None]) -> None:
        self._find = find
        self._by_slot: dict[int, Stage] = {}
        self._by_sink: dict[str, dict[int, Stage]] = {}
        self._seen_s: dict[_BatchKey, float] = {}
        """Time of the last activity of each batch that has stages (monotonic s)."""
        self._counts: dict[_BatchKey, int] = {}
        self._free: list[int] = []
        self._next_slot = 0

    def __iter__(self) -> Iterator[Stage]:
        return iter(list(self._by_slot.values()))

    def __len__(self) -> int:
        return len(self._by_slot)

    def load(self, stages: Iterable[Stage], slots: Iterable[int], now_s: float) -> None:
        """Take over the open stages and the used slots of earlier runs."""
        for stage in stages:
            self._put(stage, now_s)
        known = {*slots, *self._by_slot}
        self._next_slot = max(known, default=-1) + 1
        self._free = [each for each in range(self._next_slot) if each not in self._by_slot]
        heapify(self._free)

    # ── finding ───────────────────────────────────────────────────────────────────────────────────

    def get(self, stage_id: str) -> Stage:
        """Return an open stage.

        Raises:
            StageExpired
        """
        slot = stage_id.partition("-")[0]
        found = self._by_slot.get(int(slot)) if slot.isdecimal() and len(slot) < 10 else None
        if found is None or found.stage_id != stage_id or not found.is_open:
            raise StageExpired(
                f"there is no open stage {stage_id[:80]!r}: it was committed, aborted, or its batch "
                "gave no sign of life for too long; the batch must be written again"
            )
        return found

    def has_slot(self, slot: int) -> bool:
        """Return True if an open stage has the slot."""
        return slot in self._by_slot

    def of_sink(self, sink_id: str) -> list[Stage]:
        """Return the stages of a sink, oldest first."""
        return list(self._by_sink.get(sink_id, {}).values())

    # ── coming and going ──────────────────────────────────────────────────────────────────────────

    def check_room(self, sink_id: str) -> None:
        """Raise Overloaded if no further stage can be opened for the sink."""
        if len(self._by_sink.get(sink_id, ())) >= MAX_STAGES_OF_SINK:
            raise Overloaded(
                f"sink {sink_id!r} has {MAX_STAGES_OF_SINK} stages open; write with fewer tasks, "
                "or wait until the rest of an older batch expires"
            )
        if len(self._by_slot) >= MAX_STAGES:
            raise Overloaded(f"all sinks together have {MAX_STAGES} stages open; try again later")

    def take_slot(self) -> int:
        """Return the lowest free slot whose last transaction is complete."""
        passed = []
        found = -1
        while self._free and found < 0:
            slot = heappop(self._free)
            if self._is_at_rest(slot):
                found = slot
            else:
                passed.append(slot)
        for slot in passed:
            heappush(self._free, slot)
        if found < 0:
            found = self._next_slot
            self._next_slot += 1
        return found

    def add(self, stage: Stage, now_s: float) -> None:
        """Add a stage that has got a slot."""
        self._put(stage, now_s)

    def remove(self, stage: Stage) -> None:
        """Remove a stage. Repeated: no effect."""
        stage.is_open = False
        if self._by_slot.get(stage.slot) is not stage:
            return
        del self._by_slot[stage.slot]
        heappush(self._free, stage.slot)
        those = self._by_sink[stage.sink_id]
        del those[stage.slot]
        if not those:
            del self._by_sink[stage.sink_id]
        key = _batch_key(stage)
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key], self._seen_s[key]

    def _put(self, stage: Stage, now_s: float) -> None:
        self._by_slot[stage.slot] = stage
        self._by_sink.setdefault(stage.sink_id, {})[stage.slot] = stage
        key = _batch_key(stage)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._seen_s[key] = now_s

    def _is_at_rest(self, slot: int) -> bool:
        found = self._find(f"{PREFIX}{slot}")
        return found is None or found.state in AT_REST

    # ── signs of life ─────────────────────────────────────────────────────────────────────────────

    def touch(self, sink_id: str, run: str, batch: int, now_s: float) -> None:
        """Note activity of a batch."""
        key = (sink_id, run, batch)
        if key in self._seen_s:
            self._seen_s[key] = now_s

    def left_ms(self, stage: Stage, now_s: float) -> int:
        """Return how long a stage is kept without further activity, in ms; negative: it has
        expired.
        """
        left_ms = stage.timeout_ms - round((now_s - self._seen_s[_batch_key(stage)]) * 1000)
        if stage.abandoned_s is None:
            return left_ms
        return min(left_ms, ABANDONED_MS - round((now_s - stage.abandoned_s) * 1000))


def _batch_key(stage: Stage) -> _BatchKey:
    return stage.sink_id, stage.run, stage.batch
