"""The one call that makes a batch visible, and the one that drops it; from the driver.

The call is asked for again when its answer is lost: the broker knows what it has committed. How often is bounded by time, long enough for a broker to restart, because giving up
costs the whole batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from sparrow.base.errors import InternalError, SparrowError, StageExpired, Unavailable
from sparrow.spark.sink.task import Written
from sparrow.spark.wire import PATIENCE_S, borrowed, staging

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage

    from sparrow.spark.sink.context import Place
    from sparrow.spark.sink.plan import Plan

T = TypeVar("T")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_log = logging.getLogger("sparrow.spark")


def commit(plan: Plan, messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Commit what the tasks of a batch wrote. True: the batch had been committed before, and what was written now is dropped.

    A batch without rows is not told to the broker: there is nothing of it that could come twice. Only batch 0 is, because by its number a fresh checkpoint has the sink.

    Raises:
        SinkFenced: another run of the query writes now.
        StageExpired: the driver was too slow.
        Unavailable: the broker does not answer; whether it committed is not known.
    """
    written = written_of(messages)
    place = place_of(written)
    if place is None:
        return False
    stages = [each.stage for each in written if each.stage is not None]
    was_committed = any(each.was_committed for each in written)
    if stages or (place.query and not place.batch and not was_committed):
        was_committed = patiently(lambda: _commit(plan, place, stages))
    if was_committed:
        _log.warning(
            "batch %d of sink %s was committed before; it is not written again", place.batch, place.sink
        )
    return was_committed


def _commit(plan: Plan, place: Place, stages: Sequence[str]) -> bool:
    try:
        with borrowed(plan.target) as link:
            return staging.commit(
                link, sink=place.sink, query=place.query, run=place.run, batch=place.batch, stages=stages
            )
    except StageExpired as error:
        raise StageExpired(
            f"{error.text} ({plan.stage_timeout}, from the last that was written of the batch)"
        ) from None


def abort(
    plan: Plan, messages: Iterable[WriterCommitMessage | None], *, otherwise: Place | None = None
) -> None:
    """Drop what the tasks of a batch wrote, unless it was committed: Spark aborts after a commit that seemed to fail, too.

    `otherwise` is what they wrote for when none of them tells. Raises nothing, because Spark would show it in place of what went wrong before; what is not dropped now is dropped when its time is over.
    """
    try:
        place = place_of(written_of(messages)) or otherwise
        if place is None:
            return
        with borrowed(plan.target) as link:
            staging.abort(link, sink=place.sink, query=place.query, run=place.run, batch=place.batch)
    except SparrowError as error:
        _log.warning("what was staged of a failed batch is left to expire: %s", error.text)


def written_of(messages: Iterable[WriterCommitMessage | None]) -> list[Written]:
    """The messages of the tasks that were done."""
    return [each for each in messages if isinstance(each, Written)]


def place_of(written: Sequence[Written]) -> Place | None:
    """What the tasks wrote for; None when no task tells.

    Raises:
        InternalError: they do not agree, which Spark's micro-batches rule out.
    """
    places = {each.place for each in written}
    if len(places) > 1:
        raise InternalError(f"the tasks of one batch wrote for different ones: {sorted(map(repr, places))}")
    return places.pop() if places else None


def patiently(
    ask: Callable[[], T],
    *,
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """What the broker answers, asked again while it is not there."""
    deadline, pause_s = clock() + patience_s, _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except Unavailable as error:
            if not error.retriable or clock() + pause_s > deadline:
                raise
        sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
