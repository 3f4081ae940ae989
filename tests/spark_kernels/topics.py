"""Random parts of a partition's log, for property tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.records.control import ControlType, build_marker
from tests.records.columns import NOW_MS, columns, expected
from tests.records.naive import with_fields

PRODUCERS = (7, 8, 9)


@st.composite
def stretches(draw: st.DrawFn) -> tuple[list[bytes], list[tuple[Any, ...]]]:
    """Return adjacent batches, sometimes with a gap of offsets, and their records."""
    batches: list[bytes] = []
    rows: list[tuple[Any, ...]] = []
    offset = draw(st.sampled_from([0, 1, 1000, 2**40]))
    for _ in range(draw(st.integers(1, 5))):
        content = draw(columns)
        codec = draw(st.sampled_from(Compression))
        batch = build_batch(**content, compression=codec, base_offset=offset)
        records = expected(content, offset)
        if draw(st.booleans()):
            batch = with_fields(batch, attributes=codec | 0x08, max_timestamp=NOW_MS + 5)
            records = [(row[0], NOW_MS + 5, *row[2:]) for row in records]
        batches.append(batch)
        rows += records
        offset += len(records) + draw(st.sampled_from([0, 0, 3]))
        if draw(st.integers(0, 4)) == 0:
            batches.append(build_marker(ControlType.COMMIT, 7, 0, NOW_MS, base_offset=offset))
            offset += 1
    return batches, rows


@dataclass
class History:
    """Transactions that several producers wrote to a partition."""

    batches: list[bytes]
    committed: list[int]
    """The offsets of records that were committed, or written outside transactions."""
    aborted: list[tuple[int, int]]
    """Producer id and first offset."""


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Return overlapping transactions, all of them ended."""
    found = History([], [], [])
    pending: dict[int, list[int]] = {}
    offset = 0
    steps = draw(st.lists(st.tuples(st.sampled_from(PRODUCERS), st.integers(0, 5)), max_size=25))
    for producer, action in [*steps, *((producer, 4) for producer in PRODUCERS)]:
        if action < 4:
            count = 1 + action % 2
            is_transactional = action < 3
            found.batches.append(
                build_batch(
                    [b"%d" % (offset + n) for n in range(count)],
                    compression=Compression.LZ4 if action == 1 else 0,
                    base_offset=offset,
                    producer_id=producer,
                    transactional=is_transactional,
                )
            )
            (pending.setdefault(producer, []) if is_transactional else found.committed).extend(
                range(offset, offset + count)
            )
            offset += count
            continue
        offsets = pending.pop(producer, [])
        kind = ControlType.COMMIT if action == 5 else ControlType.ABORT
        found.batches.append(build_marker(kind, producer, 0, NOW_MS, base_offset=offset))
        offset += 1
        if kind is ControlType.COMMIT:
            found.committed += offsets
        elif offsets:
            found.aborted.append((producer, offsets[0]))
    found.committed.sort()
    found.aborted.sort(key=lambda each: each[1])
    return found
