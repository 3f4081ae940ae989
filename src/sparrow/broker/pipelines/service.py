"""The service of pipelines and streams. All of it is in memory, bounded and dropped after an hour:
it is for display, nothing depends on it.

A pipeline has the rights of the group "spark-<its name>", so that one rule with the prefix "spark-"
lets a program commit its lag and report its pipelines: READ to report, DESCRIBE to look. An
introduction needs READ on the group that it names.

Introductions: a task of a stream knows the name of its query, the stream's reader on the driver
knows its progress; the task names the group for the reader's number, which cannot be guessed, and
the reader asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sparrow.base.errors import InvalidArgument
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.names import check_group_name
from sparrow.broker.pipelines.recent import Recent
from sparrow.broker.pipelines.report import checked

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.access.access import Access
    from sparrow.model.pipelines import Report

GROUP_PREFIX: Final = "spark-"
MAX_REPORTS: Final = 1_000
MAX_INTRODUCTIONS: Final = 10_000
KEPT_S: Final = 3_600.0
MAX_READER: Final = 64
_GROUP = ResourceType.GROUP


class PipelineService:
    """The service of pipelines, `broker.pipelines`. Loop thread only.

    Args:
        clock: times the age of reports.
    """

    def __init__(self, clock: Clock, access: Access) -> None:
        self._clock = clock
        self._access = access
        self._reports: Recent[tuple[str, str], Report] = Recent(clock, max_entries=MAX_REPORTS, kept_s=KEPT_S)
        self._groups: Recent[str, str] = Recent(clock, max_entries=MAX_INTRODUCTIONS, kept_s=KEPT_S)

    def report(self, report: Report, *, principal: Principal = ANONYMOUS) -> None:
        """Replace the report of this flow.

        Raises:
            NotAuthorized, InvalidArgument
        """
        self._access.require(principal, Operation.READ, _GROUP, GROUP_PREFIX + report.name)
        self._reports.put(
            (report.name, report.flow), replace(checked(report), updated_ms=self._clock.wall_ms())
        )

    def listing(self, *, principal: Principal = ANONYMOUS) -> list[Report]:
        """Return the reports of the last hour that the principal may see, by pipeline and flow."""
        seen = [report for report in self._reports if self.may_see(report, principal)]
        return sorted(seen, key=lambda report: (report.name, report.flow))

    def all(self) -> list[Report]:
        """Return all reports of the last hour, for the broker itself."""
        return list(self._reports)

    def may_see(self, report: Report, principal: Principal) -> bool:
        """Return True if a principal may see a report."""
        return self._access.allows(principal, Operation.DESCRIBE, _GROUP, GROUP_PREFIX + report.name)

    def introduce(self, reader: str, group: str, *, principal: Principal = ANONYMOUS) -> None:
        """Name the group whose offsets a stream's reader has.

        Raises:
            NotAuthorized, InvalidArgument
        """
        self._access.require(principal, Operation.READ, _GROUP, group)
        check_group_name(group)
        if not 0 < len(reader) <= MAX_READER:
            raise InvalidArgument(f"a reader must have 1 to {MAX_READER} characters, not {len(reader)}")
        self._groups.put(reader, group)

    def introduced(self, reader: str) -> str | None:
        """Return the group of a reader; None if it was not introduced in the last hour."""
        return self._groups.get(reader)
