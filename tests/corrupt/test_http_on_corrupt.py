"""HTTP pages, event streams and WebSockets at a batch that cannot be read: fail or skip."""

from __future__ import annotations

import pytest

from tests.corrupt import bad
from tests.corrupt.bad import KINDS, good
from tests.http_frontend.conftest import Http, http, make_http
from tests.http_streams.conftest import event_stream, socket_to

__all__ = ["http", "make_http"]
EVERY_FAULT = pytest.mark.parametrize("fault", [kind for kind in KINDS if kind != "decompression bomb"])
A, B = ["a0", "a1", "a2"], ["b0", "b1", "b2"]
PAGE = "/v1/topics/t/messages"
STREAM = "/v1/topics/t/stream?from=beginning"


async def fill(http: Http, fault: str) -> None:
    """Publish batches: offsets 0 to 2 are good, 3 to 5 bad, 6 to 8 good."""
    await bad.fill(http.broker, "t", good("a"), KINDS[fault](), good("b"))


def met(http: Http) -> dict[tuple[str, str], int]:
    return dict(http.broker.measures.corrupt_batches.counts)


@EVERY_FAULT
async def test_a_page_ends_before_a_corrupt_batch_and_the_next_one_fails_with_the_next_offset(
    http: Http, fault: str
) -> None:
    await fill(http, fault)
    first = await http.get(PAGE)
    assert [each["value"] for each in first.json["messages"]] == A
    assert first.headers["sparrow-next"] == "0:3"
    failed = await http.get(f"{PAGE}?from=0:3")
    assert failed.status == 500
    assert failed.json["code"] == "CORRUPT_BATCH"
    assert [failed.json[name] for name in ("topic", "partition", "offset", "next_offset")] == ["t", 0, 3, 6]
    assert "'t', partition 0" in failed.json["detail"]
    behind = await http.get(f"{PAGE}?from=0:{failed.json['next_offset']}")
    assert [each["value"] for each in behind.json["messages"]] == B
    assert met(http) == {("http", "fail"): 1}


@EVERY_FAULT
async def test_a_page_with_skip_has_everything_else(http: Http, fault: str) -> None:
    await fill(http, fault)
    page = await http.get(f"{PAGE}?on_corrupt=skip")
    assert [each["value"] for each in page.json["messages"]] == [*A, *B]
    assert page.headers["sparrow-next"] == "0:9"
    assert met(http) == {("http", "skip"): 1}


async def test_a_page_of_nothing_but_a_corrupt_batch_continues_behind_it(http: Http) -> None:
    await bad.fill(http.broker, "t", KINDS["header counts"]())
    page = await http.get(f"{PAGE}?on_corrupt=skip")
    assert (page.json["messages"], page.headers["sparrow-next"]) == ([], "0:3")


async def test_one_record_of_a_corrupt_batch_fails_with_its_place(http: Http) -> None:
    await fill(http, "header counts")
    failed = await http.get(f"{PAGE}/0/4")
    assert (failed.json["code"], failed.json["next_offset"]) == ("CORRUPT_BATCH", 6)


async def test_another_rule_than_fail_and_skip_is_refused(http: Http) -> None:
    await fill(http, "header counts")
    assert (await http.get(f"{PAGE}?on_corrupt=guess")).status == 400
    assert (await http.get(f"{STREAM}&on_corrupt=guess")).status == 400


@EVERY_FAULT
async def test_stream_sends_records_before_a_corrupt_batch_and_ends_with_the_error(
    http: Http, fault: str
) -> None:
    await fill(http, fault)
    async with event_stream(http.port, STREAM) as events:
        found = [await events.next() for _ in range(4)]
    assert [each.kind for each in found] == ["message"] * 3 + ["error"]
    assert [each.json["value"] for each in found[:3]] == A
    problem = found[3].json
    assert (problem["code"], problem["offset"], problem["next_offset"]) == ("CORRUPT_BATCH", 3, 6)
    async with event_stream(http.port, f"/v1/topics/t/stream?from=0:{problem['next_offset']}") as events:
        assert (await events.next()).json["value"] == "b0"


@EVERY_FAULT
async def test_a_stream_with_skip_reports_the_gap_and_continues(http: Http, fault: str) -> None:
    await fill(http, fault)
    async with event_stream(http.port, f"{STREAM}&on_corrupt=skip") as events:
        found = [await events.next() for _ in range(5)]
    assert [each.kind for each in found] == ["message"] * 3 + ["gap", "message"]
    assert found[3].json == {"partition": 0, "from": 3, "to": 6, "reason": "CORRUPT_BATCH"}
    assert found[3].id == "0:6"
    assert found[4].json["value"] == "b0"


@EVERY_FAULT
async def test_socket_sends_records_before_a_corrupt_batch_and_ends_with_the_error(
    http: Http, fault: str
) -> None:
    await fill(http, fault)
    async with socket_to(http.port) as socket:
        await socket.ask("subscribe", "subscribed", subscription="s", topic="t", from_="beginning", credit=99)
        await socket.expect("assigned")
        assert [each["value"] for each in await socket.records(3)] == A
        error = (await socket.expect("ended"))["error"]
        assert (error["code"], error["topic"], error["next_offset"]) == ("CORRUPT_BATCH", "t", 6)
        start = f"0:{error['next_offset']}"
        await socket.ask("subscribe", "subscribed", subscription="s", topic="t", from_=start, credit=99)
        await socket.expect("assigned")
        assert [each["value"] for each in await socket.records(3)] == B


@EVERY_FAULT
async def test_a_socket_with_skip_reports_the_gap_and_continues(http: Http, fault: str) -> None:
    await fill(http, fault)
    async with socket_to(http.port) as socket:
        await socket.ask(
            "subscribe",
            "subscribed",
            subscription="s",
            topic="t",
            from_="beginning",
            credit=99,
            on_corrupt="skip",
        )
        await socket.expect("assigned")
        assert [each["value"] for each in await socket.records(3)] == A
        gap = await socket.expect("gap")
        assert (gap["from"], gap["to"], gap["reason"]) == (3, 6, "CORRUPT_BATCH")
        assert [each["value"] for each in await socket.records(3)] == B
    assert met(http) == {("websocket", "skip"): 1}
