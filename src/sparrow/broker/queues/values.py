"""What a queue remembers of a record, in one number.

    bits 0-2   state
    bits 3-6   priority level, 0 to 9
    bits 7-14  delivery count, at most 255
    bits 15…   the number of a `Mark`: what records that were delivered together have in common; 0: never delivered

Numbers compare and coalesce, so that neighbours of one fate are one range, however many they are.

The life of a record::

    UNKNOWN ──scanned──▶ READY ◀─────────────────────────────┐
       │ │ │               │ ▲                               │
       │ │ │         lease │ │ nack, lease's end, return     │ its time comes, or what it waits for is done
       │ │ │               ▼ │                               │
       │ │ │             LEASED ──nack, lease's end with a delay──▶ DELAYED
       │ │ │               │ │                               ▲
       │ │ └─deliver-at────┼─┼───────────────────────────────┘
       │ └─parents, key────┼─┼──▶ BLOCKED ──▶ READY
       │       acknowledge │ │ reject, last delivery failed
       ▼                   ▼ ▼
      GAP                DONE ◀── MOVING (to the dead letters)      READY, DELAYED, BLOCKED ──expired, purged──▶ DONE
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

UNKNOWN: Final = 0
READY: Final = 1
LEASED: Final = 2
DELAYED: Final = 3
BLOCKED: Final = 4
MOVING: Final = 5
DONE: Final = 6
GAP: Final = 7
STATES: Final = ("unknown", "ready", "leased", "delayed", "blocked", "moving", "done", "gap")

STATE_MASK: Final = 0b111
LEVEL_SHIFT: Final = 3
LEVEL_MASK: Final = 0b1111 << LEVEL_SHIFT
COUNT_SHIFT: Final = 7
COUNT_MASK: Final = 0xFF << COUNT_SHIFT
COUNT_ONE: Final = 1 << COUNT_SHIFT
MARK_SHIFT: Final = 15
BELOW_MARK: Final = (1 << MARK_SHIFT) - 1
NO_LEVEL: Final = 4
"""The priority of records that name none."""

SOURCE_SHIFT: Final = 48
OFFSET_MASK: Final = (1 << SOURCE_SHIFT) - 1


def ref_of(source: int, offset: int) -> int:
    """Source and offset in one number."""
    return source << SOURCE_SHIFT | offset


def level_of(value: int) -> int:
    return (value & LEVEL_MASK) >> LEVEL_SHIFT


def count_of(value: int) -> int:
    return (value & COUNT_MASK) >> COUNT_SHIFT


def must_be_kept(value: int) -> bool:
    """Whether the log alone does not tell: finished, leased, moving, or delivered before."""
    state = value & STATE_MASK
    return state in (LEASED, MOVING, DONE) or (state != GAP and value & COUNT_MASK != 0)


@dataclass(slots=True, eq=False)
class Mark:
    """What records that were delivered together, or came back together, have in common.

    `due_ms` counts monotonic time: the end of the lease (LEASED), or of the delay (DELAYED).
    """

    consumer: str
    first_ms: int
    """Wall time of the first delivery."""
    last_ms: int
    """Wall time of the last."""
    due_ms: int = 0
    error: str = ""
    reason: str = ""
    """Why they go to the dead letters (MOVING)."""
    timer_ms: int = 0
    """When a timer for `due_ms` fires, maybe too early; 0: there is none."""
    records: int = 0
    """How many have it now."""
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    """(source, first, end): where those that have it lie, and maybe others."""

    kept: bytes | None = None
    """Its stored form, once it was stored; whoever changes the mark forgets it."""

    def add(self, source: int, first: int, end: int) -> None:
        """These have it from now on."""
        self.records += end - first
        if self.pieces:
            last = self.pieces[-1]
            if last[0] == source and last[2] == first:
                self.pieces[-1] = (source, last[1], end)
                return
        self.pieces.append((source, first, end))
