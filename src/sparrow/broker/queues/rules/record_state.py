"""State of a record in a queue, as one number.

    bits 0-2   state
    bits 3-6   priority level, 0 to 9
    bits 7-14  delivery count, at most 255
    bits 15…   number of the `Lease` (leases.py); 0: never delivered

Numbers compare and coalesce, so that neighbours with equal state are one range, however many they
are.

The life of a record::

    UNKNOWN ──scanned──▶ READY ◀─────────────────────────────┐
       │ │ │               │ ▲                               │
       │ │ │         lease │ │ nack, release, end of lease   │ its time comes, or it is unblocked
       │ │ │               ▼ │                               │
       │ │ │             LEASED ──nack, end of lease, with a delay──▶ DELAYED
       │ │ │               │ │                               ▲
       │ │ └─deliver-at────┼─┼───────────────────────────────┘
       │ └─parents, key────┼─┼──▶ BLOCKED ──▶ READY
       │               ack │ │ reject, last delivery failed
       ▼                   ▼ ▼
      GAP                DONE ◀── MOVING (to the dead letters)

    READY, DELAYED, BLOCKED ──expired, purged──▶ DONE
"""

from __future__ import annotations

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
LEASE_SHIFT: Final = 15
BELOW_LEASE: Final = (1 << LEASE_SHIFT) - 1
NO_LEVEL: Final = 4
"""Priority of records that name none."""

SOURCE_SHIFT: Final = 48
OFFSET_MASK: Final = (1 << SOURCE_SHIFT) - 1

PERSISTED: Final = tuple(
    {LEASED: STATE_MASK, MOVING: STATE_MASK, DONE: STATE_MASK, GAP: 0}.get(state, COUNT_MASK)
    for state in range(len(STATES))
)
"""For each state a mask: a record's value must be persisted if one of these bits is set, since the
log alone does not show it. It is finished, leased or moving, or it was delivered before.
"""


def level_of(value: int) -> int:
    return (value & LEVEL_MASK) >> LEVEL_SHIFT


def count_of(value: int) -> int:
    return (value & COUNT_MASK) >> COUNT_SHIFT
