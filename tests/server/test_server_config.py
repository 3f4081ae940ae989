"""The configuration file, and configurations that a server refuses at its start."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import InvalidConfig
from sparrow.base.settings import options_of
from sparrow.base.yamlfile import read_yaml
from sparrow.server.bootstrap.topics import TopicDeclaration
from sparrow.server.config import (
    CLEAR_IN_WORDS,
    IN_WORDS,
    ServerConfig,
    http_needs_login,
    load,
    seed_ports,
)
from sparrow.server.exposure import check_clear_passwords, check_exposure, is_loopback
from sparrow.server.listeners import OFF, ListenerDeclaration
from tests.repetitions import repetitions


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Return a function that writes sparrow.yml into the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "sparrow.yml").write_text(text)

    return write


def test_defaults_hold_without_a_file(file):
    config, resolved = load({}, {})
    assert config == ServerConfig()
    assert set(resolved.sources.values()) == {"default"}
    assert (config.native_host, config.native_port, config.data_dir) == ("127.0.0.1", 9094, "./sparrow-data")
    assert (config.broker.auto_create_topics, config.broker.default_partitions) == (True, 4)


def test_file_in_the_working_directory_is_read(file):
    file(
        """
data_dir: /srv/sparrow
native:
  host: 10.0.0.5
  port: 7000
max_frame: 32 MiB
idle_timeout: 2m
tokens: {alice: s3cret, bob: hunter2}
default_topic_config:
  retention.ms: 1d
topics:
  - audit
  - name: orders
    partitions: 8
    config: {retention.ms: 7d, cleanup.policy: compact}
