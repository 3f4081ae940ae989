"""Options of the local log store, in one frozen declaration. Deep code gets the values it needs,
never this object.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparrow.base.settings import duration, option, size
from sparrow.storage.handles import DEFAULT_LIMIT


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Limits and times of a store; sizes in bytes, times in milliseconds."""

    max_open_files: int = DEFAULT_LIMIT
    """Maximum number of open segment files, over all logs."""
    index_cache_bytes: int = 32 << 20
    """Memory for the indexes of closed segments, over all logs."""
    flush_threads: int = 4
    """Number of logs synced at once. 0: on the loop itself, for tests that must repeat exactly."""
    worker_threads: int = 4
    """Number of cold reads, recoveries, deletes and compactions at once. 0: on the loop itself, for
    tests that must repeat exactly.
    """
    flush_interval_ms: int = option(
        "flush_interval",
        duration(1, 86_400_000),
        1000,
        "Records that nobody waits for (acks 0 and 1) are synced at the latest after this.",
    )
    """Counted from a log's first unsynced append. 0: never."""
    journal_file_bytes: int = 4 << 20
    """Size of each of the two files of the journal."""
    reserve_bytes: int = option(
        "reserve",
        size(0, 1 << 50),
        64 << 20,
        "Room kept free on the disk; publishing is refused below it (at most 5 % of the disk).",
    )
    """Acknowledgements and deletes always find space."""
    space_check_bytes: int = 16 << 20
    """Ask the device for its free space after this many bytes were appended, and at least every
    second.
    """
    compaction_map_bytes: int = 128 << 20
    """Memory for the keys that one compaction of one log considers."""
    producer_expiry_ms: int = 86_400_000
    """Compaction keeps an idle producer's last batch header this long, so that its duplicates are
    still known.
    """
