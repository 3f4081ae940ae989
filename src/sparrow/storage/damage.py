"""Damage of a log: missing or unreadable records, described in the same words everywhere.

`Damage.sentence` makes the one sentence that the broker's log, `/readyz`, the error of a closed
partition and `sparrow doctor` show. `Damages` is the register of a store: the start, reads and the
scrubber add to it, health checks and metrics read it.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.base.errors import LogDamaged

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)
MAX_KEPT = 1000
"""Number of different damages that are remembered besides those that close a partition; the counts
continue.
"""


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in the files of one log where records are missing or cannot be read."""

    log: str
    """Topic and partition, as in `orders-0`."""
    path: str
    problem: str
    first: int
    """The first offset that is lost."""
    end: int
    """End of the lost offsets; -1: unknown."""
    closes: bool = True
    """True if the partition is closed because of it."""
    is_there: bool = False
    """True if the bytes are there, but cannot be read."""

    @property
    def sentence(self) -> str:
        """File, problem and lost offsets, for people."""
        if self.end < 0:
            lost = f"records of {self.log} from offset {self.first} on"
        elif self.end - self.first == 1:
            lost = f"offset {self.first} of {self.log}"
        else:
            lost = f"offsets {self.first} to {self.end - 1} of {self.log}"
        verb = "is" if self.end - self.first == 1 else "are"
        return f"{self.path}: {self.problem}; {lost} {verb} {'unreadable' if self.is_there else 'lost'}"

    def error(self) -> LogDamaged:
        """The error of every call to the closed partition."""
        return LogDamaged(
            f"the partition {self.log} is closed: {self.sentence}. Put the file back, or stop the "
            "broker and run"
            f" `sparrow doctor --accept-loss` to continue without them"
        )


class Damages:
    """The known damages of one store. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[Damage, Damage] = {}
        self._lock = threading.Lock()
        self._is_full = False
        self.corrupt_reads = 0
        """Number of reads that met bytes which are not the batches that were written."""

    def add(self, damage: Damage) -> None:
        """Remember a damage and log it, once."""
        # Readers meet one damaged place from many offsets.
        key = dataclasses.replace(damage, first=0) if damage.end < 0 else damage
        with self._lock:
            if key in self._known:
                return
            is_full = not damage.closes and len(self._known) >= MAX_KEPT
            if is_full and self._is_full:
                return
            self._is_full = is_full
            if not is_full:
                self._known[key] = damage
        if is_full:
            _log.error("more than %d places of logs are damaged; the others are not listed", MAX_KEPT)
        else:
            _log.error("%s", damage.sentence)

    def count_corrupt_read(self) -> None:
        """Count one read that met damaged bytes."""
        with self._lock:
            self.corrupt_reads += 1

    def forget(self, log: str) -> None:
        """Forget a log: it was deleted."""
        self._forget(lambda each: each.log == log)

    def forget_file(self, path: str) -> None:
        """Forget the faults of a file: it left its log, or another has its name."""
        self._forget(lambda each: each.path == path)

    def _forget(self, is_gone: Callable[[Damage], bool]) -> None:
        with self._lock:
            self._known = {key: each for key, each in self._known.items() if not is_gone(each)}

    def known(self) -> list[Damage]:
        """Return all known damages, oldest first."""
        with self._lock:
            return list(self._known.values())

    @property
    def closed_logs(self) -> int:
        """Return the number of closed partitions."""
        return len({damage.log for damage in self.known() if damage.closes})
