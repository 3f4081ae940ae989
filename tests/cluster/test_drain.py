"""An operator asks the owner to hand over."""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.request
from pathlib import Path

import pytest

import sparrow
from sparrow.cli import main
from tests.cluster.brokers import BrokerProcess
from tests.cluster.pair import Load, Pair, judge, make_topic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_cluster_that_is_not_there_or_has_no_standby_is_not_drained(
    tmp_path: Path, ledger_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPARROW_LEDGER", raising=False)
    assert main(["cluster", "drain"]) == 78
    assert "set SPARROW_LEDGER" in capsys.readouterr().err
    monkeypatch.setenv("SPARROW_LEDGER", ledger_url)
    assert main(["cluster", "drain"]) == 69
    assert "has no cluster of this version" in capsys.readouterr().err
    assert main(["cluster", "drain", "--wait", "soon"]) == 2
    broker = BrokerProcess(tmp_path, "alone", ledger_url, f"file://{tmp_path}/objects")
    try:
        broker.wait_until_ready()
        capsys.readouterr()
        assert main(["cluster", "drain"]) == 69
        assert "no other broker stands by to take it; start one first" in capsys.readouterr().err
        assert broker.is_ready
        broker.terminate()
        assert main(["cluster", "drain"]) == 69
        assert "no broker owns the data now" in capsys.readouterr().err
    finally:
        broker.end()


def test_a_drained_owner_hands_over_at_once_and_takes_the_data_back_later(
    tmp_path: Path, ledger_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARROW_LEDGER", ledger_url)
    pair = Pair(tmp_path, ledger_url, f"file://{tmp_path}/objects")
    load = Load(pair.bootstrap)
    try:
        asyncio.run(make_topic(pair.url))
        load.start()
        load.wait_for_more(200)
        assert main(["cluster", "drain", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["node"], found["owner"], found["is_done"]) == (1, 2, True)
        assert found["takeover_ms"] < 60_000
        pair.brokers["b"].wait_until_ready()
        pair.brokers["a"].wait_for(lambda: pair.brokers["a"].log.count("standing by") == 2, 60)
        assert pair.brokers["a"].process.poll() is None
        load.wait_for_more(200)
        shown = ""
        deadline = time.monotonic() + 60
        while "sparrow_cluster_standbys 1.0" not in shown:  # once it has looked
            assert time.monotonic() < deadline
            with urllib.request.urlopen(f"http://127.0.0.1:{pair.http_ports['b']}/metrics") as response:
                shown = response.read().decode()
        values = dict(re.findall(r"^(sparrow_cluster_\w+) (\S+)$", shown, re.MULTILINE))
        assert 0 < float(values["sparrow_cluster_takeover_seconds"]) < 60
        assert 0 <= float(values["sparrow_cluster_standby_lag_seconds"]) < 60
        assert float(values["sparrow_cluster_commits_total"]) > 0
        assert values["sparrow_cluster_orphans_total"] == values["sparrow_cluster_objects_away"] == "0.0"
        with urllib.request.urlopen(f"http://127.0.0.1:{pair.http_ports['b']}/readyz") as response:
            found_ready = json.loads(response.read())
        assert found_ready["status"] == "ready"
        assert "has no synchronous standby" in found_ready["reasons"][0]
        assert main(["cluster", "status"]) == 0
        shown = capsys.readouterr().out
        assert [line.split("\t")[1] for line in shown.splitlines()[1:3]] == ["standby", "owner"]
        assert "it took the data after node 1" in shown
        assert f"served clients after {found['takeover_ms'] / 1000:.1f} s" in shown
        deadline = time.monotonic() + 60
        while main(["cluster", "drain"]) != 0:  # node 1 may say for a moment that it stops
            assert time.monotonic() < deadline
        assert "node 1 owns the data now" in capsys.readouterr().out
        pair.brokers["a"].wait_until_ready()
        load.wait_for_more(200)
        load.stop()
        judge(pair, load)
    finally:
        pair.end()


def test_a_request_that_the_owner_does_not_follow_ends_after_the_time_to_wait(
    tmp_path: Path, ledger_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import signal

    monkeypatch.setenv("SPARROW_LEDGER", ledger_url)
    pair = Pair(tmp_path, ledger_url, f"file://{tmp_path}/objects")
    try:
        pair.brokers["a"].signal(signal.SIGSTOP)
        assert main(["cluster", "drain", "--wait", "200ms"]) == 1
        assert "no other broker serves yet" in capsys.readouterr().out
        pair.brokers["a"].signal(signal.SIGCONT)
        pair.brokers["b"].wait_until_ready()

        async def topics() -> int:
            async with sparrow.connect(pair.url) as client:
                return len(await client.admin.list_topics())

        assert asyncio.run(topics()) == 0
    finally:
        pair.end()
