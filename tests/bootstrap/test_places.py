"""All errors of a file are reported at once, each with its line."""

from __future__ import annotations

import pytest

from sparrow.base.errors import InvalidConfig
from sparrow.base.yamlfile import MAX_FILE_BYTES, MAX_KEYS, MAX_VALUES, YamlFile, read_yaml
from sparrow.server.config import load


def errors_of(path) -> list[str]:
    with pytest.raises(InvalidConfig) as caught:
        load({"config": path.name}, {})
    return caught.value.text.splitlines()


def test_everything_that_is_wrong_at_any_depth_is_named_at_once_in_the_order_of_lines(write):
    path = write(
        """\
nativ:
  port: 1
kafka:
  port: high
  listeners:
    - name: outer
      port: 1
      host: [a]
queues:
  emails:
    policy:
      lese_ms: 5
      lease: 1
    subscribers:
      billing:
        url: ftp://example.org
        headers: {x: 1}
        concurrency: none
topics:
  - audit
  - name: orders
    partitions: many
    config:
      retention.mss: 1d
  - audit
acls:
  - principal: ann
    operations: [read, raed]
    topic: orders
"""
    )
    assert errors_of(path) == [
        "sparrow.yml:2: there is no option 'nativ.port'; did you mean 'native.port'?",
        "sparrow.yml:4: kafka.port cannot be 'high'; it takes a whole number from 0 to 65535, or off",
        "sparrow.yml:8: kafka.listeners[0].host cannot be ['a']; it takes a text",
        (
            "sparrow.yml:12: queues.emails.policy.lese_ms: a policy has no setting 'lese_ms'; did you "
            "mean 'lease_ms'?"
        ),
        (
            "sparrow.yml:13: queues.emails.policy.lease: lease is 1; it is a duration from 100ms to "
            '12h, such as "90s" or "1h30m" (a bare number is milliseconds)'
        ),
        (
            "sparrow.yml:16: queues.emails.subscribers.billing.url: url begins with 'ftp'; it must be "
            "http:// or https://"
        ),
        (
            "sparrow.yml:18: queues.emails.subscribers.billing.concurrency: concurrency is 'none'; it "
            "is a whole number from 1 to 256"
        ),
        "sparrow.yml:22: topics[1].partitions cannot be 'many'; it takes a whole number from 1 to 10000",
        (
            "sparrow.yml:24: topics[1].config.retention.mss: there is no topic configuration "
            "'retention.mss'; did you mean 'retention.ms'?"
        ),
        "sparrow.yml:25: topics[2]: a topic of the name 'audit' occurs twice",
        "sparrow.yml:28: acls[0].operations[1]: there is no operation 'raed'; did you mean 'read'?",
    ]


def test_a_key_that_stands_twice_is_named_beside_all_other_errors(write):
    path = write(
        "queues:\n  a: {}\n  a: {}\nlog: {level: loud}\nnative.port: 1\nnative: {port: 2}\nlog: {format: x}\n"
    )
    found = errors_of(path)
    assert [line.partition(" ")[0] for line in found] == [f"sparrow.yml:{n}:" for n in (3, 4, 6, 7)]
    assert "'a' occurs twice" in found[0]
    assert found[2].endswith("'native.port' occurs twice; the first is on line 5")


def test_no_secret_is_shown_however_wrong_it_is(write):
    path = write(
        "tokens: {ann: [hunter2]}\nusers: [hunter2]\nqueues: {a: {webhooks: {b: {url: 'http://c', "
        "secret: hunter2},"
        " d: {url: 'http://e', secrets: {hunter2: 1}}, f: {url: 'http://g:hunter2@h'}}}}\n"
    )
    found = errors_of(path)
    assert len(found) == 5
    assert "hunter2" not in "\n".join(found)


def test_a_line_is_that_of_the_part_also_through_anchors_and_merges(write):
    path = write(
        "queues:\n  first:\n    policy: &mine\n      lease: 1m\n      order: sideways\n  second:\n "
        "   policy:\n      <<: *mine\n      start: never\n"
    )
    assert [line.partition(" ")[0] for line in errors_of(path)] == [
        "sparrow.yml:5:",
        "sparrow.yml:5:",
        "sparrow.yml:9:",
    ]


@pytest.mark.parametrize("others", ["", "data_dir: x\n"])
def test_merged_keys_may_be_overridden(write, others):
    write(
        f"{others}queues:\n  a: {{policy: &a {{lease: 30s, delivery_limit: 2}}}}\n  b: {{policy: "
        "&b {<<: *a, lease: 20s}}\n"
        "  c: {policy: *b}\n  d: {policy: {<<: [*b, *a], order: key}}\n"
    )
    config, _ = load({"config": "sparrow.yml"}, {})
    policies = [dict(each.policy) for each in config.queues]
    assert [each["lease_ms"] for each in policies] == [30_000, 20_000, 20_000, 20_000]
    assert {each["delivery_limit"] for each in policies} == {2}


