"""Options of the connection, and how options are read: pure, without Spark and without a broker."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument
from sparrow.base.settings import BOOLEAN, TEXT, integer
from sparrow.spark.options import declare
from sparrow.spark.options.connection import CONNECTION, target_of, with_connection
from sparrow.spark.options.declare import DataSourceOption, Options, Values, plain
from sparrow.spark.options.kafka import IGNORED, REFUSED
from sparrow.spark.wire.target import Target

VARIABLES = ("URL", "TOKEN", "USER", "PASSWORD", "CA_FILE", "CERTIFICATE_FILE", "KEY_FILE")
OPTIONS = with_connection(
    (
        DataSourceOption("startingOffsets", TEXT, "latest", "Where."),
        DataSourceOption("rows", integer(1, 9), 5, ""),
    )
)
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    "username='ann' password=\"pe\\\"n'cil\";"
)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"SPARROW_{name}", raising=False)


def _read(**given: str) -> Values:
    return OPTIONS.read(given)


def _target(given: dict[str, str]) -> Target:
    return target_of(OPTIONS.read(given))


def test_all_that_is_wrong_is_told_at_once_with_suggestions() -> None:
    with pytest.raises(InvalidArgument) as caught:
        OPTIONS.read(
            {
                "startingoffset": "earliest",
                "rows": "10",
                "url": "http://secret@broker",
                "kafka.auto.offset.reset": "latest",
                "kafka.fetch.min.byte": "1",
                "callTimeout": "soon",
            }
        )
    first, *lines = str(caught.value).splitlines()
    assert first == "6 options of format('sparrow') are wrong:"
    assert "- there is no option 'startingoffset'; did you mean 'startingOffsets'?" in lines
    assert "- rows cannot be '10'; it takes a whole number from 1 to 9" in lines
    assert any(line.startswith("- url: ") and "'http'" in line for line in lines)
    assert any("kafka.auto.offset.reset is not offered: say startingOffsets" in line for line in lines)
    assert any("did you mean 'kafka.fetch.min.bytes'?" in line for line in lines)
    assert any(line.startswith("- callTimeout cannot be 'soon'; it takes a duration") for line in lines)
    assert "secret" not in str(caught.value)


def test_one_fault_is_one_line() -> None:
    with pytest.raises(
        InvalidArgument, match=r"^an option of format\('sparrow'\) is wrong: there is no option 'xyzzy'$"
    ):
        _read(xyzzy="1")


@given(st.data())
def test_case_and_underscores_of_a_name_do_not_matter(data: st.DataObject) -> None:
    spelled = "".join(
        data.draw(st.sampled_from([letter.lower(), letter.upper(), f"_{letter}"]))
        for letter in "startingOffsets"
    )
    assert plain(spelled) == "startingoffsets"
    assert _read(**{spelled: "earliest"})["startingOffsets"] == "earliest"


def test_two_names_of_an_option_may_agree_but_not_differ() -> None:
    assert OPTIONS.read({"caFile": "a.pem", "kafka.ssl.ca.location": "a.pem"})["caFile"] == "a.pem"
    with pytest.raises(InvalidArgument, match=r"caFile and kafka\.ssl\.ca\.location are the same option"):
        OPTIONS.read({"caFile": "a.pem", "kafka.ssl.ca.location": "b.pem"})


def test_given_options_are_known_and_others_have_defaults() -> None:
    values = _read(rows="7")
    assert values.given == {"rows"}
    assert values["startingOffsets"] == "latest"
    assert values["rows"] == 7
    assert pickle.loads(pickle.dumps(values)) == values


def test_tuning_of_kafka_clients_is_ignored_with_a_warning_unlike_options_of_spark(
    caplog: pytest.LogCaptureFixture,
) -> None:
    declare._warned.clear()
    values = OPTIONS.read({"kafka.Fetch.min.bytes": "1", "checkpointLocation": "/tmp/x", "kafka.acks": "all"})
    values.warn()
    values.warn()
    assert len(values.warnings) == len(caplog.records) == 2
    assert "kafka.acks" in caplog.text


def test_rules_are_asked_whose_values_are_right_and_all_of_them() -> None:
    both = Options(
        (DataSourceOption("a", BOOLEAN, False, ""), DataSourceOption("b", BOOLEAN, False, "")),
        (lambda v: ["a it is"] if v["a"] else [], lambda v: ["b it is", "b again"] if v["b"] else []),
    )
    assert both.read({"a": "False"}) == {"a": False, "b": False}
    with pytest.raises(InvalidArgument, match="3 options"):
        both.read({"a": "true", "b": "true"})
    # A rule about a value that could not be read would report the same fault twice; the others are
    # checked.
    with pytest.raises(InvalidArgument) as caught:
        both.read({"a": "true", "b": "maybe"})
    assert caught.value.text.splitlines()[1:] == [
        "- b cannot be 'maybe'; it takes true or false",
        "- a it is",
    ]


def test_no_name_has_two_meanings() -> None:
    names = [plain(name) for each in CONNECTION for name in (each.name, *each.aliases)]
    assert len(set(names)) == len(names)
    assert not {plain(name) for name in IGNORED} & {plain(name) for name in REFUSED}
    assert not ({plain(name) for name in IGNORED} | {plain(name) for name in REFUSED}) & set(names)


# ── where ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("servers", "url"),
    [
        ("broker.lan:9092", "sparrow://broker.lan:9094"),
        ("broker.lan", "sparrow://broker.lan:9094"),
        ("broker.lan:19092,other:9092", "sparrow://broker.lan:19092,other:9094"),
        ("PLAINTEXT://a:9092, PLAINTEXT://[::1]:9092", "sparrow://a:9094,[::1]:9094"),
        ("PLAINTEXT://a:9092", "sparrow://a:9094"),
        ("[::1]:9092", "sparrow://[::1]:9094"),
        ("a:9092,", "sparrow://a:9094"),
    ],
)
def test_bootstrap_servers_become_a_url(servers: str, url: str) -> None:
    for name in ("kafka.bootstrap.servers", "bootstrap.servers"):
        assert _target({name: servers}).url == url
    secure = {"kafka.bootstrap.servers": servers, "kafka.security.protocol": "SASL_SSL"}
    assert _target(secure).url == url.replace("sparrow://", "sparrows://")


def test_url_wins_over_servers_and_both_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARROW_URL", "sparrow://from-environment:1")
    assert _target({}).url == "sparrow://from-environment:1"
    assert _target({"kafka.bootstrap.servers": "s:2"}).url == "sparrow://s:2"
    assert _target({"kafka.bootstrap.servers": "s:2", "url": "sparrow://u:3"}).url == "sparrow://u:3"
    monkeypatch.setenv("SPARROW_URL", "ftp://x")
    with pytest.raises(InvalidArgument, match="ftp"):
        _target({})


# ── who ───────────────────────────────────────────────────────────────────────────────────────────


def test_logins_are_taken_from_options_files_jaas_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of-file\nmore\n")
    assert _target({"token": "t"}).token == "t"
    assert _target({"tokenFile": str(secret)}).token == "of-file"
    ann = _target({"user": "ann", "passwordFile": str(secret)})
    assert (ann.user, ann.password) == ("ann", "of-file")
    moved = _target({"kafka.sasl.jaas.config": JAAS, "kafka.sasl.mechanism": "PLAIN"})
    assert (moved.user, moved.password) == ("ann", "pe\"n'cil")
    monkeypatch.setenv("SPARROW_USER", "eve")
    monkeypatch.setenv("SPARROW_PASSWORD", "apple")
    assert (_target({}).user, _target({}).password) == ("eve", "apple")
    assert _target({"token": "t"}).user is None
    assert _target({"url": "sparrow://bob:b@h"}).user is None  # the user is part of the URL


def test_a_login_by_options_wins_over_the_one_in_the_url() -> None:
    target = _target({"url": "sparrow://bob:b@h:1", "token": "t"})
    assert target.url == "sparrow://h:1"
    assert target.credentials == {"token": "t"}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"token": "t", "user": "ann"}, "token and user are given together"),
        ({"password": "p"}, "a password and no user"),
        ({"user": "a", "password": "p", "passwordFile": "f"}, "password and passwordFile"),
        ({"keyFile": "k.pem"}, "keyFile and no certificateFile"),
        ({"kafka.sasl.jaas.config": "KerberosLoginModule required;"}, "username="),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "SCRAM-SHA-256"),
        ({"kafka.ssl.truststore.location": "trust.jks"}, "PEM"),
        ({"kafka.ssl.key.password": "x"}, "without one"),
        ({"path": "orders"}, "subscribe"),
        (
            {"url": "sparrow://h", "kafka.security.protocol": "SASL_SSL"},
            "kafka.security.protocol.*sparrows://",
        ),
        ({"kafka.security.protocol": "SSL"}, "the url has none"),
        ({"url": "sparrow://h", "caFile": "ca.pem"}, "caFile.*sparrows://"),
        ({"header": "true"}, "no option 'header'"),
    ],
)
def test_impossible_options_are_refused_with_advice(given: dict[str, str], what: str) -> None:
    with pytest.raises(InvalidArgument, match=what):
        OPTIONS.read(given)


def test_a_file_of_a_secret_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for name, what in (("missing", "No such file"), ("empty", "first line is empty")):
        with pytest.raises(InvalidArgument, match=f"{name}.*{what}"):
            _target({"tokenFile": str(tmp_path / name)})


def test_no_secret_appears_in_an_error() -> None:
    given = {"kafka.sasl.jaas.config": "password=hidden", "url": "http://:hidden@h", "rows": "0"}
    with pytest.raises(InvalidArgument) as caught:
        OPTIONS.read(given)
    assert "hidden" not in str(caught.value)
