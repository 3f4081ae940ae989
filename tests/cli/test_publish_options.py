"""Delivery options of `sparrow publish` for queues."""

from __future__ import annotations

import json
import time

import pytest

import sparrow.testing


@pytest.fixture(scope="module")
def broker():
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.fixture(autouse=True)
def url(broker, monkeypatch):
    monkeypatch.setenv("SPARROW_URL", broker.url)


@pytest.fixture
def topic(sparrow_topic):
    return sparrow_topic


def headers(run, topic):
    """Return the headers of each message of the topic, as pairs."""
    lines = [json.loads(line) for line in run("consume", topic, "--format", "json").out.splitlines()]
    found = [line.get("headers", {}) for line in lines]
    return [
        list(each.items()) if isinstance(each, dict) else [tuple(pair) for pair in each] for each in found
    ]


def test_options_become_headers(run, topic):
    found = run(
        "publish", topic, "-H", "own=1",
        "--deliver-at", "2026-05-01T12:00:00Z", "--expires-at", 1_777_636_800_001,
        "--priority", 7, "--message-id", "c", "--parent", "a", "--parent", "b", "hello",
    )  # fmt: skip
    assert (found.code, found.err) == (0, "")
    assert headers(run, topic) == [
        [
            ("own", "1"),
            ("deliver-at", "1777636800000"),
            ("expires-at", "1777636800001"),
            ("priority", "7"),
            ("message-id", "c"),
            ("parent-id", "a"),
            ("parent-id", "b"),
        ]
    ]


def test_delay_and_time_to_live_count_from_now_and_hold_for_every_message(run, topic):
    before_ms = round(time.time() * 1000)
    assert run("publish", topic, "--delay", "1h30m", "--ttl", "2h", "one", "two").code == 0
    after_ms = round(time.time() * 1000)
    told = headers(run, topic)
    assert len(told) == 2
    for each in told:
        (first, deliver_at), (second, expires_at) = each
        assert (first, second) == ("deliver-at", "expires-at")
        assert before_ms - 1 <= int(deliver_at) - 5_400_000 <= after_ms
        assert before_ms - 1 <= int(expires_at) - 7_200_000 <= after_ms


def test_options_hold_for_lines_of_json_too(run, topic, tmp_path):
    (tmp_path / "lines").write_text('{"value": "a", "headers": {"own": "1"}}\n{"value": "b"}\n')
    found = run("publish", topic, "--ndjson", "--file", tmp_path / "lines", "--priority", 9, "--parent", "p")
    assert (found.code, found.err) == (0, "")
    assert headers(run, topic) == [
        [("own", "1"), ("priority", "9"), ("parent-id", "p")],
        [("priority", "9"), ("parent-id", "p")],
    ]


def test_a_line_that_sets_the_header_of_an_option_is_named_and_the_others_are_published(run, topic, tmp_path):
    (tmp_path / "lines").write_text('{"value": "a", "headers": {"priority": "1"}}\n{"value": "b"}\n')
    found = run("publish", topic, "--ndjson", "--file", tmp_path / "lines", "--priority", 9)
    assert found.code == 2
    assert "message 1 was not published: the header 'priority' is given" in found.err
    assert headers(run, topic) == [[("priority", "9")]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--delay", "5s", "--deliver-at", "2026-05-01T12:00:00Z"), "both given"),
        (("--delay", "2h", "--ttl", "1h"), "would expire before it may be delivered"),
        (("--delay", "soon"), "--delay cannot be 'soon'"),
        (("--delay", "-5s"), "--delay cannot be '-5s'"),
        (("--deliver-at", "tomorrow"), "--deliver-at cannot be 'tomorrow'"),
        (("--ttl", "0"), "ttl_ms is 0"),
        (("--priority", "10"), "--priority"),
        (("--message-id", ""), "must be text that is not empty"),
        (("--parent", ""), "must be text that is not empty"),
        (("--message-id", "a", "second"), "one message"),
    ],
)
def test_options_that_make_no_sense_are_refused_and_nothing_is_published(run, topic, arguments, message):
    found = run("publish", topic, "value", *arguments)
    assert (found.code, found.out) == (2, "")
    assert message in " ".join(found.err.split())
    assert run("consume", topic).code != 0


def test_an_id_for_the_lines_of_a_file_is_refused(run, topic, tmp_path):
    (tmp_path / "lines").write_text("a\nb\n")
    found = run("publish", topic, "--file", tmp_path / "lines", "--message-id", "a")
    assert found.code == 2
    assert "one message" in " ".join(found.err.split())
