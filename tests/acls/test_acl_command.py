"""`sparrow acl`, against a broker whose clients are known by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import sparrow
import sparrow.sync
import sparrow.testing
from sparrow.cli import main
from sparrow.testing.running_broker import RunningBroker

TOKENS = {"root": "r-token", "alice": "a-token"}
Run = Callable[..., str]
NOT_ALLOWED = 77


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(tokens=TOKENS, super_users="root", default_partitions=1) as running:
        yield running


@pytest.fixture
def run(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    monkeypatch.setenv("SPARROW_URL", broker.url)
    monkeypatch.setenv("SPARROW_TOKEN", TOKENS["root"])

    def run(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(["acl", *arguments]) == code
        out, err = capsys.readouterr()
        return out + err

    yield run
    run("remove", "--all", "--yes")


def listed(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()[1:]]


def test_rules_are_added_listed_enforced_and_removed(run: Run, broker: RunningBroker) -> None:
    with sparrow.sync.connect(broker.url, token=TOKENS["root"]) as root:
        root.admin.create_topic("orders")
    assert run("add", "bob", "read,write", "--topic", "orders").splitlines() == [
        "User:bob may Read Topic orders",
        "User:bob may Write Topic orders",
    ]
    with sparrow.sync.connect(broker.url, token=TOKENS["alice"]) as alice:
        with pytest.raises(sparrow.NotAuthorized):
            alice.publish("orders", b"a")
        run("add", "alice", "write", "--topic", "or", "--prefix")
        assert alice.publish("orders", b"a").offset == 0
        run("add", "*", "write", "--topic", "orders", "--deny")
        with pytest.raises(sparrow.NotAuthorized):
            alice.publish("orders", b"a")
    assert listed(run("list", "--topic", "orders")) == [
        ["Topic", "or", "Prefixed", "User:alice", "*", "Write", "Allow"],
        ["Topic", "orders", "Literal", "User:*", "*", "Write", "Deny"],
        ["Topic", "orders", "Literal", "User:bob", "*", "Read", "Allow"],
        ["Topic", "orders", "Literal", "User:bob", "*", "Write", "Allow"],
    ]
    assert len(listed(run("list", "--principal", "bob"))) == 2
    assert run("remove", "bob", "--yes").count("removed: ") == 2
    assert run("remove", "--topic", "orders", "--deny", "--yes").count("removed: ") == 1
    assert run("remove", "--topic", "orders", "--yes") == "no rule has all that; nothing was removed\n"
    assert run("remove", "alice", "write", "--topic", "or", "--prefix", "--yes").count("removed: ") == 1
    assert listed(run("list")) == []


def test_a_rule_may_be_about_a_group_a_transactional_id_or_the_broker(run: Run) -> None:
    run("add", "alice", "read", "--group", "billing", "--host", "10.0.0.1")
    run("add", "Team:a", "write", "--transactional-id", "*")
    run("add", "alice", "describe-configs,ALTER_CONFIGS", "--cluster")
    assert sorted(listed(run("list"))) == [
        ["Cluster", "kafka-cluster", "Literal", "User:alice", "*", "AlterConfigs", "Allow"],
        ["Cluster", "kafka-cluster", "Literal", "User:alice", "*", "DescribeConfigs", "Allow"],
        ["Group", "billing", "Literal", "User:alice", "10.0.0.1", "Read", "Allow"],
        ["TransactionalId", "*", "Literal", "Team:a", "*", "Write", "Allow"],
    ]
    assert run("remove", "--host", "10.0.0.1", "--yes") == (
        "removed: User:alice may Read Group billing from 10.0.0.1\n"
    )


def test_nothing_is_removed_unless_somebody_says_yes(run: Run) -> None:
    run("add", "alice", "read", "--topic", "orders")
    assert "say --yes" in run("remove", "alice", code=1)
    assert len(listed(run("list"))) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "alice", "fly", "--topic", "orders"], "there is no operation 'fly'"),
        (["add", "alice", "read"], "name what it is about"),
        (["add", "alice", "read", "--topic", "a", "--group", "b"], "one resource"),
        (["remove", "--yes"], "say which rules"),
        (["add", "*", "read", "--topic", "a", "--deny", "--host", "10.0.0.0/8"], "takes one address"),
        (["add", "*", "read", "--topic", "a", "--deny", "--host", "example.org"], "takes one address"),
    ],
)
def test_wrong_arguments_are_refused_with_the_valid_ones(
    run: Run, arguments: list[str], message: str
) -> None:
    assert message in " ".join(run(*arguments, code=2).split())


def test_a_rule_that_the_broker_refuses_is_reported_and_none_is_made(run: Run) -> None:
    assert "the name is empty" in run("add", "alice", "read,write", "--topic", "", code=2)
    assert listed(run("list")) == []


def test_changing_rules_needs_alter_on_the_cluster(run: Run) -> None:
    run("add", "root", "alter,describe", "--cluster")
    as_alice = ("--token", TOKENS["alice"])
    assert "not allowed to Alter Cluster" in run(
        "add", "alice", "all", "--cluster", *as_alice, code=NOT_ALLOWED
    )
    assert "not allowed to Describe Cluster" in run("list", *as_alice, code=NOT_ALLOWED)


def test_rules_are_listed_and_changed_from_python(broker: RunningBroker) -> None:
    from sparrow.client.results import AccessRule

    rule = AccessRule("Topic", "orders", "User:alice", "Read")
    with sparrow.sync.connect(broker.url, token=TOKENS["root"]) as root:
        root.admin.create_access_rules([rule])
        assert root.admin.list_access_rules(name="orders.eu", pattern_type="Match") == []
        assert root.admin.list_access_rules(name="orders", pattern_type="Match") == [rule]
        with pytest.raises(sparrow.SparrowError, match="Invalid enum value 'Fly'"):
            root.admin.create_access_rules([rule, AccessRule("Topic", "orders", "User:alice", "Fly")])
        assert root.admin.delete_access_rules() == [rule]
