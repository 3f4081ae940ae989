"""A start brings the broker to what the file declares: all of it, nothing else, once, and also
after it was killed anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import InvalidConfig, StorageFailed
from sparrow.broker.access.acls import AclFilter
from sparrow.broker.access.authz import SYSTEM
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.webhooks.endpoint import make_secret, new_settings
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Entry, Write
from sparrow.server.bootstrap.apply import apply
from sparrow.server.config import ServerConfig
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from sparrow.testing.running_broker import _config as config_of
from tests.repetitions import repetitions

FULL: Mapping[str, object] = {
    "topics": {"audit": None, "orders": {"partitions": 3, "config": {"retention.ms": "1d"}}},
    "queues": {
        "emails": {"policy": {"lease": "1m", "order": "key"}, "partitions": 2},
        "jobs": {
            "topics": ["orders", "work"],
            "subscribers": {
                "a": "https://a.example.org",
                "b": {"url": "http://127.0.0.1:1", "trusted": True},
                "c": None,
            },
        },
        "mails": {"webhooks": {"x": {"url": "https://x.example.org", "format": "json", "rate": 5}}},
    },
    "schedules": {
        "nightly": {"queue": "emails", "cron": "30 2 * * *", "time_zone": "Europe/Berlin", "value": {"a": 1}},
        "pulse": {"queue": "mails", "every": "15m"},
    },
    "acls": [{"principal": "ann", "operations": ["read", "write"], "topic": "orders"}],
}
NEVER = 1_000_000
OWN = {"topic", "queue", "queue-start", "webhook", "schedule", "acl"}
"""Kinds of entries that declarations are kept in."""


class DyingMetaStore(MemoryMetaStore):
    """A meta store that simulates the end of the process after this many writes."""

    def __init__(self, entries: dict[tuple[str, str], Entry]) -> None:
        super().__init__(entries)
        self.left = NEVER

    async def write(self, writes: Sequence[Write]) -> None:
        if self.left <= 0:
            raise StorageFailed("killed")
        self.left -= 1
        await super().write(writes)


class World:
    """The disk of a broker between its starts."""

    def __init__(self) -> None:
        self.files = FaultyFileSystem(0)
        self.entries: dict[tuple[str, str], Entry] = {}

    @asynccontextmanager
    async def broker(self, *, is_killed: bool = False) -> AsyncIterator[tuple[Broker, DyingMetaStore]]:
        """Run a broker over the disk; `is_killed`: drop the writes of its close."""
        meta = DyingMetaStore(dict(self.entries))
        logs = LocalLogStore("/data", fs=self.files, options=StorageOptions(reserve_bytes=0))
        rules = BrokerConfig(default_partitions=1, offsets_retention_ms=60_000)
        async with Broker(config=rules, log_store=logs, meta_store=meta) as broker:
            try:
                yield broker, meta
            finally:
                self.entries, meta.left = dict(meta.entries), NEVER
        if not is_killed:
            self.entries = meta.entries

    async def start(self, config: ServerConfig, *, writes: int = NEVER) -> dict[str, Any]:
        """Start a broker and return what exists then. Kill it when its declarations need more than
        `writes` writes.
        """
        async with self.broker(is_killed=writes < NEVER) as (broker, meta):
            meta.left = writes
            await apply(broker, config)
            return seen(broker)

    @property
    def declared(self) -> dict[tuple[str, str], tuple[int, bytes]]:
        return {key: (entry.version, entry.value) for key, entry in self.entries.items() if key[0] in OWN}


def seen(broker: Broker) -> dict[str, Any]:
    """Return everything that declarations can set, without generated ids, times and secrets."""
    return {
        "topics": {
            topic.name: (len(topic.partitions), topic.config.overrides)
            for topic in broker.parts.topic_registry
        },
        "queues": {
            queue.name: (queue.definition.topics, queue.definition.policy)
            for queue in broker.parts.queue_registry
        },
        "webhooks": {
            each.key: (each.settings, each.is_trusted, len(each.secrets))
            for each in broker.parts.webhook_registry
        },
        "acls": set(broker.acls.describe(AclFilter(), principal=SYSTEM)),
    }


async def test_everything_declared_is_there_after_the_start():
    found = await World().start(config_of(FULL))
    assert found["topics"] == {
        "audit": (1, {}),
        "orders": (3, {"retention.ms": "86400000"}),
        "emails": (2, {}),
        "work": (1, {}),
        "mails": (1, {}),
    }
    queues = found["queues"]
    assert {name: topics for name, (topics, _) in queues.items()} == {
        "emails": ("emails",),
        "jobs": ("orders", "work"),
        "mails": ("mails",),
    }
    assert (queues["emails"][1].lease_ms, queues["emails"][1].order) == (60_000, "key")
    assert queues["jobs"][1].subscribers == ("a", "b", "c")
    webhooks = {
        key: (each.url, trusted, secrets) for key, (each, trusted, secrets) in found["webhooks"].items()
    }
    assert webhooks == {
        ("jobs", "a"): ("https://a.example.org", False, 1),
        ("jobs", "b"): ("http://127.0.0.1:1", True, 1),
        ("mails", "x"): ("https://x.example.org", False, 1),
    }
    assert len(found["acls"]) == 2


def said(caplog):
    """Return the log lines of the server, without those of the audit."""
    return [record.getMessage() for record in caplog.records if record.name == "sparrow.server"]


async def test_a_second_start_writes_nothing_and_says_nothing(caplog):
    world = World()
    caplog.set_level(logging.INFO, "sparrow.server")
    await world.start(config_of(FULL))
    assert len(said(caplog)) == 11
    before = world.declared
    assert {kind for kind, _ in before} == OWN
    caplog.clear()
    await world.start(config_of(FULL), writes=0)
    assert world.declared == before
    assert said(caplog) == []


async def test_declared_objects_are_updated_and_others_left_alone(caplog):
    caplog.set_level(logging.INFO, "sparrow.server")
    world = World()
    await world.start(config_of(FULL))

    async with world.broker() as (broker, _):
        await broker.topics.configure(
            "orders", {"retention.bytes": "5", "retention.ms": "7"}, principal=SYSTEM
        )
        await broker.queues.configure("emails", {"prefetch": 3, "lease_ms": 5000}, principal=SYSTEM)
        await broker.queues.configure("jobs", {"subscribers": ["own", "a", "b"]}, principal=SYSTEM)
        await broker.webhooks.put("jobs", "own", {"url": "https://own.example.org"}, principal=SYSTEM)
        await broker.webhooks.put("mails", "x", {"rate": 1, "concurrency": 2}, principal=SYSTEM)
        await broker.topics.create("other", 1, principal=SYSTEM)
    caplog.clear()
    found = await world.start(config_of(FULL))
    assert found["topics"]["orders"] == (3, {"retention.ms": "86400000", "retention.bytes": "5"})
    assert "other" in found["topics"]
    policy = found["queues"]["emails"][1]
    assert (policy.prefetch, policy.lease_ms) == (3, 60_000)
    assert found["queues"]["jobs"][1].subscribers == ("own", "a", "b", "c")
    assert ("jobs", "own") in found["webhooks"]
    webhook = found["webhooks"]["mails", "x"][0]
    assert (webhook.rate, webhook.concurrency) == (5, 2)
    assert said(caplog) == ["topic configured", *["queue configured"] * 2, "webhook configured"]


async def test_unchangeable_settings_stay_with_a_warning(caplog):
    world = World()
    await world.start(config_of(FULL))
    less = {
        "topics": {"orders": {"partitions": 2}, "audit": {"partitions": 4}},
        "queues": {"emails": {"policy": {"start": "end"}}},
    }
    found = await world.start(config_of(less))
    assert (found["topics"]["orders"][0], found["topics"]["audit"][0]) == (3, 4)
    assert found["queues"]["emails"][1].start == "beginning"
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 2
    assert "a topic never shrinks" in warned[0]
    assert "a queue begins only once: 'end' of the file does not count" in warned[1]


async def test_a_queue_gets_topics_and_subscribers_that_are_new_in_the_file():
    world = World()
    await world.start(config_of({"queues": {"emails": {"topics": ["a"]}}}))
    more = {"queues": {"emails": {"topics": ["b", "c"], "partitions": 3, "subscribers": ["s"]}}}
    found = await world.start(config_of(more))
    assert found["queues"]["emails"][0] == ("a", "b", "c")
    assert found["queues"]["emails"][1].subscribers == ("s",)
    assert (found["topics"]["c"][0], found["topics"]["a"][0]) == (3, 1)


async def test_names_taken_by_others_do_not_stop_the_start(caplog):
    world = World()

    async with world.broker() as (broker, _):
        await broker.parts.queue_registry.share("emails")
        await broker.queues.create("mails", policy={"subscribers": ["own"]}, principal=SYSTEM)
    found = await world.start(config_of({"queues": FULL["queues"]}))
    assert set(found["queues"]) == {"emails", "mails", "jobs"}
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 2
    assert "a Kafka share group has this name" in warned[0]
    assert "the webhook 'x' of the configuration file is not made" in warned[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topics": {"a.b": None, "a_b": None}}, "the topic 'a_b' of the configuration file cannot be made"),
        (
            {"queues": {"q": {"webhooks": {"w": "http://10.0.0.1"}}}},
            "the option webhooks.allow of the broker",
        ),
    ],
)
async def test_impossible_declarations_stop_the_start(given, message):
    with pytest.raises(InvalidConfig, match=message):
        await World().start(config_of(given))


async def test_allowed_networks_of_the_configuration_apply_to_its_declarations():
    declared = {"queues": {"q": {"webhooks": {"w": "http://10.0.0.1"}}}, "webhooks_allow": "10.0.0.0/8"}
    assert len((await World().start(config_of(declared)))["webhooks"]) == 1


async def test_an_endpoint_is_trusted_for_as_long_as_the_file_says_so():
    def declared(url: str, *, trusted: bool) -> ServerConfig:
        return config_of({"queues": {"q": {"webhooks": {"w": {"url": url, "trusted": trusted}}}}})

    world = World()
    for url, trusted in (
        ("http://w.example.org", True),
        ("http://w.example.org", False),
        ("http://[::1]", True),
    ):
        found = await world.start(declared(url, trusted=trusted))
        assert found["webhooks"]["q", "w"][:2] == (new_settings({"url": url}), trusted)
    with pytest.raises(InvalidConfig, match="a loopback or private address"):
        await world.start(declared("http://[::1]", trusted=False))


async def test_secrets_are_rotated_in_the_file():
    first, second = (make_secret(bytes([n]) * 32) for n in range(2))
    world = World()
    for secrets in ([first], [second, first], [second], []):
        declared = {"queues": {"q": {"webhooks": {"w": {"url": "http://w.example.org", "secrets": secrets}}}}}
        async with world.broker() as (broker, _):
            await apply(broker, config_of(declared))
            endpoint = broker.parts.webhook_registry.get("q", "w")
            assert [each.text for each in endpoint.secrets] == secrets


async def test_a_start_that_was_killed_after_any_write_is_completed_by_the_next():
    wanted = await World().start(config_of(FULL))
    kills = 0
    while True:
        world = World()
        try:
            await world.start(config_of(FULL), writes=kills)
        except StorageFailed:
            kills += 1
        else:
            break
        assert await world.start(config_of(FULL)) == wanted
        before = world.declared
        await world.start(config_of(FULL), writes=0)
        assert world.declared == before
    assert kills > 10


names = st.sampled_from(["a", "b", "c.d"])
durations = st.sampled_from(["1s", "1m", "1h"])
declared_topics = st.dictionaries(
    names,
    st.fixed_dictionaries(
        {},
        optional={
            "partitions": st.integers(1, 4),
            "config": st.fixed_dictionaries(
                {}, optional={"retention.ms": durations, "segment.ms": durations}
            ),
        },
    ),
)
declared_queues = st.dictionaries(
    names,
    st.fixed_dictionaries(
        {},
        optional={
            "topics": st.lists(st.sampled_from(["x", "y"]), min_size=1, unique=True),
            "policy": st.fixed_dictionaries(
                {},
                optional={
                    "lease": durations,
                    "order": st.sampled_from(["none", "key"]),
                    "prefetch": st.integers(0, 3),
                },
            ),
            "subscribers": st.dictionaries(
                names, st.sampled_from([None, "https://s.example.org", "https://t.example.org"])
            ),
        },
    ),
)
configurations = st.builds(
    lambda topics, queues: config_of({"topics": topics, "queues": queues}), declared_topics, declared_queues
)


@pytest.mark.slow
@settings(max_examples=repetitions(150), deadline=None)
@given(st.lists(configurations, min_size=1, max_size=3))
def test_after_any_files_the_last_one_holds_and_holds_again_without_a_write(configs):
    async def play() -> None:
        world = World()
        found: dict[str, Any] = {}
        for config in configs:
            found = await world.start(config)
        for topic in configs[-1].topics:
            partitions, overrides = found["topics"][topic.name]
            assert partitions >= topic.partitions
            assert topic.config.items() <= overrides.items()
        for queue in configs[-1].queues:
            topics, policy = found["queues"][queue.name]
            assert set(queue.topics) <= set(topics)
            assert queue.policy.items() <= policy.settings().items()
            assert set(queue.subscribers) <= set(policy.subscribers)
            for endpoint in queue.endpoints:
                held = found["webhooks"][queue.name, endpoint.name][0]
                assert endpoint.settings.items() <= held.values().items()
        before = world.declared
        await world.start(configs[-1], writes=0)
        assert world.declared == before

    asyncio.run(play())
