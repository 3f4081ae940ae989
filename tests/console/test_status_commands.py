"""`sparrow status` and `sparrow top`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import sparrow.sync
from sparrow import testing
from sparrow.cli.app import run
from sparrow.testing.running_broker import RunningBroker
from tests.console.site import fill

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def filled() -> Iterator[RunningBroker]:
    with testing.broker(process=True, webhooks_allow="private") as running:
        fill(running)
        yield running


def test_status_is_one_screen(filled: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--url", filled.url, "status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ready: version ")
    assert {line.partition(" ")[0] for line in lines[1:7]} == {
        "disk",
        "messages",
        "jobs",
        "syncs",
        "holds",
        "connections",
    }
    assert "31 unfinished, 12 dead" in lines[3]
    assert lines[7:] == ["needs attention:", "  Queue jobs has 12 new dead letters."]


def test_status_as_json_equals_the_result_of_the_client(
    filled: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--url", filled.url, "status", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    with sparrow.sync.connect(filled.url) as client:
        found = client.admin.broker_status()
        history = client.admin.broker_history(["dead"])
    assert (shown["cluster_id"], shown["dead"], shown["queues"]) == (found.cluster_id, 12, found.queues)
    assert [each["kind"] for each in shown["attention"]] == [each.kind for each in found.attention]
    assert set(history.series) == {"dead"}


def test_top_lists_the_busiest_queues(filled: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--url", filled.url, "top", "--times", "2", "--interval", "0.1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("ready: ") for line in lines) == 2
    rows = [line.split("\t") for line in lines if "\t" in line]
    assert rows[0][:3] == ["QUEUE", "READY", "LEASED"]
    jobs = next(row for row in rows if row[0] == "jobs")
    assert (jobs[1], jobs[5]) == ("28", "12")


def test_status_without_the_right_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with testing.broker(process=True, tokens={"root": "r", "ann": "a"}, super_users="root") as running:
        from sparrow.cli import main

        assert main(["--url", running.url, "--token", "a", "status"]) != 0
    assert "not allowed to Describe" in capsys.readouterr().err
