"""The states of a sink. Everything that decides about it is in this file.

A query of a data pipeline writes its batches into a sink. The query numbers its batches in order; a
committed batch is never committed again.

Rules:

* A *query* survives restarts (in Spark: the id in the checkpoint), a *run* is one start of it. A
  new run becomes the current one, with the next epoch: from here on the runs before it are fenced,
  and their error names the run that took over.
* A sink belongs to one query. Another one gets it if it begins with batch 0 or says that it takes
  it over; then batches are counted from the beginning.
* A query without a name ("") is a single write, which has a new run each time. It is forgotten some
  time after its commit.
* A commit of a batch at or before the last committed one changes nothing, and says so. After a
  commit nothing of that batch can be aborted.

Each function takes the sink, or None for a new one, and returns the next state, or raises and
changes nothing. Pure: times (wall ms) are arguments.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sparrow.base.errors import InvalidArgument, InvalidTransactionTimeout, SinkFenced, SinkTaken

NO_BATCH: Final = -1
MAX_NAME_LENGTH: Final = 249
"""Limit of the ids of sinks, queries and runs, in characters; as for topics."""
MAX_PAST_RUNS: Final = 32
DEFAULT_TIMEOUT_MS: Final = 900_000
"""Time for which a stage is kept by default after the last sign of life of its batch."""
_LAST_NUMBER: Final = (1 << 63) - 1


class Caller(Struct, frozen=True):
    """The query, run and batch of a request."""

    query: str
    run: str
    batch: int
    take_over: bool = False


class Sink(Struct, frozen=True):
    """One sink."""

    sink_id: str
    query: str
    run: str
    """The current run."""
    epoch: int = 0
    """Grows with each run."""
    last_batch: int = NO_BATCH
    """The last committed batch."""
    updated_ms: int = -1
    past_runs: tuple[str, ...] = ()
    """Fenced runs, oldest first."""

    @property
    def is_single_write(self) -> bool:
        return not self.query

    @property
    def kind(self) -> str:
        """The kind of sink: "once" or "stream"."""
        return "once" if self.is_single_write else "stream"

    def has_committed(self, batch: int) -> bool:
        return batch <= self.last_batch


def check_caller(sink_id: str, caller: Caller) -> None:
    """Raise InvalidArgument unless these are valid names and a valid number of a batch."""
    check_name("sink", sink_id)
    check_name("run", caller.run)
    if caller.query:
        check_name("query", caller.query)
    check_number("batch", caller.batch)


def check_name(what: str, name: str) -> None:
    """Raise InvalidArgument unless a sink, query or run may have this id."""
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidArgument(
            f"{name[:80]!r} ({len(name)} characters) cannot be the id of a {what}: it needs 1 to "
            f"{MAX_NAME_LENGTH} printable characters"
        )


def check_number(what: str, number: int) -> None:
    """Raise InvalidArgument unless it is a number from 0 that the store can hold."""
    if not 0 <= number <= _LAST_NUMBER:
        raise InvalidArgument(f"{number} is no number of a {what}: they begin at 0")


def timeout_of(timeout_ms: int, max_timeout_ms: int) -> int:
    """Return how long a stage is kept, in ms; 0 is the default.

    Raises:
        InvalidTransactionTimeout: longer than the broker allows, or negative.
    """
    if not 0 <= timeout_ms <= max_timeout_ms:
        raise InvalidTransactionTimeout(
            f"a time-out of {timeout_ms} ms for a stage is not between 1 and {max_timeout_ms} ms; "
            "ask for less, or raise"
            " transactions.max_timeout of the broker"
        )
    return timeout_ms or min(DEFAULT_TIMEOUT_MS, max_timeout_ms)


def enter(found: Sink | None, sink_id: str, caller: Caller, now_ms: int) -> Sink:
    """Make the caller's run the current one, to write or to commit. Return the same object if it is
    the current one.

    Raises:
        SinkFenced: a later run has taken over.
        SinkTaken: the sink belongs to another query.
    """
    if found is None:
        return Sink(sink_id, caller.query, caller.run, updated_ms=now_ms)
    check_not_fenced(found, caller.run)
    if found.query != caller.query:
        return _handed_over(found, caller, now_ms)
    if found.run == caller.run:
        return found
    return _next_run(found, caller.run, now_ms)


def check_not_fenced(found: Sink, run: str) -> None:
    """Raise SinkFenced if a later run has taken over."""
    if run in found.past_runs:
        raise SinkFenced(
            f"run {run!r} may not write to sink {found.sink_id!r} any more: run {found.run!r} "
            f"(epoch {found.epoch}) has taken over;"
            " stop this one, or use another sink id for it"
        )


def commit(found: Sink, batch: int, now_ms: int) -> Sink:
    """Return the sink with the batch committed."""
    return replace(found, last_batch=max(found.last_batch, batch), updated_ms=now_ms)


def touch(found: Sink, now_ms: int) -> Sink:
    """Return the sink with a new time of its last change."""
    return replace(found, updated_ms=now_ms)


def _handed_over(found: Sink, caller: Caller, now_ms: int) -> Sink:
    if caller.batch and not caller.take_over:
        raise SinkTaken(
            f"sink {found.sink_id!r} belongs to query {found.query!r} (last batch "
            f"{found.last_batch}), not to {caller.query!r}, which is at batch"
            f" {caller.batch}; use another sink id for each query, or take the sink over"
        )
    return replace(_next_run(found, caller.run, now_ms), query=caller.query, last_batch=NO_BATCH)


def _next_run(found: Sink, run: str, now_ms: int) -> Sink:
    past = found.past_runs if found.run == run else (*found.past_runs, found.run)[-MAX_PAST_RUNS:]
    return replace(found, run=run, epoch=found.epoch + 1, past_runs=past, updated_ms=now_ms)
