"""Declarations of a configuration file, in every notation; the document names all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparrow.base.errors import InvalidConfig
from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import Operation, ResourceType
from sparrow.cli.queue_policy import OPTIONS
from sparrow.model.access import CLUSTER_NAME
from sparrow.server.bootstrap import endpoints, queues, rules, topics
from sparrow.server.bootstrap.endpoints import EndpointDeclaration
from sparrow.server.bootstrap.pipelines import PipelineDeclaration
from sparrow.server.bootstrap.queues import QueueDeclaration
from sparrow.server.bootstrap.topics import TopicDeclaration
from sparrow.server.config import load

DOCUMENT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjU"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDC2FVsBQIhrscChlQ"


def test_a_mapping_and_a_list_mean_the_same(read):
    as_mapping = read(
        "topics: {audit: , orders: {partitions: 8}}\nqueues: {emails: , jobs: {subscribers: {a: , "
        "b: 'http://c'}}}"
    )
    as_list = read(
        "topics: [audit, {name: orders, partitions: 8}]\n"
        "queues: [emails, {name: jobs, subscribers: [a, {name: b, url: 'http://c'}]}]"
    )
    assert (as_mapping.topics, as_mapping.queues) == (as_list.topics, as_list.queues)
    assert as_mapping.topics == (TopicDeclaration("audit", -1, {}), TopicDeclaration("orders", 8, {}))
    webhook = EndpointDeclaration("b", {"url": "http://c"}, None, is_trusted=False)
    assert as_mapping.queues == (
        QueueDeclaration("emails", ("emails",), -1, {}, (), ()),
        QueueDeclaration("jobs", ("jobs",), -1, {}, ("a", "b"), (webhook,)),
    )


def policy_of(texts: dict[str, str]) -> str:
    lines = [f"      {name}: {text}\n" for name, text in texts.items()]
    return "queues:\n  q:\n    policy:\n" + "".join(lines)


def test_a_policy_takes_the_words_of_the_command_line_and_units(read):
    texts = {
        "lease": "30s",
        "delivery_limit": "3",
        "backoff": "linear",
        "backoff_delay": "1s",
        "backoff_max": "1h",
        "jitter": "0.5",
        "prefetch": "5",
        "max_leased": "7",
        "rate": "2.5",
        "order": "key",
        "expiry": "1d",
        "dead_letter_topic": "graves",
        "start": "2026-05-01T12:00:00Z",
        "parent_wait": "2m",
        "parent_failed": "release",
        "on_corrupt": "fail",
        "lease_durability": "buffered",
    }
    assert list(texts) == list(OPTIONS)
    by_words = read(policy_of(texts))
    settings = [each.name for each in OPTIONS.values()]
    by_settings = read(policy_of(dict(zip(settings, texts.values(), strict=True))))
    assert by_words.queues == by_settings.queues
    assert by_words.queues[0].policy == {
        "lease_ms": 30_000,
        "delivery_limit": 3,
        "backoff": "linear",
        "backoff_ms": 1_000,
        "backoff_max_ms": 3_600_000,
        "backoff_jitter": 0.5,
        "prefetch": 5,
        "max_leased": 7,
        "rate": 2.5,
        "order": "key",
        "expiry_ms": 86_400_000,
        "dead_letter_topic": "graves",
        "start": "timestamp:1777636800000",
        "parent_wait_ms": 120_000,
        "parent_failed": "release",
        "on_corrupt": "fail",
        "lease_durability": "buffered",
    }
    assert read("queues: {q: {policy: {dead_letter_topic: }}}").queues[0].policy == {
        "dead_letter_topic": None
    }


def test_a_webhook_takes_its_secrets_from_a_file_beside_the_configuration(write, directory, monkeypatch):
    write(f"{SECRET}\n{OTHER}\n", "etc/secrets/hook")
    path = write(
        "queues: {q: {webhooks: {a: {url: 'https://a', secret_file: secrets/hook, timeout: 5s, trusted: true,"
        " headers: {X-Tenant: 7, X-Test: true}}}}}",
        "etc/sparrow.yml",
    )
    monkeypatch.chdir(directory)
    (queue,) = load({"config": str(path.relative_to(directory))}, {})[0].queues
    settings = {"url": "https://a", "timeout_ms": 5_000, "headers": {"X-Tenant": "7", "X-Test": "true"}}
    assert queue.endpoints == (EndpointDeclaration("a", settings, (SECRET, OTHER), is_trusted=True),)
    assert SECRET not in repr(queue)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{url: 'https://a', secret: x, secret_file: y}", "a secret of a webhook is whsec_"),
        (f"{{url: 'https://a', secret: {SECRET}, secret_file: good}}", "here or in secret_file, not both"),
        (f"{{url: 'https://a', secret: {SECRET}, secrets: [{OTHER}]}}", "are one setting; give it once"),
        ("{url: 'https://a', secret_file: none}", "/none cannot be read: No such file"),
        ("{url: 'https://a', secret_file: empty}", "/empty is empty"),
        ("{url: 'https://a', secret_file: bad}", "a secret of a webhook is whsec_"),
        ("{url: 'https://a', secret_file: binary}", "is no text of secrets"),
        ("{timeout: 5s}", "a webhook needs a url"),
        ("{url: 'https://a', timeout: 5s, timeout_ms: 6s}", "'timeout_ms' are one setting"),
        ("{url: 'https://a', timeout: soon}", "it takes a duration such as"),
        ("5", "a webhook is a mapping of url, "),
        ("{name: other, url: 'https://a'}", "cannot have two names, 'a' and 'other'"),
    ],
)
def test_a_wrong_webhook_is_refused(read, write, text, message):
    write(SECRET, "good")
    write("", "empty")
    write("hunter2", "bad")
    write("", "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        read(f"queues: {{q: {{webhooks: {{a: {text}}}}}}}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{q: {subscribers: [a, a]}}", "a subscriber of the name 'a' occurs twice"),
        ("{q: {subscribers: {a: {timeout: 5s}}}}", "a subscriber that has no url has no settings"),
        ("{q: {subscribers: {a/b: }}}", "a subscriber cannot have the name 'a/b'"),
        (
            "{q: {subscribers: {a: }, webhooks: {b: 'http://b'}}}",
            "q.webhooks: a queue with subscribers is sent to those",
        ),
        ("{q: {policy: {subscribers: [a]}}}", "subscribers are beside the policy"),
        ("{q: {policy: {lease: 1s, lease_ms: 2s}}}", "'lease' and 'lease_ms' are one setting"),
        ("{q: {topics: [a, a]}}", "names a topic twice"),
        ("{q: {topics: [q.dead]}}", "which is one of its own topics"),
        ("{q: {policy: {dead_letter_topic: 'a b'}}}", "have no topic"),
        ("{q: {topic: a}}", "belong under 'topics'"),
        ("{q: {urls: [], policy: }}", "a file of Syncbrok has Queues and Storage only"),
        ("{q: 5}", "a queue is a mapping of topics, "),
        ("{on: {}}", "queues.True.name cannot be True; it takes a text; put it in quotes"),
        ("[{name: 1.10}]", "queues[0].name cannot be 1.1; it takes a text; put it in quotes"),
        ("[{topics: a}]", "queues[0]: a queue needs 'name'"),
        ("emails", "queues cannot be 'emails'; it takes a list of queues, or a mapping of their names"),
        (f"{{{'q' * 256}: }}", "the topic name"),
        (f"{{q: {{subscribers: {[f's{n}' for n in range(101)]}}}}}", "there may be 100"),
    ],
)
def test_a_wrong_queue_is_refused(read, text, message):
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        read(f"queues: {text}")


def test_access_rules_are_those_of_the_command_line(read):
    config = read(
        "acls:\n"
        "  - {principal: ann, operations: [read, describe_configs], topic: orders}\n"
        "  - {principal: 'User:*', operations: 'read, DescribeConfigs', queue: tmp-, prefix: true, "
        "deny: true, host: 10.0.0.1}\n"
        "  - {principal: 'CN=a,OU=urn:b', operations: all, cluster: true}\n"
    )

    def rule(*given):
        return AclBinding(*given)

    topic, group, cluster = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
    literal, allow = PatternType.LITERAL, Permission.ALLOW
    pair = (Operation.READ, Operation.DESCRIBE_CONFIGS)
    assert config.acls == (
        *(rule(topic, "orders", literal, "User:ann", "*", each, allow) for each in pair),
        *(
            rule(group, "tmp-", PatternType.PREFIXED, "User:*", "10.0.0.1", each, Permission.DENY)
            for each in pair
        ),
        rule(cluster, CLUSTER_NAME, literal, "User:CN=a,OU=urn:b", "*", Operation.ALL, allow),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{principal: a, operations: read}", "this one names none"),
        ("{principal: a, operations: read, topic: x, group: y}", "this one names topic, group"),
        ("{principal: a, topic: x}", "an access rule needs 'operations'"),
        ("{principal: a, operations: [], topic: x}", "one operation or several"),
        ("{principal: a, operations: read, topic: ''}", "must name its resource"),
        (f"{{principal: a, operations: read, topic: {'x' * 5000}}}", "is too long"),
        ("[a]", "acls[0]: an access rule is a mapping of"),
    ],
)
def test_a_wrong_access_rule_is_refused(read, text, message):
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        read(f"acls: [{text}]")


def test_pipelines_are_files_beside_the_configuration(directory, write, read):
    write("steps: []", "pipelines/archive.yml")
    write("- a", "list.yml")
    config = read("pipelines: [{name: archive, file: pipelines/archive.yml}]")
    assert config.pipelines == (PipelineDeclaration("archive", str(directory / "pipelines/archive.yml")),)
    for text, message in (
        ("{a: {file: none.yml}}", "none.yml cannot be read: No such file"),
        ("{a: {file: list.yml}}", "a mapping of options is expected at the top"),
        ("{a: }", "a pipeline needs 'file'"),
        ("[{name: '', file: list.yml}, 5]", "pipelines[1]: a pipeline is a mapping"),
    ):
        with pytest.raises(InvalidConfig, match=re.escape(message)):
            read(f"pipelines: {text}")


# ── the document ──────────────────────────────────────────────────────────────────────────────────


def keys_told(title: str) -> set[str]:
    """Return the names in the first column of the tables below a title."""
    section = DOCUMENT.partition(f"\n### `{title}`\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return {name.partition(":")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_key_of_every_declaration_is_told():
    assert keys_told("topics") == set(topics._TOPIC.parts)
    assert keys_told("acls") | {"principal", "operations"} == set(rules._RULE.parts)
    own = {"url", "secrets", "secret_file", "trusted"}
    assert keys_told("queues") == set(queues._QUEUE.parts) | own


def test_every_other_name_of_a_setting_is_told():
    section = DOCUMENT.partition("\n### `queues`\n")[2].partition("\n### ")[0]
    for aliases in (queues.ALIASES, endpoints.ALIASES):
        for alias, name in aliases.items():
            assert f"`{alias}`" in section
            assert f"`{name}`" in section


def test_the_files_of_the_document_are_good(write, command, monkeypatch):
    for name, value in (("SPARROW_TLS_CERTIFICATE", ""), ("SPARROW_TLS_KEY", "")):
        monkeypatch.setenv(name, value)
    # because there is no TLS here
    monkeypatch.setenv("SPARROW_INSECURE_CLEAR_PASSWORDS", "passwords in clear")
    write(SECRET, "secrets/audit")
    write("ann hunter2", "tokens")
    write("steps: []", "pipelines/archive.yml")
    monkeypatch.setenv("SPARROW_TOKENS_FILE", "tokens")
    blocks = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for text in blocks:
        assert command("config", "check", write(text)).err == ""
