"""Every command in docs/queues.md works and prints what the document shows; its tables are
complete.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparrow.testing
from sparrow.base.queue_policy import QueuePolicy
from sparrow.cli.queue_policy import OPTIONS, policy_rows
from sparrow.model.queues import QueueStatistics
from sparrow.records import wellknown
from sparrow.testing.running_broker import RunningBroker
from tests.queues_cli.conftest import Run

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT = (DOCS / "queues.md").read_text()
URL = "sparrow://127.0.0.1:9094"


@pytest.fixture
def server() -> Iterator[RunningBroker]:
    """Start a broker as a reader does, for each test."""
    with sparrow.testing.broker() as running:
        yield running


def section(title: str, document: str = DOCUMENT) -> str:
    """Return the text below a title."""
    found = document.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def cells(title: str) -> list[list[str]]:
    """Return the cells of the tables below a title."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def shell(sparrow_command: Run, text: str) -> str:
    """Return what the commands of a block print. They run in this process, as it takes long to
    start this many.
    """
    printed = ""
    for line in filter(None, text.splitlines()):
        program, *arguments = shlex.split(line)
        assert program == "sparrow", line
        ended = sparrow_command(*arguments)
        assert ended.code == 0, (line, ended.err)
        printed += ended.out
    return printed


def start(server: RunningBroker, text: str) -> subprocess.Popen[str]:
    """Start a program of the document, with the address of the test's broker."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", text.replace(URL, server.url)],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def python(server: RunningBroker, text: str) -> str:
    """Return the output of a program that ends by itself."""
    process = start(server, text)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, ""), text
    return out


def worker(server: RunningBroker, text: str) -> str:
    """Return the first line of a program that runs until Ctrl-C."""
    process = start(server, text)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    return line


def follow(server: RunningBroker, sparrow_command: Run, title: str) -> list[str]:
    """Return the output of the blocks below a title, one after the other."""
    printed = []
    for language, mark, text in re.findall(
        r"^```(\w+)( \w+)?\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL
    ):
        if language == "sh":
            printed.append(shell(sparrow_command, text))
        elif language == "python":
            printed.append(worker(server, text) if mark == " worker" else python(server, text))
    assert printed, title
    return printed


@pytest.mark.slow
def test_the_whole_document_can_be_followed(server: RunningBroker, sparrow_command: Run) -> None:
    def printed(title: str) -> list[str]:
        return follow(server, sparrow_command, title)

    commands, program = printed("First steps")
    assert "queue emails made on topic emails\n" in commands
    assert "to: alice\nto: bob\n" in commands
    assert "\nrejected\t1\n" in commands
    assert program == "b'to: dave' 1\n"

    assert "lease=1m" in printed("Policy")[0]
    assert re.search(r"\tready\t0\t9\t-\tyour code is 123456\n", printed("Delay, priority, expiry")[0])
    assert printed("Order per key")[0].endswith("\nfirst\nsecond\n")

    (built,) = printed("Parented queues")
    assert re.search(r"\tblocked\t0\t4\t-\tlink the program\n", built)
    assert sorted(built.splitlines()[-3:-1]) == ["compile a.c", "compile b.c"]
    assert built.endswith("\nlink the program\n")

    _, all_of = printed("Several queues, several subscribers")
    assert all_of.endswith("order 1\norder 1\n")

    _, row, in_json, letter, redriven = printed("Dead letters")[0].splitlines()
    assert re.search(r"Z\tREJECTED\t1\temails/\d+ @\d+\tno such address\t", row)
    assert json.loads(in_json)["queue"]["reason"] == "REJECTED"
    assert json.loads(letter)["headers"]["dead-letter-error"] == "no such address"
    assert redriven == "1 record sent back"

    assert printed("Workers in Python")[0].startswith("sending b'")
    (administered,) = printed("Administration in Python")
    assert re.fullmatch(r"b'cat.png' ready 0\n1 \d+ 500\n1 records purged\n", administered)
    assert printed("Rights")


@pytest.mark.slow
def test_the_commands_of_the_command_lines_document_work(sparrow_command: Run) -> None:
    block = re.search(r"```\n(.*?)```", section("queue", (DOCS / "cli.md").read_text()), re.DOTALL)
    assert block
    assert shell(sparrow_command, block[1]).endswith("queue emails deleted\n")


def test_every_setting_is_documented_with_its_option_and_default() -> None:
    told = {row[0].strip("`"): (row[1].strip("`"), row[2].strip("`")) for row in cells("Policy")[1:]}
    defaults = dict(policy_rows(QueuePolicy().settings())) | {
        "dead_letter_topic": "QUEUE.dead",
        "jitter": "0",
        "rate": "0",
    }
    assert told == {
        **{word: (f"--{word.replace('_', '-')}", defaults[word]) for word in OPTIONS},
        "subscribers": ("--subscriber", "none"),
    }
    assert "`isolation`" in section("Policy")


def test_every_statistic_is_documented() -> None:
    told = set(re.findall(r"`(\w+)`", section("Statistics")))
    assert set(QueueStatistics.__struct_fields__) - told == {"subscribers"}


def test_every_header_is_documented() -> None:
    names = {value for name, value in vars(wellknown).items() if name.isupper() and isinstance(value, str)}
    assert {name for name in names if "-" in name or name == "priority"} - set(
        re.findall(r"`([\w-]+)`", DOCUMENT)
    ) == set()
