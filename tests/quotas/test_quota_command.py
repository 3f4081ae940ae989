"""`sparrow quota`, against a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import sparrow.testing
from sparrow.cli import main
from sparrow.testing.running_broker import RunningBroker

Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker() as running:
        yield running


@pytest.fixture
def run(broker: RunningBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("SPARROW_URL", broker.url)

    def run(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(["quota", *arguments]) == code
        out, err = capsys.readouterr()
        return out + err

    return run


def listed(run: Run) -> list[list[str]]:
    return [line.split("\t") for line in run("list").splitlines()[1:]]


def test_quotas_are_set_listed_changed_and_removed(run: Run) -> None:
    assert run("set", "--user", "alice", "publish=1MiB", "consume=500kB") == (
        "user alice: producer_byte_rate 1048576, consumer_byte_rate 500000\n"
    )
    run("set", "--user", "<default>", "--client-id", "app", "requests=12.5%")
    run("set", "--client-id", "<default>", "producer_byte_rate=100")
    assert sorted(listed(run)) == [
        ["client-id <default>", "producer_byte_rate", "100"],
        ["user <default>, client-id app", "request_percentage", "12.5"],
        ["user alice", "consumer_byte_rate", "500000"],
        ["user alice", "producer_byte_rate", "1048576"],
    ]
    assert run("remove", "--user", "alice", "consume") == "user alice: removed consumer_byte_rate\n"
    assert run("remove", "--user", "bob") == "user bob: had no such limit\n"
    for entity in (
        ["--user", "alice"],
        ["--client-id", "<default>"],
        ["--user", "<default>", "--client-id", "app"],
    ):
        assert "removed" in run("remove", *entity)
    assert listed(run) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["set", "publish=1"], "say whom to limit"),
        (["set", "--user", "a", "publish"], "NAME=LIMIT is expected"),
        (["set", "--user", "a", "publish=fast"], "publish cannot be 'fast'"),
        (["set", "--user", "a", "requests=all"], "requests cannot be 'all'"),
        (["set", "--user", "a", "speed=1"], "Invalid configuration key 'speed'"),
        (["set", "--user", "a", "publish=0"], "greater than 0"),
    ],
)
def test_wrong_arguments_are_refused_with_the_valid_ones(
    run: Run, arguments: list[str], message: str
) -> None:
    assert message in " ".join(run(*arguments, code=2).split())
