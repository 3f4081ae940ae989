"""Access rights of queues: exactly those of the table in docs/queues.md."""

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import combinations

import pytest
from tests.queues.work import Work

from sparrow.base.clock import ManualClock
from sparrow.base.errors import NotAuthorized, NotFound
from sparrow.broker.access.acls import AclBinding, AclFilter, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, Principal, ResourceType
from sparrow.broker.config import BrokerConfig
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.broker.queues.service import QueueService

ALICE = Principal("alice")
Right = tuple[ResourceType, str, Operation]
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
DESCRIBE, ALTER_CONFIGS = Operation.DESCRIBE, Operation.ALTER_CONFIGS


@pytest.fixture
async def work(tmp_path) -> AsyncIterator[Work]:
    config = BrokerConfig(default_partitions=1, allow_unnamed_resources=False)
    work = Work(str(tmp_path / "data"), ManualClock(), config)
    await work.start()
    await work.broker.queues.create("jobs", ["one", "two"], principal=SYSTEM)
    await work.broker.queues.create("jobs.dead", principal=SYSTEM)
    yield work
    await work.stop()


async def lease(queues: QueueService, name: str) -> None:
    consumer = await queues.open_consumer(name, principal=ALICE)
    await consumer.lease(1)
    await consumer.settle([Settlement(Verb.ACK, "one", 0, 0, 0)])


Act = Callable[[QueueService, str], Awaitable[object]]


async def described(queues: QueueService, name: str) -> None:
    queues.describe(name, principal=ALICE)


async def progressed(queues: QueueService, name: str) -> None:
    queues.redrive_progress(name, principal=ALICE)


READS = {(GROUP, "jobs", READ), (TOPIC, "one", READ), (TOPIC, "two", READ)}
CASES: dict[str, tuple[set[Right], Act]] = {
    "lease": (READS, lease),
    "peek": (READS, lambda q, name: q.peek(name, principal=ALICE)),
    "describe": ({(GROUP, "jobs", DESCRIBE)}, described),
    "redrive_progress": ({(GROUP, "jobs", DESCRIBE)}, progressed),
    "configure": (
        {(GROUP, "jobs", ALTER_CONFIGS)},
        lambda q, name: q.configure(name, {"lease_ms": 1000}, principal=ALICE),
    ),
    "configure with a dead-letter topic": (
        {(GROUP, "jobs", ALTER_CONFIGS), (TOPIC, "graves", WRITE)},
        lambda q, name: q.configure(name, {"dead_letter_topic": "graves"}, principal=ALICE),
    ),
    "configure with the default dead-letter topic": (
        {(GROUP, "jobs", ALTER_CONFIGS), (TOPIC, "jobs.dead", WRITE)},
        lambda q, name: q.configure(name, unset=["dead_letter_topic"], principal=ALICE),
    ),
    "configure without a dead-letter topic": (
        {(GROUP, "jobs", ALTER_CONFIGS)},
        lambda q, name: q.configure(name, {"dead_letter_topic": None}, principal=ALICE),
    ),
    "add_topics": (
        {(GROUP, "jobs", ALTER_CONFIGS), (TOPIC, "other", READ), (TOPIC, "other", CREATE)},
        lambda q, name: q.add_topics(name, ["other"], principal=ALICE),
    ),
    "pause": ({(GROUP, "jobs", ALTER_CONFIGS)}, lambda q, name: q.pause(name, principal=ALICE)),
    "resume": ({(GROUP, "jobs", ALTER_CONFIGS)}, lambda q, name: q.resume(name, principal=ALICE)),
    "purge": ({(GROUP, "jobs", DELETE)}, lambda q, name: q.purge(name, principal=ALICE)),
    "delete": ({(GROUP, "jobs", DELETE)}, lambda q, name: q.delete(name, principal=ALICE)),
    "redrive": (
        {(GROUP, "jobs", READ), (TOPIC, "jobs.dead", READ), (TOPIC, "one", WRITE), (TOPIC, "two", WRITE)},
        lambda q, name: q.redrive(name, principal=ALICE),
    ),
    "stop_redrive": ({(GROUP, "jobs", READ)}, lambda q, name: q.stop_redrive(name, principal=ALICE)),
}


async def allow(work: Work, rights: set[Right]) -> None:
    await work.broker.acls.delete([AclFilter()], principal=SYSTEM)
    await work.broker.acls.create(
        [
            AclBinding(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)
            for kind, name, operation in rights
        ],
        principal=SYSTEM,
    )


@pytest.mark.parametrize("verb", CASES)
async def test_an_operation_takes_all_of_its_rights_and_no_others(work: Work, verb: str) -> None:
    rights, act = CASES[verb]
    for fewer in combinations(rights, len(rights) - 1):
        await allow(work, set(fewer))
        with pytest.raises(NotAuthorized):
            await act(work.broker.queues, "jobs")
    await allow(work, rights)
    await act(work.broker.queues, "jobs")


@pytest.mark.parametrize("verb", CASES)
async def test_a_principal_without_rights_does_not_learn_if_a_queue_exists(work: Work, verb: str) -> None:
    _, act = CASES[verb]
    refusals = []
    for name in ("jobs", "none"):
        with pytest.raises(NotAuthorized) as refused:
            await act(work.broker.queues, name)
        refusals.append(refused.value.text.replace(name, "…"))
    assert refusals[0] == refusals[1]
    assert work.broker.queues.listing(principal=ALICE) == []


async def test_to_make_a_queue_takes_rights_on_its_topics(work: Work) -> None:
    queues = work.broker.queues
    makes = {(GROUP, "new", ALTER_CONFIGS), (TOPIC, "new", READ)}
    await allow(work, makes)
    with pytest.raises(NotAuthorized):
        await queues.create("new", principal=ALICE)
    with pytest.raises(NotFound):
        queues.describe("new", principal=SYSTEM)
    makes.add((TOPIC, "new", CREATE))
    await allow(work, makes)
    with pytest.raises(NotAuthorized, match=r"Write Topic 'new\.dead'"):
        await queues.create("new", principal=ALICE)
    await queues.create("new", policy={"dead_letter_topic": None}, principal=ALICE)
    await queues.delete("new", principal=SYSTEM)
    await allow(work, {*makes, (TOPIC, "new.dead", WRITE)})
    await queues.create("new", principal=ALICE)
    for topics in (["one"], ["new", "one"]):
        with pytest.raises(NotAuthorized):
            await queues.create("more", topics, principal=ALICE)
