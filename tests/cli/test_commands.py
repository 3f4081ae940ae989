"""The commands that talk to a broker, against a real one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

import sparrow.testing

SPARROW = [sys.executable, "-m", "sparrow"]


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


def rows(outcome):
    """Return the cells of a printed table."""
    return [line.split("\t") for line in outcome.out.splitlines()]


# ── topics ────────────────────────────────────────────────────────────────────────────────────────


def test_topic_is_made_listed_described_configured_and_deleted(run, topic):
    made = run("topic", "create", topic, "-p", 3, "-c", "retention.ms=7d")
    assert (made.code, made.out) == (0, f"topic {topic} made with 3 partitions\n")
    assert [topic, "3"] in rows(run("topic", "list"))
    assert [topic, "3", "0", "0 B"] in rows(run("topic", "list", f"{topic[:5]}*", "--long"))
    described = rows(run("topic", "describe", topic))
    assert ["2", "0", "0", "0 B"] in described
    assert ["retention.ms", "604800000", "topic"] in described
    configured = run("topic", "configure", topic, "-c", "cleanup.policy=compact", "--unset", "retention.ms")
    assert configured.out == f"topic {topic} is configured: cleanup.policy=compact\n"
    assert run("topic", "add-partitions", topic, 5).out == f"topic {topic} has 5 partitions\n"
    assert run("topic", "delete", topic, "--yes").out == f"topic {topic} deleted\n"
    assert topic not in run("topic", "list").out


def test_describe_all_shows_defaults_with_their_source(run, topic):
    run("topic", "create", topic)
    assert ["durability", "sync", "default"] in rows(run("topic", "describe", topic, "--all"))


def test_deleting_without_a_terminal_needs_yes(run, topic):
    run("topic", "create", topic)
    found = run("topic", "delete", topic)
    assert (found.code, found.out) == (1, "")
    assert "say --yes" in found.err
    assert run("topic", "describe", topic).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("create", "../etc"), 2, "../etc"),
        (("create", "x" * 300), 2, "300"),
        (("create", "ok", "-c", "retention.mss=5"), 78, "did you mean 'retention.ms'?"),
        (("create", "ok", "-c", "retention.ms"), 2, "is not NAME=VALUE"),
        (("create", "ok", "-c", "retention.ms=7dd"), 78, "1h30m"),
        (("describe", "no-such-topic"), 1, "no-such-topic"),
        (("configure", "no-such-topic"), 2, "say what to change"),
        (("frobnicate",), 2, "frobnicate"),
    ],
)
def test_wrong_topic_command_is_refused_with_the_reason(run, arguments, code, message):
    found = run("topic", *arguments)
    assert (found.code, found.out) == (code, "")
    assert message in found.err.replace("\n", " ")


# ── publish and consume ───────────────────────────────────────────────────────────────────────────


def test_arguments_are_published_and_read_back(run, topic):
    found = run("publish", topic, "one", "two", "dreí")
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("3 messages acknowledged in ")
    assert run("consume", topic).out == "one\ntwo\ndreí\n"


@pytest.mark.slow
def test_file_comes_back_as_it_was(run, topic, tmp_path):
    lines = [b"", b"plain", b"\xff\x00 no utf-8", b"x" * 100_000, b"last"] * 200
    (tmp_path / "in").write_bytes(b"\n".join(lines) + b"\n")
    assert run("publish", topic, "--file", tmp_path / "in").out.startswith("1000 messages acknowledged")
    (tmp_path / "out").write_bytes(subprocess.check_output([*SPARROW, "consume", topic, "--format", "raw"]))
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_messages_are_read_back(run, topic, compression):
    run("publish", topic, "--compression", compression, *["again and again"] * 50)
    assert run("consume", topic).out == "again and again\n" * 50


def test_ndjson_comes_back_as_it_was(run, topic, tmp_path):
    objects = [
        {"key": "k", "value": "v", "headers": {"a": "1", "b": None}, "timestamp": 1_700_000_000_000},
        {"key": {"base64": "AP8="}, "value": None, "headers": [["a", "1"], ["a", "2"]], "partition": 0},
    ]
    (tmp_path / "in").write_text("\n\n".join(map(json.dumps, objects)))
    assert run("publish", topic, "--ndjson", "-f", tmp_path / "in").out.startswith("2 messages acknowledged")
    found = [json.loads(line) for line in run("consume", topic, "--format", "json").out.splitlines()]
    for number, (given, read) in enumerate(zip(objects, found, strict=True)):
        assert (read["topic"], read["partition"], read["offset"]) == (topic, 0, number)
        assert {name: read[name] for name in given} == given


def test_malformed_ndjson_line_is_named_and_earlier_lines_are_published(run, topic, tmp_path):
    (tmp_path / "in").write_text('{"value": "good"}\n{"vaule": "bad"}\n{"value": "never"}\n')
    found = run("publish", topic, "--ndjson", "-f", tmp_path / "in")
    assert found.code == 65
    assert "line 2: not a message as JSON: Object contains unknown field `vaule`" in found.err
    assert found.out.startswith("1 message acknowledged")
    assert run("consume", topic).out == "good\n"


def test_key_headers_and_partition_go_with_every_message(run, topic):
    run("topic", "create", topic, "-p", 3)
    run("publish", topic, "a", "b", "--key", "k", "--header", "h=1", "--header", "h=2", "--partition", 2)
    for line in run("consume", topic, "--format", "json").out.splitlines():
        found = json.loads(line)
        assert (found["partition"], found["key"], found["headers"]) == (2, "k", [["h", "1"], ["h", "2"]])


def test_too_large_message_is_named_and_the_others_are_published(run, topic):
    run("topic", "create", topic, "-c", "max.message.bytes=2000")
    found = run("publish", topic, "small", "x" * 5000, "also small")
    assert found.code == 1
    assert found.out.startswith("2 messages acknowledged")
    assert "message 2 was not published: " in found.err
    assert run("consume", topic).out == "small\nalso small\n"


def test_unknown_partition_fails_its_message_and_no_other(run, topic, tmp_path):
    found = run("publish", topic, "x", "--partition", 7)
    assert (found.code, found.out.split(" in ")[0]) == (1, "0 messages acknowledged")
    assert (
        found.err == f"sparrow: message 1 was not published: topic '{topic}' has no partition 7; it has 1, "
        "counted from 0\n"
    )
    path = tmp_path / "lines"
    path.write_text('{"value": "a", "partition": 7}\n{"value": "b"}\n')
    assert run("publish", topic, "--ndjson", "--file", path).out.startswith("1 message acknowledged")
    assert run("consume", topic).out == "b\n"


def test_unsent_messages_are_not_counted_as_pending(run):
    with sparrow.testing.broker(auto_create_topics=False) as strict:
        found = run("publish", "missing", "x", "--url", strict.url)
    assert (found.code, found.out) == (1, "")
    assert found.err.count("\n") == 1
    assert "there is no topic 'missing'" in found.err


def test_empty_input_is_zero_messages(run, topic):
    found = run("publish", topic, "--file", os.devnull)
    assert (found.code, found.out.split(" in ")[0]) == (0, "0 messages acknowledged")


@pytest.mark.parametrize("command", [["publish", "t", "--file"], ["log", "dump"]])
def test_directory_and_missing_file_cannot_be_read(run, tmp_path, command):
    assert run(*command, tmp_path).code == 66
    assert f"{tmp_path}: Is a directory" in run(*command, tmp_path).err
    assert run(*command, tmp_path / "missing").code == 66


def test_unknown_compression_is_a_usage_error(run, topic):
    found = run("publish", topic, "x", "--compression", "rar")
    assert found.code == 2
    assert "zstd" in found.err


@pytest.mark.slow
def test_lines_of_stdin_are_published_as_they_come(run, topic):
    process = subprocess.Popen([*SPARROW, "publish", topic], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"early\n")
    process.stdin.flush()
    while run("consume", topic).out != "early\n":
        assert process.poll() is None
    process.stdin.write(b"late")
    process.stdin.close()
    assert process.stdout.read().startswith(b"2 messages acknowledged")
    process.stdout.close()
    assert process.wait(30) == 0


def test_from_chooses_where_to_begin(run, topic):
    run("publish", topic, *"abcde")
    assert run("consume", topic, "--from", "3").out == "d\ne\n"
    assert run("consume", topic, "--from", "end").out == ""
    assert run("consume", topic, "--from", "2000-01-01").out == "a\nb\nc\nd\ne\n"
    assert run("consume", topic, "--max", "2").out == "a\nb\n"


def test_patterns_and_several_topics_are_read(run, topic):
    run("publish", f"{topic}.a", "1")
    run("publish", f"{topic}.b", "2")
    assert sorted(run("consume", f"{topic}.*").out.split()) == ["1", "2"]
    assert sorted(run("consume", f"{topic}.a", f"{topic}.b").out.split()) == ["1", "2"]
    assert run("consume", f"{topic}.none*").out == ""


def test_reading_a_topic_that_does_not_exist_is_an_error_and_makes_none(run, topic):
    found = run("consume", topic)
    assert found.code == 1
    assert topic in found.err
    assert topic not in run("topic", "list").out


def test_pattern_that_matches_nothing_is_said(run):
    found = run("consume", "no-such-*")
    assert (found.code, found.out) == (0, "")
    assert "no topic matches no-such-*" in found.err


@pytest.mark.slow
def test_group_goes_on_where_the_last_reader_stopped(run, topic):
    run("publish", topic, *"abcde")
    assert run("consume", topic, "--group", topic, "--max", 2).out == "a\nb\n"
    assert run("consume", topic, "--group", topic).out == "c\nd\ne\n"
    assert run("consume", topic, "--group", topic).out == ""


@pytest.mark.slow
def test_follow_prints_new_records_until_ctrl_c(run, topic):
    run("publish", topic, "before")
    process = subprocess.Popen(
        [*SPARROW, "consume", topic, "--follow", "--from", "beginning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"before\n"
    run("publish", topic, "after")
    assert process.stdout.readline() == b"after\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 130


@pytest.mark.slow
def test_reader_that_goes_away_ends_consume_quietly(run, topic, tmp_path):
    (tmp_path / "in").write_text("a line of some length\n" * 100_000)
    run("publish", topic, "--file", tmp_path / "in")
    command = f"{sys.executable} -m sparrow consume {topic} | head -1; echo ${{PIPESTATUS[0]}}"
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert (found.stdout, found.stderr) == ("a line of some length\n141\n", "")


# ── groups ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_group_is_listed_described_reset_and_deleted(run, topic):
    run("publish", topic, *"abc")
    run("consume", topic, "--group", topic, "--max", 1)
    assert [topic, "sparrow", "empty", "0"] in rows(run("group", "list"))
    assert [topic, "0", "1", "3", "2"] in rows(run("group", "describe", topic))
    assert [topic, "0", "3"] in rows(run("group", "reset", topic, topic, "--to", "end"))
    assert run("consume", topic, "--group", topic).out == ""
    run("group", "reset", topic, topic, "--to", "beginning")
    assert run("consume", topic, "--group", topic).out == "a\nb\nc\n"
    assert run("group", "delete", topic, "--yes").out == f"group {topic} deleted\n"
    assert topic not in run("group", "list").out


def test_unknown_group_is_an_error(run):
    found = run("group", "describe", "nobody")
    assert found.code == 1
    assert "nobody" in found.err


# ── where the broker is ───────────────────────────────────────────────────────────────────────────


def test_url_is_taken_before_and_after_the_command_and_wins_over_the_variable(run, broker, monkeypatch):
    monkeypatch.setenv("SPARROW_URL", "sparrow://127.0.0.1:1")
    assert run("--url", broker.url, "topic", "list").code == 0
    assert run("topic", "list", "--url", broker.url).code == 0


@pytest.mark.slow
def test_unreachable_broker_is_named_with_advice(run):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        found = run("topic", "list", "--url", f"sparrow://127.0.0.1:{port}")
    assert (found.code, found.out) == (69, "")
    assert f"127.0.0.1:{port}" in found.err
    assert "sparrow serve" in found.err
    assert "Traceback" not in found.err


def test_wrong_url_is_a_usage_error(run):
    found = run("topic", "list", "--url", "http://127.0.0.1")
    assert found.code == 2
    assert "sparrow://127.0.0.1:9094" in found.err


def test_traceback_comes_only_when_asked_for(run, monkeypatch):
    monkeypatch.setenv("SPARROW_DEBUG", "1")
    assert "Traceback" in run("topic", "describe", "no-such-topic").err


def test_token_is_needed_where_tokens_are_set(run, topic, monkeypatch):
    with sparrow.testing.broker(tokens={"alice": "s3cret"}, acl_default="allow") as guarded:
        monkeypatch.setenv("SPARROW_URL", guarded.url)
        refused = run("publish", topic, "x")
        assert refused.code == 77
        assert "--token" in refused.err
        assert run("publish", topic, "x", "--token", "wrong").code == 77
        assert run("publish", topic, "x", "--token", "s3cret").code == 0
        monkeypatch.setenv("SPARROW_TOKEN", "s3cret")
        assert run("consume", topic).out == "x\n"


def test_version_needs_nothing(run):
    assert run("version").out.startswith("sparrow ")
    assert run("--version").out == run("version").out