def test_keys_merged_in_one_option_are_no_repetition_in_another(write):
    write(
        "topics: {a: {config: &a {retention.ms: 1d}}, b: {config: &b {<<: *a, retention.ms: "
        "2d}}}\ndefault_topic_config: *b\n"
    )
    config, _ = load({"config": "sparrow.yml"}, {})
    assert config.broker.topic_defaults["retention.ms"] == "172800000"


def test_options_themselves_are_not_merged(write):
    path = write("native: &a {port: 1}\nkafka: {<<: *a, host: b}\n")
    assert errors_of(path) == ["sparrow.yml:2: options cannot be merged by '<<', only the contents of one"]


@pytest.mark.slow
def test_sections_and_keys_that_multiply_through_aliases_are_refused(write):
    before = ["1", *(f"*l{n}" for n in range(8))]
    sections = [
        f"l{n}: &l{n} {{{', '.join(f'k{key}: {before[n]}' for key in range(20))}}}\n" for n in range(6)
    ]
    found = errors_of(write("".join(sections)))
    assert any(f"more than {MAX_KEYS} options" in each for each in found)
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([before[n]] * 10)}]" for n in range(9))
    assert errors_of(write(f"{levels}\n? *l8\n: 1\n? *l7\n: {{a: 1}}\n"))


def test_values_that_multiply_through_aliases_are_refused_before_they_are_built(write):
    levels = "\n".join(f"  - &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12))
    (found,) = errors_of(write(f"topics:\n  - &l0 [x]\n{levels}\n"))
    assert found.startswith(f"sparrow.yml:1: more than {MAX_VALUES} values")


@pytest.mark.parametrize(
    "text",
    [
        "topics: &a [*a]",
        "topics: " + "[" * 2000,
        "topics: " + "[" * 400 + "]" * 400,
        "a: " * 3,
        "\tx: 1",
        "? [a]\n: b",
        "topics: {[1, 2]: x}",
        "topics: {? {a: b} : c}",
        "data_dir: 2024-99-99",
        "max_frame: " + "9" * 5000,
        'data_dir: "a\\0b"',
        'tokens_file: "\\ud800"',
        'users: {"\\ud800": a}',
        "native: {host: a..b}",
        "kafka: {listeners: [{name: a, port: 1, host: " + "a" * 70 + "}]}",
        'http: {host: "a b"}',
        "seeds: {host: ä..b}",
        "max_frame: 0x" + "f" * 9000,
        "? 0x" + "f" * 9000 + "\n: 1",
        "native: {port: 0x" + "f" * 9000 + "}",
        "queues: {a: {policy: {lease: 0x" + "f" * 9000 + "}}}",
        "queues: {a: {webhooks: {b: {url: 'http://c', rate: 0x" + "f" * 9000 + "}}}}",
        "queues:\n  ? 0x" + "f" * 9000 + "\n  : {}",
        "max_frame: " + "9" * 400 + ".5 GB",
        "drain_timeout: " + "9" * 400 + ".5s",
        "topics: {a: {partitions: .inf}}",
        "topics: {a: {config: {retention.ms: .nan}}}",
        "queues: {a: {policy: {backoff_jitter: .nan}}}",
        "queues: {a: {webhooks: {b: {url: 'http://c', rate: .nan}}}}",
        "queues: {a: {webhooks: {b: {url: 'http://[c'}}}}",
        "queues: {a: {policy: {start: 2024-01-01}}}",
        "queues: {a: {partitions: !!binary aGk=}}",
        "queues: {on: {}}",
        "data_dir: !!python/object/apply:os.system ['true']",
        "%YAML 9.9\n---\na: 1",
        "a: 1\n---\nb: 2",
        "!!set {a, b}",
        "- a",
        "5",
        "\x00",
        "queues: !!set {a}",
        "queues: !!omap [a: 1]",
        "queues: [1, 2.5, null, true]",
        "topics: {'': 1}",
        "users: {'': a}",
        "acls: [{principal: '', operations: [], topic: x}]",
    ],
)
def test_strange_files_are_refused_with_a_place_and_no_traceback(write, text):
    for line in errors_of(write(text)):
        assert line.startswith(("sparrow.yml:", "configuration file sparrow.yml "))


def test_a_file_that_is_none_or_too_large_is_refused(directory, write):
    (directory / "d").mkdir()
    assert "cannot be read: Is a directory" in errors_of(directory / "d")[0]
    path = write("")
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert f"more than {MAX_FILE_BYTES} bytes" in errors_of(path)[0]
    path.write_bytes(b"data_dir: \xff")
    assert errors_of(path) == ["sparrow.yml:1: this is not UTF-8 text; save the file as UTF-8"]


def test_an_empty_file_and_a_byte_order_mark_are_fine(write):
    assert YamlFile(str(write(""))).sections == ()
    path = write("")
    path.write_bytes(b"\xef\xbb\xbfdata_dir: x\n")
    assert read_yaml(str(path), [])["data_dir"].value == "x"
