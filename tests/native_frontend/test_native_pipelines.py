"""Reports of pipelines by streaming programs, and the group that a stream belongs to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.clock import ManualClock
from sparrow.base.errors import InvalidArgument, NotAuthorized
from sparrow.broker.access.access import Access
from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.pipelines.recent import Recent
from sparrow.broker.pipelines.report import MAX_ERROR
from sparrow.broker.pipelines.service import MAX_REPORTS, PipelineService
from sparrow.model.pipelines import Report
from tests.native_frontend.raw import OpenListener, RawClient
from tests.repetitions import repetitions

ANN = Principal("ann")


class MayDo:
    """An authorizer that allows only the listed (operation, group) pairs."""

    def __init__(self, *allowed: tuple[Operation, str]) -> None:
        self._allowed = allowed

    def allows(self, _: Principal, operation: Operation, kind: ResourceType, name: str) -> bool:
        return kind is ResourceType.GROUP and (operation, name) in self._allowed


def _service(*allowed: tuple[Operation, str]) -> PipelineService:
    return PipelineService(ManualClock(), Access(MayDo(*allowed)))


async def test_last_report_of_each_flow_is_shown_for_an_hour(
    timed_broker: Broker, clock: ManualClock, open_listener: OpenListener
) -> None:
    client = await (await open_listener(timed_broker)).client()
    said: dict[str, Any] = {
        "name": "orders",
        "flow": "clean",
        "run": "r1",
        "state": "running",
        "rows": 5,
        "rows_per_second": 2.5,
        "batch_ms": 80.0,
        "lag": 7,
        "batch": 3,
        "refused": 4,
        "error": "",
        "started_ms": 1,
    }
    assert await client.call("pipeline.report", **{**said, "rows": 1}) == {}
    clock.advance(1800)
    assert await client.call("pipeline.report", **said) == {}
    assert await client.call("pipeline.report", name="orders", flow="audit") == {}
    found = (await client.call("pipeline.list"))["pipelines"]
    assert [each["flow"] for each in found] == ["audit", "clean"]
    assert found[1] == {**said, "updated_ms": clock.wall_ms(), "sources": [], "target": ""}
    assert found[0]["lag"] is None
    clock.advance(3600)
    assert await client.call("pipeline.list") == {"pipelines": []}


async def test_reader_learns_the_group_that_a_task_named(client: RawClient) -> None:
    assert await client.call("group.introduced", reader="abc") == {"group": None}
    assert await client.call("group.introduce", reader="abc", group="spark-copy") == {}
    assert await client.call("group.introduced", reader="abc") == {"group": "spark-copy"}
    assert await client.call("group.introduced", reader="other") == {"group": None}


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("pipeline.report", {"name": "", "flow": "f"}),
        ("pipeline.report", {"name": "p"}),
        ("pipeline.report", {"name": "p", "flow": "f" * 250}),
        ("pipeline.report", {"name": "p", "flow": "a\nb"}),
        ("pipeline.report", {"name": "p", "flow": "f", "state": ""}),
        ("pipeline.report", {"name": "p", "flow": "f", "rows": -1}),
        ("pipeline.report", {"name": "p", "flow": "f", "refused": -1}),
        ("pipeline.report", {"name": "p", "flow": "f", "rows": "many"}),
        ("pipeline.report", {"name": "p", "flow": "f", "rows_per_second": float("nan")}),
        ("pipeline.report", {"name": "p", "flow": "f", "batch_ms": float("inf")}),
        ("pipeline.report", {"name": "p", "flow": "f", "lag": 1 << 64}),
        ("pipeline.report", {"name": "p", "flow": "f", "run": "r" * 1000}),
        ("group.introduce", {"reader": "", "group": "g"}),
        ("group.introduce", {"reader": "r" * 65, "group": "g"}),
        ("group.introduce", {"reader": "r", "group": ""}),
    ],
)
async def test_invalid_reports_are_refused_and_not_kept(
    client: RawClient, verb: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument):
        await client.call(verb, **arguments)
    assert await client.call("pipeline.list") == {"pipelines": []}


def test_reporting_takes_read_on_the_group_of_the_pipeline_and_looking_describe() -> None:
    service = _service(
        (Operation.READ, "spark-mine"), (Operation.DESCRIBE, "spark-mine"), (Operation.READ, "spark-dark")
    )
    for name in ("mine", "dark"):
        service.report(Report(name, "f"), principal=ANN)
    with pytest.raises(NotAuthorized):
        service.report(Report("others", "f"), principal=ANN)
    assert [each.name for each in service.listing(principal=ANN)] == ["mine"]
    service.introduce("reader", "spark-mine", principal=ANN)
    with pytest.raises(NotAuthorized):
        service.introduce("reader", "spark-others", principal=ANN)
    assert service.introduced("reader") == "spark-mine"


def test_reports_take_bounded_room() -> None:
    service = _service(*((operation, "spark-p") for operation in (Operation.READ, Operation.DESCRIBE)))
    for number in range(MAX_REPORTS + 10):
        service.report(Report("p", f"{number:05}", error="x" * 10_000), principal=ANN)
    kept = service.listing(principal=ANN)
    assert len(kept) == MAX_REPORTS
    assert kept[0].flow == "00010"
    assert {len(each.error) for each in kept} == {MAX_ERROR}


@settings(deadline=None, max_examples=repetitions(60))
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 4)), max_size=40))
def test_recent_entries_are_as_a_list_of_all_that_was_put(steps: list[tuple[str, int]]) -> None:
    clock = ManualClock()
    recent: Recent[str, int] = Recent(clock, max_entries=3, kept_s=10)
    put: list[tuple[str, int, float]] = []
    for number, (key, pause_s) in enumerate(steps):
        clock.advance(pause_s)
        recent.put(key, number)
        put = [entry for entry in put if entry[0] != key] + [(key, number, clock.monotonic())]
        put = [entry for entry in put if clock.monotonic() - entry[2] < 10][-3:]
        assert list(recent) == [value for _, value, _ in put]
        assert all(recent.get(name) == value for name, value, _ in put)
