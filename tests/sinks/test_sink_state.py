"""The rules of sinks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument, SinkFenced, SinkTaken
from sparrow.broker.sinks import state
from sparrow.broker.sinks.state import Caller, Sink


def entered(found: Sink | None, query: str, run: str, batch: int, *, take_over: bool = False) -> Sink:
    return state.enter(found, "s", Caller(query, run, batch, take_over), 5)


def test_the_first_run_has_the_sink() -> None:
    sink = entered(None, "q", "r1", 3)
    assert (sink.query, sink.run, sink.epoch, sink.last_batch, sink.kind) == ("q", "r1", 0, -1, "stream")
    assert entered(sink, "q", "r1", 4) is sink


def test_a_new_run_of_the_query_fences_the_one_before() -> None:
    sink = state.commit(entered(None, "q", "r1", 3), 3, 6)
    later = entered(sink, "q", "r2", 4)
    assert (later.run, later.epoch, later.last_batch, later.past_runs) == ("r2", 1, 3, ("r1",))
    with pytest.raises(SinkFenced, match=r"'r1' .* 'r2' \(epoch 1\)"):
        entered(later, "q", "r1", 4)


def test_another_query_may_have_the_sink_only_if_it_begins_again_or_says_so() -> None:
    sink = state.commit(entered(None, "old", "r1", 3), 3, 6)
    with pytest.raises(SinkTaken, match=r"'old' .* 'new'"):
        entered(sink, "new", "r2", 4)
    for taken in (entered(sink, "new", "r2", 0), entered(sink, "new", "r2", 4, take_over=True)):
        assert (taken.query, taken.last_batch, taken.epoch) == ("new", -1, 1)
        with pytest.raises(SinkFenced):
            entered(taken, "old", "r1", 4)
        with pytest.raises(SinkTaken):
            entered(taken, "old", "r3", 4)


def test_a_commit_never_goes_back() -> None:
    sink = state.commit(state.commit(entered(None, "q", "r", 0), 7, 1), 5, 2)
    assert sink.last_batch == 7
    assert sink.has_committed(7)
    assert not sink.has_committed(8)


def test_a_query_without_a_name_is_a_single_write() -> None:
    assert entered(None, "", "r", 0).kind == "once"
    assert entered(None, "q", "r", 0).kind == "stream"


@given(st.lists(st.integers(0, 60), max_size=100))
def test_only_the_last_runs_are_remembered_and_the_epoch_grows_with_each(runs: list[int]) -> None:
    sink = entered(None, "q", "r", 0)
    for number in runs:
        before, run = sink, f"r{number}"
        if run in before.past_runs:
            with pytest.raises(SinkFenced):
                entered(before, "q", run, 0)
            continue
        sink = entered(before, "q", run, 0)
        assert sink.epoch == before.epoch + (run != before.run)
        assert sink.run not in sink.past_runs
        assert len(sink.past_runs) <= state.MAX_PAST_RUNS


@pytest.mark.parametrize("name", ["", "x" * 250, "a\nb"])
def test_ids_are_short_and_printable(name: str) -> None:
    for sink_id, caller in (
        (name, Caller("q", "r", 0)),
        ("s", Caller("q", name, 0)),
        ("s", Caller(name or "\n", "r", 0)),
    ):
        with pytest.raises(InvalidArgument):
            state.check_caller(sink_id, caller)
    state.check_caller("x" * 249, Caller("", "r", 0))


@pytest.mark.parametrize("batch", [-1, 1 << 63])
def test_batches_are_counted_from_0(batch: int) -> None:
    with pytest.raises(InvalidArgument, match="batch"):
        state.check_caller("s", Caller("q", "r", batch))
