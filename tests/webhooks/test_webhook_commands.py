"""`sparrow queue subscribe` and related commands, and the client's methods behind them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sparrow
import sparrow.testing
from sparrow.base.errors import InvalidConfig, UnknownWebhook
from sparrow.broker.webhooks.endpoint import make_secret
from sparrow.cli import main
from sparrow.cli.webhooks import name_of
from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker

URL = "https://hooks.example/a/b"
Run = Callable[..., str]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.fixture
def client(server: RunningBroker) -> Iterator[Client]:
    with sparrow.sync.connect(server.url) as connected:
        yield connected


@pytest.fixture
def queue(client: Client, sparrow_topic: str) -> str:
    client.admin.create_queue(sparrow_topic)
    return sparrow_topic


@pytest.fixture
def run(
    server: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Run `sparrow queue ARGUMENTS…` in this process. Return its output, or its error if it
    fails.
    """
    monkeypatch.setenv("SPARROW_URL", server.url)

    def command(*arguments: str, fails: bool = False) -> str:
        capsysbinary.readouterr()
        ended = main(["queue", *arguments])
        out, err = capsysbinary.readouterr()
        assert bool(ended) == fails, err
        return (err if fails else out).decode()

    return command


def test_every_option_is_a_setting(run: Run, client: Client, queue: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(make_secret(b"x" * 32))
    printed = run(
        "subscribe", queue, URL, "--name", "hook", "--format", "json", "--accept", "body-true", "--header",
        "X-A: b: c",
        "--concurrency", "3", "--rate", "1.5", "--timeout", "5s", "--backoff-delay", "2s", "--backoff-max",
        "1m", "--jitter", "0.5",
        "--pause-after", "4", "--secret-file", str(tmp_path / "secret"), "--all-of",
    )  # fmt: skip
    assert printed == f"queue {queue} delivers to {URL}, as hook\n"
    found = client.admin.describe_webhook(queue, "hook")
    assert found.settings == {
        "url": URL, "format": "json", "accept": "body-true", "headers": {"X-A": "hidden"}, "concurrency": 3,
        "rate": 1.5,
        "timeout_ms": 5000, "backoff_ms": 2000, "backoff_max_ms": 60_000, "backoff_jitter": 0.5,
        "pause_after": 4,
    }  # fmt: skip
    assert found.secrets == [0]
    assert client.admin.describe_queue(queue).policy["subscribers"] == ["hook"]


def test_a_webhook_is_named_after_its_url_unless_another_is(run: Run, client: Client, queue: str) -> None:
    assert "as hooks.example-a-b\n" in run("subscribe", queue, URL)
    run("subscribe", queue, URL, "--rate", "7")
    (only,) = client.admin.list_webhooks(queue)
    assert only.settings["rate"] == 7
    assert "--name" in run("subscribe", queue, "http://hooks.example/a/b", fails=True)
    assert "as other" in run("subscribe", queue, "http://hooks.example/a/b", "--name", "other")
    assert name_of("https://[::1]:8/") == "[::1]:8"
    assert name_of("http://[") == "webhook"


def test_the_life_of_a_webhook(run: Run, client: Client, queue: str) -> None:
    made = json.loads(run("subscribe", queue, URL, "--name", "hook", "--all-of", "--json"))
    assert made["secret"].startswith("whsec_")
    listed = run("subscribers", queue).splitlines()
    assert listed[0].split("\t") == ["NAME", "URL", "FORMAT", "STATE", "DELIVERED", "FAILED", "LAST ERROR"]
    assert listed[1].split("\t")[:3] == ["hook", URL, "raw"]
    assert "whsec" not in run("subscribers", queue, "--json")

    assert run("pause", queue, "--webhook", "hook") == f"webhook hook of queue {queue} paused\n"
    assert run("subscribers", queue).splitlines()[1].split("\t")[3] == "paused"
    assert run("resume", queue, "--webhook", "hook") == f"webhook hook of queue {queue} resumed\n"
    assert not client.admin.describe_webhook(queue, "hook").is_paused

    rotated = json.loads(run("rotate-secret", queue, "hook", "--keep", "1h", "--json"))
    assert rotated["secret"] != made["secret"]
    assert len(rotated["secrets"]) == 2

    assert run("unsubscribe", queue, "hook") == f"queue {queue} delivers to hook no longer\n"
    assert client.admin.describe_queue(queue).policy["subscribers"] == []
    assert client.admin.list_webhooks(queue) == []


def test_unsubscribing_may_keep_the_subscriber(run: Run, client: Client, queue: str) -> None:
    run("subscribe", queue, URL, "--name", "hook", "--all-of", "--unsigned")
    run("unsubscribe", queue, "hook", "--keep")
    assert client.admin.describe_queue(queue).policy["subscribers"] == ["hook"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["http://127.0.0.1/"], "webhooks.allow"),
        (["ftp://x/"], "http:// or https://"),
        ([URL, "--concurrency", "0"], "concurrency"),
        ([URL, "--timeout", "soon"], "--timeout"),
        ([URL, "--header", "nothing"], "NAME: VALUE"),
        ([URL, "--unsigned", "--secret-file", "x"], "opposite"),
        ([URL, "--secret-file", "/dev/null"], "first line is empty"),
    ],
)
def test_a_wrong_request_is_reported(run: Run, queue: str, arguments: list[str], words: str) -> None:
    assert words in " ".join(run("subscribe", queue, *arguments, fails=True).split())


def test_a_missing_thing_is_reported(run: Run, queue: str) -> None:
    for command in ("unsubscribe", "rotate-secret"):
        assert "no webhook" in run(command, queue, "hook", fails=True)
    assert "no webhook" in run("pause", queue, "--webhook", "hook", fails=True)
    assert "no queue" in run("subscribers", "missing", fails=True)


def test_the_client_has_a_method_for_each_operation(client: Client, queue: str) -> None:
    made = client.admin.put_webhook(queue, "hook", URL, secrets=[], headers={"X-A": "b"})
    assert (made.secret, made.secrets, made.owner) == ("", [], "User:ANONYMOUS")
    assert client.admin.put_webhook(queue, "hook", headers=None).settings["headers"] == {}
    assert client.admin.pause_webhook(queue, "hook").is_paused
    assert not client.admin.resume_webhook(queue, "hook").is_paused
    assert client.admin.rotate_webhook_secret(queue, "hook", keep_ms=0).secrets == [0]
    assert queue in {each.queue for each in client.admin.list_webhooks()}
    client.admin.delete_webhook(queue, "hook")
    with pytest.raises(UnknownWebhook):
        client.admin.describe_webhook(queue, "hook")
    with pytest.raises(InvalidConfig, match="no setting 'is_trusted'"):
        client.admin.put_webhook(queue, "hook", URL, is_trusted=True)
