"""`sparrow user`: with a running broker and in the data of a stopped one, and logins of the other
commands.
"""

from __future__ import annotations

import io

import pytest

import sparrow.testing
from tests.cli.conftest import Run


@pytest.fixture
def stdin(monkeypatch):
    """Return a function that sets the stdin of the command, which is no terminal."""

    def says(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))

    return says


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("SPARROW_URL", "SPARROW_TOKEN", "SPARROW_USER", "SPARROW_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def test_a_user_is_made_listed_changed_and_deleted_at_a_running_broker(
    run: Run, stdin, tmp_path, monkeypatch
):
    secret = tmp_path / "password"
    secret.write_text("the second one\nignored\n")
    with sparrow.testing.broker(super_users="ANONYMOUS") as broker:
        monkeypatch.setenv("SPARROW_URL", broker.url)
        stdin("the first one\n")
        assert run("user", "create", "ann").out == "user ann made\n"
        assert (
            run("user", "create", "bob", "--password-file", secret, "--mechanism", "scram-sha-512").code == 0
        )
        assert run("user", "list").out.splitlines() == [
            "USER\tMECHANISMS",
            "ann\tSCRAM-SHA-256, SCRAM-SHA-512",
            "bob\tSCRAM-SHA-512",
        ]
        monkeypatch.setenv("SPARROW_PASSWORD", "the first one")
        assert run("--user", "ann", "topic", "list").code == 0
        assert (
            run("user", "password", "ann", "--password-file", secret).out == "user ann has a new password\n"
        )
        refused = run("--user", "ann", "topic", "list")
        assert (refused.code, "Invalid username or password" in refused.err) == (77, True)
        assert run("--user", "ann", "--password-file", secret, "topic", "list").code == 0
        assert run("user", "delete", "ann", "--yes").out == "user ann deleted\n"
        assert run("user", "delete", "ann", "--yes").code == 1
        assert run("user", "delete", "bob").code == 1  # nobody to prompt
        assert "bob" in run("user", "list").out


def test_errors_are_sentences(run: Run, stdin, tmp_path):
    with sparrow.testing.broker(super_users="ANONYMOUS") as broker:
        check_wrong_words(run, stdin, broker, tmp_path)


def check_wrong_words(run: Run, stdin, sparrow_broker, tmp_path):
    url = ("--url", sparrow_broker.url)
    stdin("pencil-2B\n")
    assert run("user", "create", "carl", *url).code == 0
    stdin("pencil-2B\n")
    twice = run("user", "create", "carl", *url)
    assert (twice.code, "already" in twice.err) == (1, True)
    stdin("")
    assert "stdin has no password" in run("user", "create", "dora", *url).err
    assert "no mechanism SCRAM-SHA-1;" in run("user", "create", "x", "--mechanism", "SCRAM-SHA-1", *url).err
    stdin("pencil-2B\n")
    assert run("user", "password", "nobody", *url).code == 1
    assert run("user", "create", "x", "--password-file", tmp_path / "none", *url).code == 66


def test_without_a_broker_it_says_what_to_do(run: Run, stdin, monkeypatch):
    monkeypatch.setattr("sparrow.cli.target.CONNECT_TIMEOUT_S", 0.05)
    stdin("pencil-2B\n")
    outcome = run("user", "create", "ann", "--url", "sparrow://127.0.0.1:1")
    assert (outcome.code, "--data-dir" in outcome.err, "sparrow serve" in outcome.err) == (69, True, True)


def test_the_first_user_is_made_before_the_broker_ever_ran(run: Run, stdin, tmp_path, monkeypatch):
    path = tmp_path / "data"
    assert run("user", "list", "--data-dir", path).code == 73
    stdin("pencil-2B\n")
    assert run("user", "create", "ann", "--data-dir", path).code == 0
    stdin("other password\n")
    assert run("user", "create", "bob", "--data-dir", path).code == 0
    assert run("user", "delete", "bob", "--yes", "--data-dir", path).code == 0
    assert run("user", "list", "--data-dir", path).out.splitlines()[1:] == [
        "ann\tSCRAM-SHA-256, SCRAM-SHA-512"
    ]
    with sparrow.testing.broker(data_dir=str(path), native_login="required") as broker:
        monkeypatch.setenv("SPARROW_URL", broker.url)
        assert run("topic", "list").code == 77
        monkeypatch.setenv("SPARROW_PASSWORD", "pencil-2B")
        assert run("--user", "ann", "topic", "list").code == 0
        stdin("long enough\n")
        assert run("user", "create", "eve", "--data-dir", path).code == 73  # in use


def test_nothing_secret_is_taken_from_the_command_line(run: Run):
    assert run("user", "create", "ann", "--password", "pencil-2B").code == 2
