"""All commands in docs/webhooks.md work; its tables are complete."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sparrow
import sparrow.testing
from sparrow.broker.webhooks.endpoint import DEFAULTS, FORMATS, SETTINGS, make_secret
from sparrow.cli import main
from sparrow.model.webhooks import WebhookStatistics
from sparrow.testing.running_broker import RunningBroker

DOCUMENT = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text()
URL = "sparrow://127.0.0.1:9094"
BLOCKS = re.findall(r"^```(\w+)( \w+)?\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
Run = Callable[..., str]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(default_partitions=1, webhooks_allow=("127.0.0.1",)) as running:
        yield running


@pytest.fixture
def run(
    server: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Run `sparrow ARGUMENTS…` in this process and return its output."""
    monkeypatch.setenv("SPARROW_URL", server.url)

    def command(*arguments: str, code: int = 0) -> str:
        capsysbinary.readouterr()
        ended = main(list(arguments))
        out, err = capsysbinary.readouterr()
        assert ended == code, err
        return (out if not code else err).decode()

    return command


def section(title: str) -> str:
    found = DOCUMENT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_setting_is_documented_with_its_default() -> None:
    named = {row[0].strip("`"): row[2] for row in rows("Settings")[1:]}
    assert set(named) == set(SETTINGS)
    assert named["timeout_ms"] == "10s"
    assert DEFAULTS["timeout_ms"] == 10_000
    for name in ("concurrency", "pause_after", "backoff_jitter", "format"):
        assert named[name] == str(DEFAULTS[name])
    assert float(named["rate"]) == DEFAULTS["rate"]


def test_every_option_is_one_of_the_command(run: Run) -> None:
    named = set(re.findall(r"`(--[\w-]+)`", section("Settings") + section("Records of an endpoint")))
    shown = run("queue", "subscribe", "--help")
    assert named <= set(re.findall(r"--[\w-]+", shown))


def test_every_format_and_every_statistic_is_documented() -> None:
    assert [row[0].strip("`") for row in rows("Requests")[1:]] == list(FORMATS)
    named = set(re.findall(r"`(\w+)`", section("Statistics")))
    assert set(WebhookStatistics.__struct_fields__) <= named


@pytest.mark.slow
def test_the_document_can_be_followed(server: RunningBroker, run: Run) -> None:
    printed = []
    for language, mark, text in BLOCKS:
        if language == "sh":
            for line in filter(None, text.splitlines()):
                program, *arguments = shlex.split(line)
                assert program == "sparrow"
                printed.append(run(*arguments))
        elif not mark:
            process = subprocess.run(
                [sys.executable, "-W", "error", "-c", text.replace(URL, server.url)],
                capture_output=True,
                text=True,
                check=True,
            )
            printed.append(process.stdout)
    made, subscribed, listed, python, rotated = printed
    assert made == "queue orders made on topic orders\n"
    assert subscribed.startswith(
        "queue orders delivers to https://example.org/hook, as billing\nsecret (not shown"
    )
    assert listed.splitlines()[1].startswith("billing\thttps://example.org/hook\tjson\t")
    assert python == "whsec_ 8 ['carrier']\n"
    assert rotated.startswith("billing of queue orders has a new secret; the old ones sign for 2h\nsecret")


@pytest.mark.slow
def test_receiver_of_the_document_verifies_deliveries(
    server: RunningBroker, tmp_path: Path, run: Run
) -> None:
    (text,) = [text for _, mark, text in BLOCKS if mark == " receiver"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    secret = make_secret(b"s" * 32)
    (tmp_path / "secret").write_text(secret + "\n")
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", text.replace("8000", str(port))],
        env={**os.environ, "SECRET": secret},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        run("queue", "create", "signed", "--delivery-limit", "100")
        url = f"http://127.0.0.1:{port}/"
        run(
            "queue",
            "subscribe",
            "signed",
            url,
            "--secret-file",
            str(tmp_path / "secret"),
            "--backoff-delay",
            "50ms",
        )
        run("queue", "publish", "signed", "hello")
        assert process.stdout is not None
        assert process.stdout.readline() == "hello\n"
        with sparrow.sync.connect(server.url) as client:
            while not client.admin.list_webhooks("signed")[0].statistics.attempts:
                pass
            statistics = client.admin.list_webhooks("signed")[0].statistics
            assert (statistics.delivered, statistics.last_error[:8]) in [(1, ""), (1, "cannot c")]
    finally:
        process.kill()
        process.communicate()
