"""`sparrow queue …` against a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker
from tests.queues_cli.conftest import Run


def test_queue_is_made_listed_described_configured_and_deleted(run: Run, name: str) -> None:
    made = run(
        "create", name, "--lease", "1m", "--delivery-limit", 3, "--subscriber", "a", "--subscriber", "b"
    )
    assert (made.code, made.out, made.err) == (0, f"queue {name} made on topic {name}\n", "")
    assert [name, "queue", "0", "0", "0", "0", "0", "0", "-", "no"] in run("list", f"{name[:9]}*").rows
    described = run("describe", name)
    assert described.out.startswith(f"queue {name} on topic {name}, id ")
    for row in (
        ["lease", "1m"],
        ["delivery_limit", "3"],
        ["subscribers", "a, b"],
        ["ready", "0"],
        ["oldest", "-"],
    ):
        assert row in described.rows
    assert ["a", "0", "0", "0", "0"] in described.rows
    configured = run(
        "configure", name, "--backoff", "linear", "--set", "backoff_delay=2s", "--unset", "lease"
    )
    assert configured.out == f"queue {name} is configured: backoff=linear, backoff_delay=2s, lease=30s\n"
    assert run("delete", name, "--yes").out == f"queue {name} deleted\n"
    assert name not in run("list").out


def test_queue_on_several_topics_makes_those_that_are_missing(run: Run, client: Client, name: str) -> None:
    topics = [f"{name}.a", f"{name}.b"]
    client.admin.create_topic(topics[0], partitions=2)
    made = run("create", name, "--topic", topics[0], "--topic", topics[1], "--partitions", 5)
    assert made.out == f"queue {name} made on topics {topics[0]}, {topics[1]}\n"
    assert [client.admin.describe_topic(topic).partition_count for topic in topics] == [2, 5]


def test_making_a_queue_again_is_fine_but_not_another_of_its_name(run: Run, name: str) -> None:
    assert run("create", name, "--lease", "1m").code == 0
    assert run("create", name, "--lease", "1m").code == 0
    other = run("create", name, "--lease", "2m")
    assert other.code == 1
    assert "exists with other settings: lease is 1m, not 2m" in other.err


def test_descriptions_as_json_have_everything(run: Run, client: Client, name: str) -> None:
    run("create", name)
    client.publish(name, b"x")
    found = json.loads(run("describe", name, "--json").out)
    assert (found["name"], found["kind"], found["topics"], found["is_paused"]) == (
        name,
        "queue",
        [name],
        False,
    )
    assert found["policy"]["lease_ms"] == 30_000
    assert found["statistics"]["ready"] == found["statistics"]["unfinished"] == 1
    listed = [json.loads(line) for line in run("list", name, "--json").out.splitlines()]
    assert [each["id"] for each in listed] == [found["id"]]


def test_paused_queue_is_shown_as_such(run: Run, name: str) -> None:
    run("create", name)
    assert run("pause", name).out == f"queue {name} paused\n"
    assert run("describe", name).out.splitlines()[0].endswith(", paused")
    assert run("list", name).rows[1][-1] == "yes"
    assert run("resume", name).out == f"queue {name} resumed\n"
    assert run("list", name).rows[1][-1] == "no"


def test_purge_finishes_present_records(run: Run, client: Client, name: str) -> None:
    run("create", name)
    for value in (b"a", b"b", b"c"):
        client.publish(name, value)
    assert run("purge", name, "--yes").out == f"queue {name} purged of 3 records\n"
    assert run("peek", name).rows == [
        ["TOPIC", "PARTITION", "OFFSET", "STATE", "DELIVERIES", "PRIORITY", "KEY", "VALUE"]
    ]


@pytest.mark.parametrize("command", ["purge", "delete"])
def test_irreversible_commands_need_yes_without_a_terminal(run: Run, name: str, command: str) -> None:
    run("create", name)
    found = run(command, name)
    assert (found.code, found.out) == (1, "")
    assert "say --yes" in found.err
    assert run("describe", name).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("describe", "no-such-queue"), 1, "there is no queue 'no-such-queue'"),
        (("pause", "no-such-queue"), 1, "there is no queue"),
        (("peek", "no-such-queue"), 1, "there is no queue"),
        (("redrive", "no-such-queue"), 1, "there is no queue"),
        (("publish", "no-such-queue", "x"), 1, "there is no queue"),
        (("lease", "no-such-queue"), 1, "there is no queue"),
        (("create", "ok", "--lease", "1ms"), 78, "from 100ms to 12h"),
        (("create", "ok", "--backoff", "quadratic"), 78, "one of fixed, linear, exponential"),
        (("create", "ok", "--set", "leese_ms=5"), 78, "a queue has no setting 'leese_ms'"),
        (("create", "ok", "--topic", "../etc"), 2, "../etc"),
        (("configure", "ok"), 2, "say what to change"),
        (("redrive", "ok", "--where", "colour=red"), 2, "is none of reason="),
        (("lease", "ok", "--ack", "--nack"), 2, "one of"),
        (("lease", "ok", "--wait", "soon"), 2, "a duration such as"),
    ],
)
def test_wrong_queue_command_is_refused_with_the_reason(
    run: Run, arguments: tuple[object, ...], code: int, message: str
) -> None:
    found = run(*arguments)
    assert (found.code, found.out) == (code, "")
    assert message in " ".join(found.err.replace("│", " ").split())


# ── records ───────────────────────────────────────────────────────────────────────────────────────


def test_peek_shows_records_as_they_stand_and_changes_nothing(run: Run, client: Client, name: str) -> None:
    run("create", name)
    client.publish(name, b"plain", key=b"k")
    client.publish(name, b"urgent", headers={"priority": b"9"})
    client.publish(name, b"later", headers={"deliver-at": b"4102444800000"})
    client.publish(name, "ü".encode() * 100)
    for _ in range(2):
        assert [row[2:] for row in run("peek", name).rows[1:]] == [
            ["1", "ready", "0", "9", "-", "urgent"],
            ["0", "ready", "0", "4", "k", "plain"],
            ["3", "ready", "0", "4", "-", "ü" * 60 + "…"],
            ["2", "delayed", "0", "4", "-", "later"],
        ]
    assert [row[2] for row in run("peek", name, "--state", "delayed").rows[1:]] == ["2"]
    assert len(run("peek", name, "--max", 1).rows) == 2
    (later,) = run("peek", name, "-s", "delayed", "--json").out.splitlines()
    assert json.loads(later)["queue"] == {
        "state": "delayed",
        "delivery_count": 0,
        "priority": 4,
        "deliver_at": 4102444800000,
    }
    wrong = run("peek", name, "--state", "asleep")
    assert wrong.code == 2
    assert "there is no state 'asleep'" in wrong.err


def test_records_as_json_can_be_published_again(
    run: Run, client: Client, name: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("create", name)
    client.publish(name, b"\xff", key=b"k", headers={"h": b"1"})
    (tmp_path / "lines").write_text(run("peek", name, "--json").out)
    published = run("publish", name, "--ndjson", "--file", tmp_path / "lines")
    assert published.out.startswith("1 message acknowledged")
    first, second = client.admin.peek_queue(name)
    assert (first.key, first.value, first.headers) == (second.key, second.value, second.headers)


def test_publish_goes_to_the_first_topic_with_all_options(run: Run, client: Client, name: str) -> None:
    run("create", name, "--topic", f"{name}.b", "--topic", f"{name}.a")
    found = run("publish", name, "one", "two", "--key", "k", "--header", "h=1")
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("2 messages acknowledged")
    assert [(each.topic, each.key, each.value) for each in client.admin.peek_queue(name)] == [
        (f"{name}.b", b"k", b"one"),
        (f"{name}.b", b"k", b"two"),
    ]


# ── leasing ───────────────────────────────────────────────────────────────────────────────────────


def filled(run: Run, client: Client, name: str, *options: str) -> None:
    run("create", name, *options)
    for value in (b"one", b"two", b"three"):
        client.publish(name, value, key=b"k")


def states(client: Client, name: str) -> list[tuple[str, int]]:
    return [(each.state, each.delivery_count) for each in client.admin.peek_queue(name)]


def test_lease_without_a_word_costs_nothing(run: Run, client: Client, name: str) -> None:
    filled(run, client, name)
    for _ in range(3):
        found = run("lease", name)
        assert (found.code, found.out) == (0, "one\ntwo\nthree\n")
        assert found.err == "sparrow: 3 records released\n"
    assert states(client, name) == [("ready", 0)] * 3


def test_lease_acknowledges_only_printed_records(run: Run, client: Client, name: str) -> None:
    filled(run, client, name)
    found = run("lease", name, "--max", 2, "--ack")
    assert (found.out, found.err) == ("one\ntwo\n", "sparrow: 2 records acknowledged\n")
    assert run("lease", name, "--ack").out == "three\n"
    empty = run("lease", name, "--ack", "--wait", "0s")
    assert (empty.code, empty.out, empty.err) == (0, "", "sparrow: no record is ready\n")
    assert client.admin.describe_queue(name).statistics.acknowledged == 3


def test_lease_nacks_with_error_and_delay(run: Run, client: Client, name: str) -> None:
    filled(run, client, name)
    found = run("lease", name, "-n", 2, "--nack", "--error", "no route", "--delay", "1h")
    assert found.err == "sparrow: 2 records given back as failed\n"
    assert states(client, name) == [("ready", 0), ("delayed", 1), ("delayed", 1)]
    assert [each.error for each in client.admin.peek_queue(name, states=["delayed"])] == ["no route"] * 2


def test_kept_records_stay_leased(run: Run, client: Client, name: str) -> None:
    filled(run, client, name)
    found = run("lease", name, "--keep", "--max", 2)
    assert (found.code, found.out, found.err) == (0, "one\ntwo\n", "sparrow: 2 records kept\n")
    assert states(client, name) == [("ready", 0), ("leased", 1), ("leased", 1)]
    assert run("lease", name).out == "three\n"


def test_leased_records_as_json_tell_which_delivery_it_is(run: Run, client: Client, name: str) -> None:
    filled(run, client, name)
    run("lease", name, "--nack")
    found = [json.loads(line) for line in run("lease", name, "--json").out.splitlines()]
    assert [(each["value"], each["offset"], each["queue"]) for each in found] == [
        (value, offset, {"delivery_count": 2}) for offset, value in enumerate(["one", "two", "three"])
    ]


@pytest.mark.slow
def test_nothing_is_acknowledged_when_the_reader_of_the_output_went_away(
    run: Run, client: Client, name: str, server: RunningBroker
) -> None:
    filled(run, client, name)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "sparrow", "queue", "lease", name, "--ack"]
    environment = {**os.environ, "SPARROW_URL": server.url}
    ended = subprocess.run(
        command, env=environment, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")
    assert states(client, name) == [("ready", 0)] * 3


@pytest.mark.slow
def test_ctrl_c_while_waiting_ends_lease_quietly(
    run: Run, client: Client, name: str, server: RunningBroker
) -> None:
    run("create", name)
    command = [sys.executable, "-m", "sparrow", "queue", "lease", name, "--wait", "1h"]
    process = subprocess.Popen(
        command, env={**os.environ, "SPARROW_URL": server.url}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while not client.admin.describe_queue(name).statistics.consumers:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 130


# ── dead letters ──────────────────────────────────────────────────────────────────────────────────


def wait_for_dead(client: Client, name: str, count: int) -> None:
    while client.admin.describe_queue(name).statistics.dead != count:
        pass


def test_redrive_sends_back_matching_dead_letters_and_says_so(run: Run, client: Client, name: str) -> None:
    filled(run, client, name)
    run("lease", name, "--max", 1, "--reject", "no such address")
    run("lease", name, "--max", 1, "--reject", "no such street")
    wait_for_dead(client, name, 2)
    assert run("list", name).rows[1][7] == "2"
    found = run("redrive", name, "--where", "reason=rejected", "--where", "error~address", "--rate", 1000)
    assert (found.code, found.err) == (0, "")
    assert found.out == "1 record sent back, 1 that did not match left alone\n"
    assert run("lease", name, "--ack").out == "three\none\n"
    again = run("redrive", name, "--json")
    assert json.loads(again.out) | {"moved": 1, "failed": 0, "is_running": False, "error": ""} == json.loads(
        again.out
    )
    assert run("lease", name, "--ack").out == "two\n"
    assert run("redrive", name).out == "0 records sent back\n"


@pytest.mark.slow
def test_ctrl_c_stops_a_redrive_at_the_broker(
    run: Run, client: Client, name: str, server: RunningBroker
) -> None:
    filled(run, client, name)
    run("lease", name, "--reject", "later")
    wait_for_dead(client, name, 3)
    command = [sys.executable, "-m", "sparrow", "queue", "redrive", name, "--rate", "0.001"]
    process = subprocess.Popen(
        command, env={**os.environ, "SPARROW_URL": server.url}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while not client.admin.redrive_progress(name).is_running:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.endswith(b"sent back; stopped\n")
    assert not client.admin.redrive_progress(name).is_running
