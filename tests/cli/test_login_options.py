"""Options of the login and of TLS come before a command or behind it."""

from __future__ import annotations

import pytest

import sparrow.testing
from sparrow.cli.app import commands as all_commands
from sparrow.cli.login_options import NAMES
from sparrow.cli.tables import print_table
from tests.security.certificates import make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(certificates):
    options = {
        "tls_certificate": certificates.server.certificate,
        "tls_key": certificates.server.key,
        "tokens": {"root": "r-token"},
        "super_users": frozenset({"User:root", "User:ann"}),
        "default_partitions": 1,
    }
    with sparrow.testing.broker(**options) as running:
        yield running


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text("correct horse\n")
    return path


@pytest.fixture
def url(broker, monkeypatch):
    for name in ("SPARROW_URL", "SPARROW_TOKEN", "SPARROW_USER", "SPARROW_PASSWORD", "SPARROW_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    return f"sparrows://localhost:{broker.port}"


def test_login_and_tls_stand_before_or_behind_the_command(run, url, certificates, secret):
    ca = ("--ca-file", certificates.ca)
    made = run("user", "create", "ann", "--password-file", secret, "--url", url, "--token", "r-token", *ca)
    assert (made.code, made.err) == (0, "")
    ann = ("--user", "ann", "--password-file", secret)
    for arguments in (
        ("--url", url, *ann, *ca, "topic", "list"),
        ("topic", "list", "--url", url, *ann, *ca),
        ("topic", "list", "--url", url, *ann, "--tls-ca", certificates.ca),
        ("--url", url, "--user", "bob", *ca, "topic", "list", *ann),
        ("publish", "letters", "x", "--url", url, *ann, *ca),
        ("queue", "list", "--url", url, *ann, *ca),
        ("acl", "list", "--url", url, *ann, *ca),
    ):
        found = run(*arguments)
        assert (found.code, found.err) == (0, ""), arguments


def test_options_behind_the_command_override_those_before(run, url, certificates, secret):
    ca = ("--ca-file", certificates.ca)
    refused = run("--url", url, "--token", "r-token", *ca, "topic", "list", "--user", "nobody-knows")
    assert refused.code != 0
    assert run("topic", "list", "--url", url, "--token", "r-token").code != 0, "the authority is not known"


def test_every_command_that_talks_to_a_broker_takes_all_of_them():
    root = all_commands()

    found = 0
    for path, command in commands(root, ()):
        names = {param.name for param in command.params}
        if "url" not in names or path == ("sparrow",):
            continue
        found += 1
        missing = set(NAMES) - names
        # `quota --user` and `user create --password-file` are about another user than the one who
        # logs in.
        assert missing == set(), path
    assert found > 40


def commands(command, path):
    here = (*path, command.name)
    yield here, command
    for inner in getattr(command, "commands", {}).values():
        yield from commands(inner, here)


# ── tables ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("columns", [20, 80, 300])
def test_names_in_tables_are_never_cut(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    names = ["n" * 249, "a short one", "名前" * 30]
    print_table(("TOPIC", "PARTITIONS", "NOTE"), [(name, 12, "x y " * 20) for name in names], title="Topics")
    printed = capsys.readouterr().out
    for name in names:
        (line,) = [line for line in printed.splitlines() if name in line]
        assert "x y " * 19 in line
    assert "…" not in printed


# ── rules about queues ────────────────────────────────────────────────────────────────────────────


def test_rules_of_a_queue_are_added_listed_and_removed_by_its_name(run, url, certificates, monkeypatch):
    monkeypatch.setenv("SPARROW_URL", url)
    monkeypatch.setenv("SPARROW_CA_FILE", certificates.ca)
    monkeypatch.setenv("SPARROW_TOKEN", "r-token")
    added = run("acl", "add", "mailer", "read,describe", "--queue", "emails")
    assert added.out == "User:mailer may Read Group emails\nUser:mailer may Describe Group emails\n"
    assert run("acl", "list", "--queue", "emails").out == run("acl", "list", "--group", "emails").out
    assert run("acl", "list", "--queue", "emails").out.count("User:mailer") == 2
    both = run("acl", "add", "mailer", "read", "--queue", "emails", "--group", "emails")
    assert (both.code, "a rule is about one resource" in both.err) == (2, True)
    misspelt = run("acl", "add", "mailer", "reed", "--queue", "emails")
    assert "there is no operation 'reed'; did you mean 'read'?" in misspelt.err
    assert run("acl", "remove", "mailer", "--queue", "emails", "--yes").out.count("removed: ") == 2
    assert "mailer" not in run("acl", "list", "--queue", "emails").out
