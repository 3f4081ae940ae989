"""A log store without logs: the records are where another process has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sparrow.base.errors import Draining
from sparrow.base.histogram import Histogram
from sparrow.storage.damage import Damages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.base.errors import SparrowError
    from sparrow.storage.journal import Journal
    from sparrow.storage.store import LogConfig, LogId, PartitionLog


class AbsentLogs:
    """A `LogStore` that has no log and opens none."""

    clean_start = True
    leader_epoch = 0
    location = ""
    reserve_bytes = 0

    def __init__(self) -> None:
        self.sync_times = Histogram()
        self.damages = Damages()

    def _refuse(self) -> NoReturn:
        raise Draining("this broker stands by and has no records; connect to the owner of the data")

    def is_current(self) -> bool:
        return True

    async def current(self) -> None:
        """Return at once: nothing is answered from memory that has to be the newest."""

    def ids(self) -> list[LogId]:
        return []

    def open(self, log_id: LogId, config: LogConfig) -> PartitionLog:  # noqa: ARG002 - the seam's arguments
        self._refuse()

    def open_nowait(self, log_id: LogId, config: LogConfig) -> PartitionLog | None:  # noqa: ARG002
        self._refuse()

    async def survey(self, log_ids: Iterable[LogId]) -> None:
        """Do nothing: no log can lack anything."""

    async def forget_missing(self, log_id: LogId) -> bool:  # noqa: ARG002
        return True

    async def delete(self, log: PartitionLog) -> None:  # noqa: ARG002
        self._refuse()

    async def purge(self, log_id: LogId) -> None:  # noqa: ARG002
        self._refuse()

    def open_journal(self, mark: bytes | None) -> Journal:  # noqa: ARG002
        self._refuse()

    def free_bytes(self) -> int:
        return 0

    def total_bytes(self) -> int:
        return 0

    def refusal(self) -> SparrowError | None:
        return Draining("this broker stands by")

    async def close(self) -> None:
        """Do nothing: nothing is open."""
