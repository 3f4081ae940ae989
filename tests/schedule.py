"""Which process runs which tests, where pytest has several (`-n`).

The tests of a file stay together, so that what they share is set up once; all files that use the
Spark session stay together, so that one JVM serves them. What takes long begins first, then what
has many tests, so that the processes end at about the same time.

pytest-xdist has groups of its own (`--dist=loadgroup`), but asks for them by a suffix of the test's
name, which pytest 9.2 no longer lets it add. So the path decides here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SESSION = "the Spark session"
"""All of `tests/spark/`, but for what is named below."""

NO_SPARK = ("tests/spark/wire/",)
PROGRAMS = ("tests/spark/exactly_once/", "tests/spark/programs/")
"""Programs with a JVM of their own, one after the other: Spark gives up on a Python process that is
not there after ten seconds, and several starts at a time take longer on two cores.
"""

LOOKS = "tests/console/test_console_looks.py"
"""Few tests, each of which shows all pages of the console."""

LONG = (
    *(SESSION, PROGRAMS[0], "tests/crash/", "tests/cluster/"),
    *(LOOKS, "tests/console/", "tests/cli/", "tests/demo/"),
)
"""The units that begin first, in this order: what starts processes, and waits for them."""


class LongestFirst(LoadScopeScheduling):
    """The units of work are files; those that use the Spark session are one, those of programs
    another.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        if path.startswith(PROGRAMS):
            return PROGRAMS[0]
        if path.startswith("tests/spark/") and not path.startswith(NO_SPARK):
            return SESSION
        return path

    def _assign_work_unit(self, node: WorkerController) -> None:
        following = min(self.workqueue, key=self._place)
        self.workqueue.move_to_end(following, last=False)
        super()._assign_work_unit(node)

    def _place(self, unit: str) -> tuple[int, int]:
        """Return the place of a unit; units with lower places begin earlier."""
        rank = next((number for number, start in enumerate(LONG) if unit.startswith(start)), len(LONG))
        return rank, -len(self.workqueue[unit])
