"""The one call that makes a batch visible, and the one that drops it; from the driver.

The call is repeated when its response is lost: the broker knows what it has committed. The
repetition is bounded by time, long enough for a broker to restart, because giving up costs the
whole batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from sparrow.base.errors import InternalError, SparrowError, StageExpired, Unavailable
from sparrow.spark.sink.task import Written
from sparrow.spark.wire import PATIENCE_S, borrowed, staged

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage

    from sparrow.spark.sink.context import WriteIdentity
    from sparrow.spark.sink.plan import WritePlan

T = TypeVar("T")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_log = logging.getLogger("sparrow.spark")


def commit(plan: WritePlan, messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Commit what the tasks of a batch wrote. True: the batch had been committed before, and what
    was written now is dropped.

    A batch without rows is not reported to the broker, as nothing of it could come twice. Only
    batch 0 is, because its number gives the sink to a fresh checkpoint.

    Raises:
        SinkFenced: another run of the query writes now.
        StageExpired: the driver was too slow.
        Unavailable: the broker does not answer; whether it committed is not known.
    """
    written = written_of(messages)
    identity = identity_of(written)
    if identity is None:
        return False
    stages = [each.stage for each in written if each.stage is not None]
    was_committed = any(each.was_committed for each in written)
    if stages or (identity.query and not identity.batch and not was_committed):
        was_committed = patiently(lambda: _commit(plan, identity, stages))
    if was_committed:
        _log.warning(
            "batch %d of sink %s was committed before; it is not written again", identity.batch, identity.sink
        )
    return was_committed


def _commit(plan: WritePlan, identity: WriteIdentity, stages: Sequence[str]) -> bool:
    try:
        with borrowed(plan.target) as session:
            return staged.commit(
                session,
                sink=identity.sink,
                query=identity.query,
                run=identity.run,
                batch=identity.batch,
                stages=stages,
            )
    except StageExpired as error:
        raise StageExpired(
            f"{error.text} ({plan.stage_timeout}, from the last that was written of the batch)"
        ) from None


def abort(
    plan: WritePlan, messages: Iterable[WriterCommitMessage | None], *, otherwise: WriteIdentity | None = None
) -> None:
    """Drop what the tasks of a batch wrote, unless it was committed: Spark also aborts after a
    commit that seemed to fail.

    `otherwise` is what they wrote for when no message says it. Raises nothing, because Spark would
    show that error instead of the first one; what is not dropped now is dropped when its time is
    over.
    """
    try:
        identity = identity_of(written_of(messages)) or otherwise
        if identity is None:
            return
        with borrowed(plan.target) as session:
            staged.abort(
                session, sink=identity.sink, query=identity.query, run=identity.run, batch=identity.batch
            )
    except SparrowError as error:
        _log.warning("what was staged of a failed batch is left to expire: %s", error.text)


def written_of(messages: Iterable[WriterCommitMessage | None]) -> list[Written]:
    """Return the messages of the tasks that were done."""
    return [each for each in messages if isinstance(each, Written)]


def identity_of(written: Sequence[Written]) -> WriteIdentity | None:
    """Return what the tasks wrote for; None when no message says it.

    Raises:
        InternalError: they do not agree, which Spark's micro-batches rule out.
    """
    identities = {each.identity for each in written}
    if len(identities) > 1:
        raise InternalError(
            f"the tasks of one batch wrote for different ones: {sorted(map(repr, identities))}"
        )
    return identities.pop() if identities else None


def patiently(
    ask: Callable[[], T],
    *,
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return the broker's response, repeating the request while the broker is away."""
    deadline, pause_s = clock() + patience_s, _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except Unavailable as error:
            if not error.retriable or clock() + pause_s > deadline:
                raise
        sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
