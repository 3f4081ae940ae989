"""Merging: what was committed in many small payloads becomes few objects.

Small payloads are what group commit makes where little is published: rows of the ledger with their
bytes, and small objects. They are merged when there is enough of them, or rows are old, so that the
ledger stays small, and reading old records takes few requests. Batches are checked, and stay as
they are, byte for byte; a piece with a damaged one is left alone. One commit puts the new runs of
all logs of a group in the place of the old ones; the rows that are of no use any more go with the
next.

An idle cluster merges nothing: each payload is merged into an object that is large, or old, once.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import CorruptStoredBatch
from sparrow.cluster.settlement import run_to_the_end

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparrow.cluster.committer import CommittedLog, ShardCommitter
    from sparrow.cluster.log_content import LogContent
    from sparrow.cluster.manifest import RunBuilder
    from sparrow.cluster.pieces import Piece

_LOG = logging.getLogger(__name__)
MERGED_BYTES: Final = 8 << 20
"""Size at which a merged object is complete."""


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """Conditions of merging; sizes in bytes, times in milliseconds."""

    small_object_bytes: int = 1 << 20
    """Larger objects stay as they are."""
    min_bytes: int = 16 << 20
    """Small payloads of this size together are merged."""
    max_rows: int = 1000
    """More rows with bytes are merged."""
    max_age_ms: int = 300_000
    """Older rows with bytes are merged."""


async def merge(
    logs: Iterable[LogContent], committer: ShardCommitter, now_ms: int, options: MergeOptions | None = None
) -> int:
    """Merge small payloads of open logs if there are enough. Return the number of merged pieces.

    Raises:
        all that reading and committing raise; what was committed by then stays.
    """
    options = options or MergeOptions()
    found = _small(logs, options.small_object_bytes)
    if not _is_worth(found, now_ms, options):
        return 0
    merged = 0
    for group in _groups(found):
        merged += await run_to_the_end(_merge_group(group, committer))
    return merged


_Stretch = tuple["LogContent", "list[Piece]"]
"""Neighbouring pieces of a log."""


def _small(logs: Iterable[LogContent], small_object_bytes: int) -> list[_Stretch]:
    """Return all neighbouring pieces whose payloads are small."""
    found: list[_Stretch] = []
    for log in logs:
        stretch: list[Piece] = []
        for piece in log.pieces:
            payload = piece.payload
            is_small = payload.object_key is None or payload.size_bytes < small_object_bytes
            if is_small and not piece.is_damaged:
                stretch.append(piece)
            elif stretch:
                found.append((log, stretch))
                stretch = []
        if stretch:
            found.append((log, stretch))
    return found


def _is_worth(found: Sequence[_Stretch], now_ms: int, options: MergeOptions) -> bool:
    payloads = {piece.payload.seq: piece.payload for _, pieces in found for piece in pieces}
    rows = [each for each in payloads.values() if each.object_key is None]
    size = sum(piece.run.length for _, pieces in found for piece in pieces)
    is_old = any(now_ms - each.at_ms > options.max_age_ms for each in rows)
    return is_old or len(rows) > options.max_rows or (size > options.min_bytes and len(payloads) > 1)


def _groups(found: Sequence[_Stretch]) -> Iterator[list[_Stretch]]:
    """Divide the pieces into groups of about `MERGED_BYTES`."""
    group: list[_Stretch] = []
    size = 0
    for log, pieces in found:
        part: list[Piece] = []
        for piece in pieces:
            if size and size + piece.run.length > MERGED_BYTES:
                yield [*group, *([(log, part)] if part else [])]
                group, part, size = [], [], 0
            part.append(piece)
            size += piece.run.length
        if part:
            group.append((log, part))
    if group:
        yield group


async def _merge_group(group: Sequence[_Stretch], committer: ShardCommitter) -> int:
    """Put the pieces of a group into one object."""
    async with AsyncExitStack() as held:
        for log in dict.fromkeys(log for log, _ in group):
            await held.enter_async_context(log.rewriting)
        # Retention, compaction or the deletion of a topic may have come before the locks.
        stretches = [
            (log, pieces) for log, pieces in group if not log.is_closed and _are_neighbours(log, pieces)
        ]
        runs: list[tuple[CommittedLog, RunBuilder]] = []
        merged = 0
        for log, pieces in stretches:
            try:
                runs += [(log, run) for run in await log.merged(pieces)]
            except CorruptStoredBatch as error:
                _LOG.warning("a damaged piece is not merged: %s", error.text)
                continue
            merged += len(pieces)
        if not runs:
            return 0
        await committer.replace(runs, is_object=True)
    return merged


def _are_neighbours(log: LogContent, pieces: Sequence[Piece]) -> bool:
    """Return True if the log still has just these pieces there."""
    present = [each for each in log.pieces.since(pieces[0].base) if each.base < pieces[-1].end]
    present = [each for each in present if each.base >= pieces[0].base]
    return len(present) == len(pieces) and all(a is b for a, b in zip(present, pieces, strict=True))