"""
    )
    config, _ = load({}, {})
    assert (config.data_dir, config.native_host, config.native_port) == ("/srv/sparrow", "10.0.0.5", 7000)
    assert (config.native.max_frame_bytes, config.listeners.idle_timeout_ms) == (32 << 20, 120_000)
    assert config.tokens == {"alice": "s3cret", "bob": "hunter2"}
    assert config.broker.topic_defaults == {"retention.ms": "86400000"}
    orders = TopicDeclaration("orders", 8, {"retention.ms": "604800000", "cleanup.policy": "compact"})
    assert config.topics == (TopicDeclaration("audit", -1, {}), orders)


def test_config_flag_names_another_file_and_wins_over_the_variable(file, tmp_path):
    file("default_partitions: 1")
    (tmp_path / "flag.yml").write_text("default_partitions: 2")
    (tmp_path / "variable.yml").write_text("default_partitions: 3")
    assert load({}, {"SPARROW_CONFIG": "variable.yml"})[0].broker.default_partitions == 3
    assert load({"config": "flag.yml"}, {"SPARROW_CONFIG": "variable.yml"})[0].broker.default_partitions == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data_dir: [", r"sparrow\.yml:1: not YAML"),
        ("a: 1\n\tb: 2", r"sparrow\.yml:2: not YAML"),
        ("- data_dir", r"sparrow\.yml:1: a mapping of options is expected"),
        ("data_dri: x", r"sparrow\.yml:1: there is no option 'data_dri'; did you mean 'data_dir'\?"),
        (
            "log:\n  level: info\n  level: debug",
            r"sparrow\.yml:3: 'log\.level' occurs twice; the first is on line 2",
        ),
        ("\nnative:\n  port: high", r"sparrow\.yml:3: native\.port cannot be 'high'"),
        ("native: 5", r"sparrow\.yml:1: there is no option 'native'"),
        ("tokens: {a: x, a: y}", r"sparrow\.yml:1: 'a' occurs twice"),
        ("data_dir: ''", r"sparrow\.yml:1: data_dir cannot be ''; it takes the path of a directory"),
        ("tokens: {alice: ''}", r"sparrow\.yml:1: tokens\.alice: a principal and its token are not empty"),
        ("default_topic_config: {retention.ms: 7dd}", r"sparrow\.yml:1: .* for retention\.ms, not '7dd'"),
        ("topics: 5", r"topics cannot be 5; it takes a list of topics"),
        ("topics: [{nmae: x}]", r"topics\[0\]: a topic needs 'name'"),
        (
            "topics:\n  - name: x\n    partition: 3",
            (
                r"sparrow\.yml:3: topics\[0\]\.partition: a topic has no setting 'partition'; "
                r"did you mean 'partitions'"
            ),
        ),
        (
            "data_dir: !!python/object/apply:os.system ['true']",
            r"sparrow\.yml:1: not YAML: could not determine a constructor",
        ),
        ("drain_timeout: 2024-99-99", r"sparrow\.yml:1: .*put the value in quotes"),
        ("a: &x {b: *x}", r"sparrow\.yml:1: "),
    ],
)
def test_wrong_file_is_refused_with_its_line(file, text, message):
    file(text)
    with pytest.raises(InvalidConfig, match=message):
        load({}, {})


def test_missing_file_is_refused_only_when_it_was_named(file):
    with pytest.raises(InvalidConfig, match=r"configuration file nowhere\.yml cannot be read: No such file"):
        load({"config": "nowhere.yml"}, {})


def test_token_of_a_wrong_file_is_not_shown(file):
    file("tokens: [hunter2]")
    with pytest.raises(InvalidConfig) as caught:
        load({}, {})
    assert "hunter2" not in caught.value.text


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=repetitions(60))
def test_any_text_is_a_mapping_or_a_clear_error(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("yaml") / "any.yml"
    path.write_text(text)
    try:
        locations = [each.location for each in read_yaml(str(path), ["topics"]).values()]
    except InvalidConfig as error:
        locations = [error.text.removeprefix("configuration file ")]
    assert all(location.startswith(str(path)) for location in locations)


def test_every_option_has_its_own_key_flag_and_variable():
    options = options_of(ServerConfig)
    for names in (
        [o.key for o in options],
        [o.flag for o in options if o.flag],
        [o.environment for o in options if o.environment],
    ):
        assert len(set(names)) == len(names)
    assert all(each.help.endswith(".") for each in options)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_authentication(host):
    check_exposure(ServerConfig(native_host=host), authenticated=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.1.2.3", "no-such-name.invalid"])
def test_public_address_without_authentication_is_refused_unless_said_in_words(host):
    with pytest.raises(InvalidConfig, match=r"Set users, users_file, tokens, .*, or listen on 127"):
        check_exposure(ServerConfig(native_host=host), authenticated=False)
    check_exposure(ServerConfig(native_host=host), authenticated=True)
    check_exposure(ServerConfig(native_host=host, insecure_public_listen=IN_WORDS), authenticated=False)
    assert not is_loopback(host)


def test_a_public_http_listener_needs_a_login_or_is_closed():
    with pytest.raises(InvalidConfig, match=r"http\.host is '0\.0\.0\.0'"):
        check_exposure(ServerConfig(http_host="0.0.0.0"), authenticated=False)
    check_exposure(ServerConfig(http_host="0.0.0.0"), authenticated=True)
    check_exposure(ServerConfig(http_host="0.0.0.0", http_port=OFF), authenticated=False)
    with pytest.raises(InvalidConfig, match=r"http\.host"):
        check_exposure(ServerConfig(http_host="0.0.0.0", http_login="off"), authenticated=True)


def test_a_login_that_another_listener_requires_is_required_of_http_too_unless_it_says_otherwise():
    assert not http_needs_login(ServerConfig(), authenticated=False)
    assert http_needs_login(ServerConfig(native_login="required"), authenticated=False)
    assert http_needs_login(ServerConfig(kafka_sasl="required"), authenticated=False)
    assert not http_needs_login(ServerConfig(kafka_sasl="required", http_login="off"), authenticated=True)


def test_public_listeners_for_seed_systems_are_refused_even_with_users_since_their_clients_cannot_log_in():
    check_exposure(ServerConfig(seeds_host="0.0.0.0"), authenticated=True)
    for config in (
        ServerConfig(seeds_host="0.0.0.0", seeds_all=True),
        ServerConfig(seeds_host="0.0.0.0", seeds_mbus_port=9990),
    ):
        with pytest.raises(InvalidConfig, match=r"seeds\.host is '0\.0\.0\.0'"):
            check_exposure(config, authenticated=True)


def test_seed_listeners_take_the_ports_of_the_originals_when_all_are_switched_on():
    assert seed_ports(ServerConfig()) == {}
    assert seed_ports(ServerConfig(seeds_msbq_port=7000)) == {"msbq": 7000}
    assert seed_ports(ServerConfig(seeds_all=True, seeds_diy_port=0, seeds_mbus_port=OFF)) == {
        "diy_message_broker": 0,
        "messagebroker": 3000,
        "mbus_consumer": 9991,
        "msbq": 5671,
        "syncbrok": 10000,
    }


def test_only_the_exact_words_allow_a_public_address(file):
    with pytest.raises(InvalidConfig, match='it takes only the words "without authentication"'):
        load({"insecure_public_listen": "yes"}, {})
    with pytest.raises(InvalidConfig, match='it takes only the words "passwords in clear"'):
        load({"insecure_clear_passwords": "true"}, {})


PUBLIC = "10.1.2.3"
OUTSIDE = ListenerDeclaration("outside", PUBLIC, 0)


@pytest.mark.parametrize(
    ("listener", "host", "options"),
    [
        ("native.host", PUBLIC, {"native_host": PUBLIC}),
        ("native.host", "0.0.0.0", {"native_host": "0.0.0.0"}),
        ("native.host", PUBLIC, {"native_host": PUBLIC, "native_login": "off"}),
        ("native.host", PUBLIC, {"native_host": PUBLIC, "tls_certificate": "a.pem", "native_tls": False}),
        ("http.host", "::", {"http_host": "::"}),
        ("http.host", "::", {"http_host": "::", "insecure_public_listen": IN_WORDS, "http_login": "off"}),
        ("http.host", "::", {"http_host": "::", "tls_certificate": "a.pem", "http_tls": False}),
        ("the host of the Kafka listener 'kafka'", PUBLIC, {"kafka_host": PUBLIC}),
        (
            "the host of the Kafka listener 'kafka'",
            PUBLIC,
            {"kafka_host": PUBLIC, "kafka_sasl_mechanisms": ("SCRAM-SHA-256", "PLAIN")},
        ),
        ("the host of the Kafka listener 'outside'", PUBLIC, {"kafka_listeners": (OUTSIDE,)}),
    ],
)
def test_passwords_in_clear_on_a_public_address_are_refused_unless_said_in_words(listener, host, options):
    config = ServerConfig(**options)
    with pytest.raises(InvalidConfig) as refused:
        check_clear_passwords(config, authenticated=True)
    assert refused.value.text.startswith(f"{listener} is '{host}': passwords and tokens would cross")
    assert "tls.certificate" in refused.value.text
    check_clear_passwords(
        ServerConfig(**options, insecure_clear_passwords=CLEAR_IN_WORDS), authenticated=True
    )


def test_every_listener_that_takes_passwords_in_clear_is_named_at_once():
    with pytest.raises(InvalidConfig, match=r"^native.host is '::', the host of .* is '::', http.host is"):
        check_clear_passwords(
            ServerConfig(native_host="::", kafka_host="::", http_host="::"), authenticated=True
        )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"native_host": "127.8.8.8", "http_host": "::1", "kafka_host": "localhost"},
        {"native_host": PUBLIC, "http_host": PUBLIC, "kafka_host": PUBLIC, "tls_certificate": "a.pem"},
        {"kafka_host": PUBLIC, "kafka_sasl_mechanisms": ("SCRAM-SHA-256",)},
        {"kafka_host": PUBLIC, "kafka_sasl": "off"},
        {"kafka_host": PUBLIC, "kafka_port": OFF},
        {"http_host": PUBLIC, "http_port": OFF},
        {"seeds_host": PUBLIC, "seeds_all": True},
    ],
)
def test_clear_text_is_accepted_on_loopback_or_without_passwords(options):
    check_clear_passwords(ServerConfig(**options), authenticated=True)


def test_where_nobody_can_log_in_there_are_no_passwords_in_clear():
    check_clear_passwords(ServerConfig(native_host=PUBLIC, http_host=PUBLIC), authenticated=False)
    with pytest.raises(InvalidConfig, match=r"native\.host"):
        check_clear_passwords(ServerConfig(native_host=PUBLIC, native_login="required"), authenticated=False)


def test_an_option_reaches_the_object_that_uses_it():
    config, _ = load({"http_idempotency_window_ms": "5m", "idle_timeout_ms": "9s", "acl_default": "deny"}, {})
    assert config.broker.idempotency_window_ms == 300_000
    assert (config.native.idle_timeout_ms, config.seeds.idle_timeout_ms) == (9_000, 9_000)
    assert (config.kafka.idle_timeout_ms, config.http.idle_timeout_ms) == (600_000, 75_000)
    assert config.broker.allow_unnamed_resources is False
