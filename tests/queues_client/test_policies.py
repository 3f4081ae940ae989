"""Policies of queues: one table of words and units for all ways to write one, and declarations by
several processes.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import textwrap
import typing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import sparrow
from sparrow.base.errors import InvalidArgument, InvalidConfig, NotAuthorized, QueueExists
from sparrow.base.queue_policy import AT_CORRUPT, SETTINGS, WORDS, QueuePolicy
from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.cli.queue_policy import parse_policy
from sparrow.client.client import Client
from sparrow.client.policy import Policy, settings_of
from sparrow.records.readable import ON_CORRUPT
from sparrow.server.bootstrap.queues import QUEUES
from tests.client.frontends import Frontend, client_of

WORDY: dict[str, Any] = {"lease": "30s", "backoff_delay": "1m30s", "backoff": "linear", "delivery_limit": 3}
PLAIN = {"lease_ms": 30_000, "backoff_ms": 90_000, "backoff": "linear", "delivery_limit": 3}


# ── the table ─────────────────────────────────────────────────────────────────────────────────────


def test_the_table_the_type_and_the_broker_have_the_same_settings() -> None:
    assert set(typing.get_type_hints(Policy)) == set(WORDS) | set(SETTINGS)
    defaults = {name: each.default for name, each in SETTINGS.items()}
    assert {**QueuePolicy().settings(), "subscribers": ()} == defaults
    assert set(AT_CORRUPT) == set(ON_CORRUPT)


def test_leases_are_synced_by_default() -> None:
    assert QueuePolicy().lease_durability == "synced"
    assert SETTINGS["lease_durability"].default == "synced"


def test_file_python_http_and_command_line_read_the_same() -> None:
    (declared,) = QUEUES.read({"q": {"policy": dict(WORDY)}})
    assert dict(declared.policy) == PLAIN
    assert settings_of(typing.cast("Policy", WORDY)) == PLAIN
    assert QueuePolicy().changed(WORDY) == QueuePolicy().changed(PLAIN)
    said = parse_policy(setting=[f"{word}={value}" for word, value in WORDY.items()])
    assert settings_of(typing.cast("Policy", said)) == PLAIN


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"lease": 500}, {"lease_ms": 500}),
        ({"lease": "500"}, {"lease_ms": 500}),
        ({"lease": timedelta(minutes=1)}, {"lease_ms": 60_000}),
        ({"lease_ms": "1h30m"}, {"lease_ms": 5_400_000}),
        ({"expiry": "7d", "jitter": 0.5}, {"expiry_ms": 604_800_000, "backoff_jitter": 0.5}),
        ({"dead_letter_topic": None}, {"dead_letter_topic": None}),
        ({"start": datetime(2026, 5, 1, 12, tzinfo=UTC)}, {"start": "timestamp:1777636800000"}),
        ({"subscribers": ("a", "b")}, {"subscribers": ["a", "b"]}),
        (None, {}),
    ],
)
def test_words_and_units_become_wire_values(given: Any, expected: dict[str, Any]) -> None:
    assert settings_of(given) == expected


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"leese": "30s"}, "a queue has no setting 'leese'; did you mean 'lease'?"),
        ({"backof_delay": 1}, "did you mean 'backoff_delay'?"),
        ({"visibility": 1}, "there are lease, delivery_limit, "),
        ({"lease": "30 parsecs"}, "lease is '30 parsecs'; it is a duration from 100ms to 12h"),
        ({"lease": 1.5}, "lease is 1.5; it is a duration"),
        ({"lease": True}, "lease is True; it is a duration"),
        ({"lease": timedelta(days=2)}, "it is a duration from 100ms to 12h"),
        ({"backoff": "exponental"}, "fixed, linear, exponential; did you mean 'exponential'?"),
        ({"lease": "1s", "lease_ms": 5000}, "'lease' and 'lease_ms' are one setting; give it once"),
        ({"leese": 1, "order": "keys"}, "did you mean 'lease'?; order is 'keys'"),
        ([("lease", "1s")], "a policy is a mapping of settings"),
    ],
)
def test_wrong_policies_are_refused_before_anything_is_sent(given: Any, text: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(text)):
        settings_of(given)


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="without zone"):
        settings_of({"start": datetime(2026, 5, 1)})  # noqa: DTZ001 - the point


# ── queues that exist ─────────────────────────────────────────────────────────────────────────────


async def test_queue_exists_names_the_differing_options_and_both_values(client: Client) -> None:
    await client.admin.create_queue("jobs", policy={"lease": "30s", "order": "key"})
    with pytest.raises(QueueExists) as caught:
        await client.admin.create_queue("jobs", policy={"lease": "1m", "dead_letter_topic": None})
    assert "lease is 30s, not 1m; order is key, not none; dead_letter_topic is default, not none" in str(
        caught.value
    )
    assert "ensure_queue" in str(caught.value)
    with pytest.raises(QueueExists, match="topics are jobs, not other, more; order is key, not none"):
        await client.admin.create_queue("jobs", ["other", "more"])


async def test_ensure_creates_a_queue_and_changes_only_named_options(client: Client) -> None:
    admin = client.admin
    made = await admin.ensure_queue("jobs", policy={"lease": "1m", "start": "end"}, partitions=3)
    assert (made.policy["lease_ms"], made.policy["start"], made.topics) == (60_000, "end", ["jobs"])
    changed = await admin.ensure_queue("jobs", policy={"delivery_limit": 3, "start": "beginning"})
    assert changed.id == made.id
    assert changed.policy == {**made.policy, "delivery_limit": 3}
    assert (await admin.ensure_queue("jobs")).policy == changed.policy
    more = await admin.ensure_queue("jobs", ["jobs", "more"])
    assert more.topics == ["jobs", "more"]
    assert (await admin.ensure_queue("jobs", "jobs")).topics == ["jobs", "more"]


async def test_ensure_adds_subscribers_and_takes_none_away(client: Client) -> None:
    asked = [client.admin.ensure_queue("all", policy={"subscribers": [name]}) for name in "abcd"]
    await asyncio.gather(*asked)
    found = await client.admin.describe_queue("all")
    assert sorted(found.policy["subscribers"]) == ["a", "b", "c", "d"]


async def test_ensuring_the_present_policy_needs_no_right_to_change_it(
    client: Client, frontend: Frontend
) -> None:
    made = await client.admin.create_queue("jobs", policy={"lease": "1m"})
    allowed = {Operation.DESCRIBE}

    class Rules:
        def allows(self, principal: Principal, operation: Operation, kind: ResourceType, name: str) -> bool:
            return operation in allowed

    queues = frontend.broker.queues
    frontend.broker.access.authorizer = Rules()
    assert (await queues.ensure("jobs", policy={"lease": "1m"})).id == made.id
    with pytest.raises(NotAuthorized):
        await queues.ensure("jobs", policy={"lease": "2m"})
    with pytest.raises(NotAuthorized):
        await queues.ensure("others")


PROCESS = """
    import sys
    import sparrow

    sys.stdin.readline()  # all begin together
    with sparrow.sync.connect(sys.argv[1]) as client:
        for number in range(5):
            policy = {"lease": "45s", "delivery_limit": 2, "subscribers": [sys.argv[2]]}
            made = client.admin.ensure_queue(f"jobs-{number}", policy=policy)
            client.queue(f"plain-{number}", policy={"lease": "45s"}).lease(1, wait_s=0)
        print("done")
