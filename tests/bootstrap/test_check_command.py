"""`sparrow config`: what it finds beyond single values, what it shows, and that it touches
nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sparrow.base.settings import options_of
from sparrow.cli.exits import BAD_CONFIG, OK
from sparrow.server.config import ServerConfig
from tests.bootstrap.conftest import Command, Write
from tests.security.certificates import make_certificates

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjU"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SPARROW_")]:
        monkeypatch.delenv(name)


def test_a_good_file_is_told_in_short(write: Write, command: Command):
    write(
        "native: {host: 0.0.0.0}\ninsecure_clear_passwords: passwords in clear\nkafka: {port: "
        "off}\ntokens: {shop: hunter2}\nusers: {ann: pencil-2B}\n"
        "topics: {orders: {partitions: 3, config: {retention.ms: 1d}}}\n"
        "queues: {jobs: {topics: [orders], policy: {lease: 1m}, subscribers: {a: 'https://a.example.org'}}}\n"
        "acls: [{principal: ann, operations: [read, write], topic: orders}]\npipelines: {p: {file: "
        "sparrow.yml}}\n"
    )
    ended = command("config", "check")
    assert (ended.code, ended.err) == (OK, "")
    assert ended.out == (
        "sparrow.yml: good\n"
        "  data      ./sparrow-data\n"
        "  native    0.0.0.0:9094\n"
        "  HTTP      127.0.0.1:9095\n"
        "  topic     orders, 3 partitions, retention.ms=86400000\n"
        "  queue     jobs on orders, lease_ms=60000, subscribers a\n"
        "  webhook   jobs/a: https://a.example.org\n"
        "  users     ann\n"
        "  tokens    shop\n"
        "  acls      2 access rules\n"
        "  pipeline  p: sparrow.yml\n"
    )


def test_nothing_is_started_and_no_directory_is_made(write: Write, command: Command, directory):
    write("data_dir: here\nready_file: ready\n")
    for verb in ("check", "show", "schema"):
        assert command("config", verb).code == OK
    assert sorted(each.name for each in directory.iterdir()) == ["sparrow.yml"]


MANY_WEBHOOKS = "{" + ", ".join(f"h{number}: 'http://a/'" for number in range(101)) + "}"


@pytest.mark.parametrize(
    ("text", "location", "message"),
    [
        ("\nnative: {host: 0.0.0.0}", 2, "other machines could connect"),
        ("seeds: {all: true, host: 0.0.0.0}", 1, "seeds.host is '0.0.0.0': other machines"),
        (
            "users: {ann: pencil-2B}\nhttp: {host: 0.0.0.0}",
            2,
            "http.host is '0.0.0.0': passwords and tokens would cross",
        ),
        ("\n\ntokens_file: none", 3, "none cannot be read"),
        ("users_file: sparrow.yml # itself", 1, "sparrow.yml:1: a user and a password are expected"),
        ("tls:\n  certificate: a.pem", 2, "tls.certificate is set and tls.key is not"),
        ("tls:\n  key: b.pem\n  certificate: a.pem", 3, "cannot be used"),
        ("native: {port: 9092}", 1, "kafka 'kafka' and native.port would listen on one port, localhost:9092"),
        ("webhooks:\n  ca: none.pem", 2, "webhooks.ca none.pem cannot be used"),
        ("webhooks:\n  ca: sparrow.yml", 2, "webhooks.ca sparrow.yml cannot be used"),
        (
            "\nhttp: {host: 127.0.0.1, port: 9094}\ntokens: {a: b}",
            2,
            "http.port and native.port would listen on one port",
        ),
        (f"\nqueues: {{a: {{webhooks: {MANY_WEBHOOKS}}}}}", 2, "has 101 webhooks; there may be 100"),
        ("webhooks:\n  allow: [10.0.0.1/8]", 2, "'10.0.0.1/8' is no network"),
        (
            "queues:\n  a:\n    webhooks:\n      b:\n        url: http://10.0.0.1/x",
            5,
            "the webhook 'b' of queue 'a'",
        ),
        (
            "queues:\n  - name: a\n    subscribers:\n      - name: b\n        url: http://localhost./",
            5,
            "loopback or private",
        ),
        (
            "queues: {a: {webhooks: {b: {trusted: true, url: 'http://169.254.169.254'}}}}",
            1,
            "never sent to 169.254",
        ),
        ("topics:\n  a.b:\n  c:\n  a_b:", 4, "topics 'a.b' and 'a_b' differ only in '.' and '_'"),
        ("topics: [a.b]\nqueues:\n  q: {topics: [a_b]}", 3, "differ only in '.' and '_'"),
        ("topics: [q_dead]\nqueues:\n  q:", 3, "topics 'q_dead' and 'q.dead' differ only"),
        ("max_partitions: 5\ntopics: {a: {partitions: 6}}", 1, "the topics declared have 6 partitions"),
    ],
)
def test_errors_across_values_or_of_the_machine_have_their_place(
    write: Write, command: Command, text: str, location: int, message: str
):
    write(text)
    ended = command("config", "check")
    assert ended.code == BAD_CONFIG
    assert ended.err.startswith(f"sparrow: sparrow.yml:{location}: ")
    assert message in ended.err
    assert ended.out == ""


def test_allowed_networks_and_flags_elsewhere_in_the_file_count(write: Write, command: Command, directory):
    certificate = make_certificates(directory).server
    write(SECRET, "hook.secret")
    write(
        f"tls: {{certificate: {certificate.certificate}, key: {certificate.key}}}\n"
        "webhooks: {allow: [10.0.0.0/8, hooks.example.org]}\n"
        "queues: {a: {webhooks: {b: http://10.0.0.1/x, c: {url: 'http://127.0.0.1', trusted: true, "
        "secret_file: hook.secret}}}}\n"
        "max_partitions: 4\n"
    )
    ended = command("config", "check", "--json")
    assert ended.code == OK, ended.out
    found = json.loads(ended.out)
    assert (found["is_good"], found["errors"], found["file"]) == (True, [], "sparrow.yml")
    assert [each["secrets"] for each in found["declared"]["queues"][0]["endpoints"]] == [None, 1]
    assert SECRET not in ended.out


def test_a_file_that_can_be_read_once_only_is_judged_as_well(directory: Path, command: Command):
    os.mkfifo("pipe.yml")
    text = "\nqueues: {a: {webhooks: {b: 'http://10.0.0.1'}}}\n"
    writing = threading.Thread(target=Path("pipe.yml").write_text, args=(text,), daemon=True)
    writing.start()
    ended = command("config", "check", "pipe.yml")
    writing.join(5)
    assert ended.code == BAD_CONFIG
    assert ended.err.startswith("sparrow: pipe.yml:2: the webhook 'b'")


def test_the_name_of_a_user_is_text(command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPARROW_USERS", "a\udcff=pencil-2B")
    ended = command("config", "check", "--json")
    assert ended.code == BAD_CONFIG
    assert "SPARROW_USERS" in ended.out


def test_json_has_every_error_as_a_text_of_its_own(write: Write, command: Command):
    write("a: 1\nb: 2\n")
    ended = command("config", "check", "--json")
    assert (ended.code, ended.err) == (BAD_CONFIG, "")
    found = json.loads(ended.out)
    assert [error.partition(" ")[0] for error in found["errors"]] == ["sparrow.yml:1:", "sparrow.yml:2:"]
    assert (found["is_good"], found["declared"]) == (False, None)


def test_the_file_is_the_one_that_serve_would_read(write: Write, command: Command, monkeypatch):
    assert command("config", "check").out.startswith("no file, the defaults: good\n")
    assert command("config", "check", "none.yml").code == BAD_CONFIG
    write("data_dir: one\n")
    write("data_dir: two\n", "two.yml")
    write("data_dir: three\n", "three.yml")
    assert "  data      one\n" in command("config", "check").out
    monkeypatch.setenv("SPARROW_CONFIG", "two.yml")
    assert command("config", "check").out.startswith("two.yml: good\n  data      two\n")
    assert command("config", "check", "three.yml").out.startswith("three.yml: good\n  data      three\n")
    monkeypatch.setenv("SPARROW_DATA_DIR", "four")
    monkeypatch.setenv("SPARROW_NATIV_PORT", "4")
    ended = command("config", "check", "three.yml")
    assert "  data      four\n" in ended.out
    assert ended.err.startswith("sparrow: warning: environment variable SPARROW_NATIV_PORT is not used")


def test_show_has_every_option_with_its_source_and_no_secret(write: Write, command: Command, monkeypatch):
    write(
        "native: {port: 7000}\ntokens: {shop: hunter2}\nusers: {ann: pencil-2B}\nseeds: "
        "{all: true, mbus: {port: off}}\n"
        f"queues: {{a: {{webhooks: {{b: {{url: 'http://b', secret: {SECRET}, headers: "
        "{Authorization: bearer}}}}}\n"
    )
    monkeypatch.setenv("SPARROW_LOG_LEVEL", "debug")
    ended = command("config", "show")
    rows = {row[0]: row[1:] for row in (line.split("\t") for line in ended.out.splitlines()[1:])}
    assert list(rows) == [each.key for each in options_of(ServerConfig)]
    assert rows["acl.default"] == ["auto", "default"]
    assert rows["native.port"] == ["7000", "sparrow.yml:1"]
    assert rows["log.level"] == ["debug", "environment variable SPARROW_LOG_LEVEL"]
    assert rows["data_dir"] == ["./sparrow-data", "default"]
    assert rows["tokens"] == ["1, not shown", "sparrow.yml:2"]
    assert rows["seeds.mbus.port"][0] == "off"
    assert rows["seeds.msbq.port"][0] == "5671"
    as_json = command("config", "show", "--json").out
    assert json.loads(as_json)["native.port"] == {"value": 7000, "source": "sparrow.yml:1"}
    for secret in ("hunter2", "pencil-2B", SECRET, "bearer"):
        assert secret not in ended.out + as_json


def test_show_refuses_a_wrong_file(write: Write, command: Command):
    write("a: 1")
    ended = command("config", "show")
    assert (ended.code, ended.out) == (BAD_CONFIG, "")


@pytest.mark.slow
def test_the_commands_of_the_document_work(directory):
    document = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    (text,) = re.findall(r"^```sh\n(.*?)^```", document, re.MULTILINE | re.DOTALL)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("sparrow.yml: good\n")
    assert json.loads((directory / "sparrow.schema.json").read_text())["title"]


def test_schema_is_json(command: Command):
    found = json.loads(command("config", "schema").out)
    assert found["properties"]["queues"]["description"].startswith("Queues that are there after the start")
