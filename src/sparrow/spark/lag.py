"""Positions of a stream, committed as the offsets of a consumer group, so that `sparrow group list`
and the metrics show its lag.

Spark keeps a query's offsets in its checkpoint; the group is for observers. It is called
"spark-<query name>", or by the query's id where it has no name, and has for each partition the
offset that the stream reads next: everything before has passed the sink. Two processes know one
half of that each:

    the reader on the driver   which offsets are done: Spark passes it the end of the last
                               batch when it asks for the next one
    a task                     which query it is: its name is in the task's properties

so a task that belongs to an unknown reader introduces it to the broker (`group.introduce`), the
reader asks for its group (`group.introduced`) and commits from then on by itself. No listener and
no import in the user's program is needed, and it works on Spark Connect and in plain sessions; a
query that waits for data or ended by AvailableNow has also committed its last batch.

A commit never fails and never delays a query: a broker that refuses is asked again a minute later,
and a warning says why.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import SparrowError

if TYPE_CHECKING:
    from sparrow.spark.wire import Target

Offsets = Mapping[str, Mapping[int, int]]
"""Topic → partition → the offset that is read next."""

INTERVAL_S: Final = 1.0
"""Interval at which a busy stream commits."""
RETRY_S: Final = 60.0
_AGAIN_S = 5.0
_CALL_TIMEOUT_S = 5.0
_DESCRIPTION, _QUERY_ID = "spark.job.description", "sql.streaming.queryId"
_log = logging.getLogger("sparrow.spark")


@dataclass(frozen=True, slots=True)
class Introduction:
    """The data that a task needs to introduce a reader."""

    reader: str
    prefix: str


class Lag:
    """Commits the positions of one stream, in its reader on the driver. For one thread; tasks get
    `introduction` instead.

    Args:
        target: the broker.
        is_wanted: False: nothing is committed.
        prefix: the group's name is this, a hyphen and the query's name.
        group: its whole name instead.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        target: Target,
        *,
        is_wanted: bool = True,
        prefix: str = "spark",
        group: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._is_wanted = is_wanted
        self._prefix = prefix
        self._group = group
        self._clock = clock
        self._reader = uuid.uuid4().hex
        self._reported: dict[tuple[str, int], int] = {}
        self._not_before_s = 0.0
        self._warned = ""

    @property
    def introduction(self) -> Introduction | None:
        """Return what goes with every task, for `introduce`; None when there is nothing to
        introduce, or nothing more.
        """
        if not self._is_wanted or self._group is not None:
            return None
        return Introduction(self._reader, self._prefix)

    def reached(self, offsets: Offsets, *, is_caught_up: bool = False) -> None:
        """Commit that everything before these offsets is done. Never raises.

        Args:
            offsets: the start of the next batch.
            is_caught_up: there is nothing more for now: commit at once, however recent the last
                commit is.
        """
        flat = {
            (topic, number): offset
            for topic, numbers in offsets.items()
            for number, offset in numbers.items()
        }
        news = {key: offset for key, offset in flat.items() if self._reported.get(key) != offset}
        if (
            not self._is_wanted
            or not news
            or self._clock() < self._not_before_s - (INTERVAL_S if is_caught_up else 0)
        ):
            return
        try:
            if self._tell(news):
                self._reported.update(news)
                self._not_before_s = self._clock() + INTERVAL_S
        except (SparrowError, OSError) as error:
            self._not_before_s = self._clock() + RETRY_S
            self._warn(error)

    def _tell(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Commit, and return True if it was done; that is impossible before a task has introduced
        this reader.
        """
        from sparrow.spark.wire import borrowed

        with borrowed(self._target) as session:
            if self._group is None:
                found = session.call("group.introduced", {"reader": self._reader}, timeout_s=_CALL_TIMEOUT_S)
                self._group = found["group"]
            if self._group is None:
                return False
            named = [[topic, partition, offset, ""] for (topic, partition), offset in offsets.items()]
            session.call("group.commit", {"group": self._group, "offsets": named}, timeout_s=_CALL_TIMEOUT_S)
            return True

    def _warn(self, error: Exception) -> None:
        if str(error) != self._warned:
            self._warned = str(error)
            _log.warning(
                "the lag of a query cannot be reported to the broker: %s; lag=false switches it off",
                error,
            )


_introduced: dict[tuple[str, str], float] = {}
"""Time of the next introduction by this worker, by (reader, group): soon, since a broker that was
restarted in between forgot it; later for a broker that refused.
"""


def introduce(target: Target, introduction: Introduction | None) -> None:
    """Report to the broker which query this task's reader belongs to, at the start of every task of
    a stream. Never raises.

    After the first batch there is nothing to report: `introduction` is None then.
    """
    group = None if introduction is None else _group_of_this_task(introduction.prefix)
    if introduction is None or group is None:
        return
    key = introduction.reader, group
    if time.monotonic() < _introduced.get(key, 0.0):
        return
    from sparrow.spark.wire import borrowed

    pause_s = _AGAIN_S
    try:
        with borrowed(target) as session:
            session.call(
                "group.introduce", {"reader": introduction.reader, "group": group}, timeout_s=_CALL_TIMEOUT_S
            )
    except (SparrowError, OSError) as error:
        _log.warning(
            "the lag of a query cannot be reported to the broker: %s; lag=false switches it off",
            error,
        )
        pause_s = RETRY_S
    _introduced.clear()
    _introduced[key] = time.monotonic() + pause_s


def _group_of_this_task(prefix: str) -> str | None:
    """Return the group of the query of this task, or None outside of a streaming query."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else group_name(prefix, context.getLocalProperty)


def group_name(prefix: str, property_of: Callable[[str], Any]) -> str | None:
    """Return the group of a query.

    Args:
        prefix: the beginning of its name; "": none.
        property_of: reads the local properties of one of its tasks.
    """
    query = property_of(_QUERY_ID)
    if not query:
        return None
    # "name\nid = …\nrunId = …\nbatch = 7"; a program that sets descriptions itself hides the name.
    name, _, rest = (property_of(_DESCRIPTION) or "").partition("\nid = ")
    words = [prefix, name if name and rest.startswith(str(query)) else str(query)]
    return "-".join(word for word in words if word)