"""


@pytest.mark.slow
async def test_eight_processes_declare_the_same_queues_at_once(client: Client, frontend: Frontend) -> None:
    code = textwrap.dedent(PROCESS)
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            code,
            frontend.url,
            f"s{number}",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(8)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
    ended = await asyncio.gather(*(process.communicate() for process in processes))
    assert [out for out, _ in ended] == [b"done\n"] * 8
    for number in range(5):
        found = await client.admin.describe_queue(f"jobs-{number}")
        assert (found.policy["lease_ms"], found.policy["delivery_limit"]) == (45_000, 2)
        assert sorted(found.policy["subscribers"]) == [f"s{each}" for each in range(8)]
        assert (await client.admin.describe_queue(f"plain-{number}")).policy["lease_ms"] == 45_000


# ── queues and workers with a policy ──────────────────────────────────────────────────────────────


async def test_a_queue_has_its_policy_before_it_is_used(client: Client) -> None:
    await client.admin.create_queue("jobs")
    async with client.queue("jobs", policy={"lease": "2m"}) as queue:
        assert (await client.admin.describe_queue("jobs")).policy["lease_ms"] == 30_000
        await queue.publish(b"one")
        assert (await client.admin.describe_queue("jobs")).policy["lease_ms"] == 120_000
        (job,) = await queue.lease(1, wait_s=10)
        assert job.value == b"one"
        await job.ack()
    async with client.queue("new", policy={"lease": "3m"}) as queue:
        assert not await queue.lease(1, wait_s=0)
        assert (await queue.describe()).policy["lease_ms"] == 180_000


async def test_a_publisher_uses_a_queue_that_another_made_meanwhile(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = client.admin.create_queue

    async def create_late(name: str) -> object:
        await create(name, policy={"lease": "2m"})
        return await create(name)

    async with client.queue("jobs") as queue:
        monkeypatch.setattr(queue._admin, "create_queue", create_late)
        await queue.publish(b"one")
        (job,) = await queue.lease(1, wait_s=10)
        assert job.value == b"one"
        await job.ack()


async def test_a_worker_has_its_policy_before_it_works(client: Client) -> None:
    @client.worker("jobs", policy={"lease": "2m", "delivery_limit": 1})
    async def handle(job: sparrow.Job) -> None:
        working.set_result((await client.admin.describe_queue("jobs")).policy)

    working = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(client.run_workers())
    await client.publish("jobs", b"one")
    policy = await asyncio.wait_for(working, 30)
    assert (policy["lease_ms"], policy["delivery_limit"]) == (120_000, 1)
    await client.stop_workers()
    await running


async def test_wrong_policies_of_queues_and_workers_are_refused_at_once(client: Client) -> None:
    with pytest.raises(InvalidConfig, match="did you mean 'lease'"):
        client.queue("jobs", policy=typing.cast("Policy", {"leese": "30s"}))
    with pytest.raises(InvalidConfig, match="did you mean 'delivery_limit'"):
        client.worker("jobs", policy=typing.cast("Policy", {"delivery_limits": 3}))
    with pytest.raises(InvalidArgument, match="policy and create=False"):
        client.queue("jobs", policy={"lease": "30s"}, create=False)
    assert await client.admin.list_queues() == []


async def test_a_policy_that_the_broker_refuses_fails_each_use(client: Client) -> None:
    queue = client.queue("jobs", policy={"dead_letter_topic": "jobs"})
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="one of its own topics"):
            await queue.lease(1, wait_s=0)
    await queue.close()


async def test_the_blocking_client_takes_policies_as_well(frontend: Frontend) -> None:
    def run() -> str:
        with sparrow.sync.connect(frontend.url) as client:
            client.admin.ensure_queue("jobs", policy={"lease": "1m"})
            with client.queue("jobs", policy={"lease": timedelta(minutes=2)}) as queue:
                queue.publish(b"one")
                queue.lease(1, wait_s=10).ack()
            return json.dumps(client.admin.describe_queue("jobs").policy)

    assert json.loads(await asyncio.to_thread(run))["lease_ms"] == 120_000


async def test_an_ensure_is_repeated_over_a_lost_connection(frontend: Frontend) -> None:
    async with client_of(frontend.url) as client:
        await client.admin.list_queues()
        await frontend.stop()
        asking = asyncio.create_task(client.admin.ensure_queue("jobs", policy={"lease": "1m"}))
        await asyncio.sleep(0)
        await frontend.start()
        assert (await asking).policy["lease_ms"] == 60_000
