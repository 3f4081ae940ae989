"""One broker for the module, the command in this process, and a queue name of its own for each
test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

import sparrow
import sparrow.testing
from sparrow.cli import main
from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker


@dataclass(frozen=True)
class Outcome:
    """Result of a command."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """Return the cells of printed tables."""
        return [line.split("\t") for line in self.out.splitlines()]


Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningBroker) -> Iterator[Client]:
    with sparrow.sync.connect(server.url) as connected:
        yield connected


@pytest.fixture
def name(sparrow_topic: str) -> str:
    """Return the name of a queue that no other test has."""
    return sparrow_topic


@pytest.fixture
def sparrow_command(
    server: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Return a function that runs `sparrow ARGUMENTS…` in this process."""
    monkeypatch.setenv("SPARROW_URL", server.url)

    def run(*arguments: object) -> Outcome:
        capsysbinary.readouterr()
        code = main([str(each) for each in arguments])
        out, err = capsysbinary.readouterr()
        return Outcome(code, out.decode(), err.decode())

    return run


@pytest.fixture
def run(sparrow_command: Run) -> Run:
    """Return a function that runs `sparrow queue ARGUMENTS…` in this process."""
    return lambda *arguments: sparrow_command("queue", *arguments)
