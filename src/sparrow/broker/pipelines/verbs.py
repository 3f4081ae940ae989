"""What doors may ask about pipelines and streams. All of it is in memory, bounded and forgotten after an hour: it is shown, nothing depends on it.

A pipeline is guarded as the group "spark-<its name>" is, so that one rule with the prefix "spark-" lets a program commit its lag and report its pipelines:
READ to report, DESCRIBE to look. An introduction takes READ on the group that it names.

Introductions: a task of a stream knows the name of its query, the stream's reader on the driver knows how far it is; the task names the group for the reader's number, which nobody
can guess, and the reader asks for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType, require
from sparrow.broker.groups.groups import check_group_name
from sparrow.broker.pipelines.recent import Recent
from sparrow.broker.pipelines.report import Report, checked

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.base.clock import Clock
    from sparrow.broker.access.authz import Authorizer

GROUP_PREFIX: Final = "spark-"
MAX_REPORTS: Final = 1_000
MAX_INTRODUCTIONS: Final = 10_000
KEPT_S: Final = 3_600.0
MAX_READER: Final = 64
_GROUP = ResourceType.GROUP


class PipelineVerbs:
    """`broker.pipelines`. Loop thread only.

    Args:
        clock: what is old goes by it.
        authorizer: who may.
    """

    def __init__(self, clock: Clock, authorizer: Callable[[], Authorizer]) -> None:
        self._clock = clock
        self._authorizer = authorizer
        self._reports: Recent[tuple[str, str], Report] = Recent(clock, max_entries=MAX_REPORTS, kept_s=KEPT_S)
        self._groups: Recent[str, str] = Recent(clock, max_entries=MAX_INTRODUCTIONS, kept_s=KEPT_S)

    def report(self, report: Report, *, principal: Principal = ANONYMOUS) -> None:
        """Take the place of what was said of this flow.

        Raises:
            NotAuthorized, InvalidArgument
        """
        require(self._authorizer(), principal, Operation.READ, _GROUP, GROUP_PREFIX + report.name)
        self._reports.put(
            (report.name, report.flow), replace(checked(report), updated_ms=self._clock.wall_ms())
        )

    def listing(self, *, principal: Principal = ANONYMOUS) -> list[Report]:
        """What was said in the last hour, by pipeline and flow, as far as the principal may look."""
        seen = [report for report in self._reports if self.may_see(report, principal)]
        return sorted(seen, key=lambda report: (report.name, report.flow))

    def may_see(self, report: Report, principal: Principal) -> bool:
        """Whether a principal may look at a report."""
        return self._authorizer().allows(principal, Operation.DESCRIBE, _GROUP, GROUP_PREFIX + report.name)

    def introduce(self, reader: str, group: str, *, principal: Principal = ANONYMOUS) -> None:
        """Say which group's offsets a stream's reader has.

        Raises:
            NotAuthorized, InvalidArgument
        """
        require(self._authorizer(), principal, Operation.READ, _GROUP, group)
        check_group_name(group)
        if not 0 < len(reader) <= MAX_READER:
            raise InvalidArgument(f"a reader must have 1 to {MAX_READER} characters, not {len(reader)}")
        self._groups.put(reader, group)

    def introduced(self, reader: str) -> str | None:
        """The group of a reader; None if nobody introduced it in the last hour."""
        return self._groups.get(reader)
