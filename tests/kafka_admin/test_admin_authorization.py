"""Rights that each administrative API requires, and what clients learn without them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kio.schema.errors import ErrorCode

from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.frontends.kafka.context import Listener
from sparrow.frontends.kafka.frontend import KafkaFrontend
from sparrow.model.access import CLUSTER_NAME
from tests.kafka_admin.messages import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    SET,
    TOPIC,
    alter,
    ask,
    create,
    describe_configs,
    new_topic,
    replace,
)
from tests.kafka_frontend.raw import RawClient

E, Op, R = ErrorCode, Operation, ResourceType
Right = tuple[Operation, ResourceType, str]
CLUSTER = (R.CLUSTER, CLUSTER_NAME)


class Rights:
    """An authorizer that allows only what was granted."""

    def __init__(self) -> None:
        self.granted: set[Right] = set()

    def allows(self, principal: Principal, operation: Operation, type_: ResourceType, name: str) -> bool:
        return (operation, type_, name) in self.granted


class Guarded:
    """A broker with topic "orders" that allows only what a test grants."""

    def __init__(self, broker: Broker, rights: Rights, bootstrap: str) -> None:
        self.broker = broker
        self.rights = rights
        self._bootstrap = bootstrap

    async def do(self, work: Callable[[RawClient], Any], *granted: Right) -> Any:
        """Send a request with exactly these rights."""
        self.rights.granted = set(granted)
        return await asyncio.to_thread(self._do, work)

    def _do(self, work: Callable[[RawClient], Any]) -> Any:
        with RawClient(self._bootstrap) as raw:
            return work(raw)


@pytest_asyncio.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    rights = Rights()
    async with Broker(tmp_path / "data", authorizer=rights) as broker:
        rights.granted = {(Op.CREATE, *CLUSTER)}
        await broker.topics.create("orders", 1)
        rights.granted = set()
        frontend = KafkaFrontend(broker)
        port = await frontend.start(Listener("kafka", "127.0.0.1", 0))
        yield Guarded(broker, rights, f"127.0.0.1:{port}")
        await frontend.drain(1)


def topic(operation: Operation, name: str = "orders") -> Right:
    return (operation, R.TOPIC, name)


# ── topics ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("right", [topic(Op.CREATE, "new"), (Op.CREATE, *CLUSTER)])
async def test_a_topic_is_created_with_the_right_to_create_it_or_any(guarded: Guarded, right: Right) -> None:
    def work(raw: RawClient) -> Any:
        return create(raw, new_topic("new"), new_topic("other"))

    (first, second) = await guarded.do(work)
    assert (first.error_code, second.error_code) == (E.topic_authorization_failed,) * 2
    (first, second) = await guarded.do(work, right)
    assert first.error_code is E.none
    assert (second.error_code is E.none) == (right[1] is R.CLUSTER)
    assert (first.configs, first.num_partitions, first.topic_config_error_code) == ((), -1, 29)
    assert first.topic_id is not None


async def test_the_right_to_describe_configurations_shows_those_of_a_new_topic(guarded: Guarded) -> None:
    (made,) = await guarded.do(
        lambda raw: create(raw, new_topic("new")), (Op.CREATE, *CLUSTER), topic(Op.DESCRIBE_CONFIGS, "new")
    )
    assert (made.error_code, made.num_partitions, made.topic_config_error_code) == (E.none, 1, 0)
    assert made.configs


@pytest.mark.parametrize(
    ("granted", "name", "code"),
    [
        ([], "orders", E.topic_authorization_failed),
        ([], "missing", E.topic_authorization_failed),
        ([topic(Op.DESCRIBE)], "orders", E.topic_authorization_failed),
        ([topic(Op.DESCRIBE, "missing")], "missing", E.unknown_topic_or_partition),
        ([topic(Op.DELETE)], "orders", E.none),
        ([(Op.DELETE, *CLUSTER)], "orders", E.none),
    ],
)
async def test_deleting_an_invisible_topic_does_not_show_if_it_exists(
    guarded: Guarded, granted: list[Right], name: str, code: ErrorCode
) -> None:
    response = await guarded.do(lambda raw: ask(raw, 20, 6, topics=[{"name": name}]), *granted)
    assert [(each.name, each.error_code) for each in response.responses] == [(name, code)]


@pytest.mark.parametrize(
    ("granted", "name", "code"),
    [
        ([], None, E.topic_authorization_failed),
        ([topic(Op.DESCRIBE)], "orders", E.topic_authorization_failed),
        ([topic(Op.DESCRIBE), topic(Op.DELETE)], "orders", E.none),
    ],
)
async def test_the_name_of_a_topic_deleted_by_id_needs_the_right_to_describe_it(
    guarded: Guarded, granted: list[Right], name: str | None, code: ErrorCode
) -> None:
    topic_id = guarded.broker.parts.topic_registry.get("orders").id
    wanted = [{"name": None, "topic_id": topic_id}]
    response = await guarded.do(lambda raw: ask(raw, 20, 6, topics=wanted), *granted)
    assert [(each.name, each.topic_id, each.error_code) for each in response.responses] == [
        (name, topic_id, code)
    ]


async def test_an_unknown_id_is_unknown_to_everybody(guarded: Guarded) -> None:
    wanted = [{"name": None, "topic_id": uuid.uuid4()}]
    response = await guarded.do(lambda raw: ask(raw, 20, 6, topics=wanted))
    assert [each.error_code for each in response.responses] == [E.unknown_topic_id]


async def test_a_topic_grows_with_the_right_to_alter_it(guarded: Guarded) -> None:
    def work(raw: RawClient) -> Any:
        (done,) = ask(raw, 37, 3, topics=[{"name": "orders", "count": 2, "assignments": None}]).results
        return done.error_code

    assert await guarded.do(work) is E.topic_authorization_failed
    assert await guarded.do(work, topic(Op.ALTER)) is E.none


async def test_records_are_deleted_with_the_right_to_delete_from_the_topic(guarded: Guarded) -> None:
    def work(raw: RawClient) -> Any:
        topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": -1}]}]
        return ask(raw, 21, 2, topics=topics).topics[0].partitions[0].error_code

    assert await guarded.do(work) is E.topic_authorization_failed
    assert await guarded.do(work, topic(Op.DELETE)) is E.none


async def test_partitions_are_described_with_the_right_to_describe_the_topic(guarded: Guarded) -> None:
    def named(raw: RawClient) -> Any:
        return [each.error_code for each in ask(raw, 75, 0, topics=[{"name": "orders"}]).topics]

    def everything(raw: RawClient) -> Any:
        return [each.name for each in ask(raw, 75, 0).topics]

    assert await guarded.do(named) == [E.topic_authorization_failed]
    assert await guarded.do(everything) == []
    assert await guarded.do(named, topic(Op.DESCRIBE)) == [E.none]
    assert await guarded.do(everything, topic(Op.DESCRIBE)) == ["orders"]


# ── configurations ────────────────────────────────────────────────────────────────────────────────

RESOURCES = [
    (TOPIC, "orders", (R.TOPIC, "orders"), E.topic_authorization_failed, "flush.ms", "5"),
    (BROKER, "1", CLUSTER, E.cluster_authorization_failed, "log.flush.interval.ms", "5"),
    (BROKER, "", CLUSTER, E.cluster_authorization_failed, "log.flush.interval.ms", "5"),
    (BROKER_LOGGER, "1", CLUSTER, E.cluster_authorization_failed, "sparrow", "INFO"),
    (CLIENT_METRICS, "m", CLUSTER, E.cluster_authorization_failed, "interval.ms", "1000"),
    (
        GROUP,
        "g",
        (R.GROUP, "g"),
        E.group_authorization_failed,
        "consumer.session.timeout.ms",
        "50000",
    ),
]


@pytest.mark.parametrize(("type_", "name", "guard", "denied", "config", "value"), RESOURCES)
async def test_configurations_are_described_and_altered_with_their_rights(
    guarded: Guarded, type_: int, name: str, guard: Any, denied: ErrorCode, config: str, value: str
) -> None:
    def described(raw: RawClient) -> Any:
        found = describe_configs(raw, type_, name)
        return found.error_code, bool(found.configs)

    def altered(raw: RawClient) -> Any:
        return alter(raw, type_, name, (config, SET, value), validate_only=True).error_code

    def replaced(raw: RawClient) -> Any:
        return replace(raw, type_, name, {config: value}, validate_only=True).error_code

    assert await guarded.do(described) == (denied, False)
    code, _ = await guarded.do(described, (Op.DESCRIBE_CONFIGS, *guard))
    assert code is E.none
    for change in (altered, replaced):
        assert await guarded.do(change) is denied
        assert await guarded.do(change, (Op.DESCRIBE_CONFIGS, *guard)) is denied
        may = await guarded.do(change, (Op.ALTER_CONFIGS, *guard))
        assert may is (E.invalid_request if (change, type_) == (replaced, BROKER_LOGGER) else E.none)


# ── the cluster ───────────────────────────────────────────────────────────────────────────────────


def _partition(response: Any) -> Any:
    return response.results[0].partitions[0].error_code


CLUSTER_CALLS: list[tuple[int, Operation, dict[str, Any], Callable[[Any], Any]]] = [
    (34, Op.ALTER, {"dirs": [{"path": "/", "topics": [{"name": "orders", "partitions": [0]}]}]}, _partition),
    (35, Op.DESCRIBE, {"topics": None}, lambda response: response.error_code),
    (43, Op.ALTER, {"topic_partitions": None}, lambda response: response.error_code),
    (45, Op.ALTER, {"topics": []}, lambda response: response.error_code),
    (46, Op.DESCRIBE, {"topics": None}, lambda response: response.error_code),
    (55, Op.DESCRIBE, {"topics": []}, lambda response: response.error_code),
    (57, Op.ALTER, {"feature_updates": []}, lambda response: response.error_code),
    (74, Op.DESCRIBE_CONFIGS, {}, lambda response: response.error_code),
]
NEWEST = {34: 2, 35: 5, 43: 2, 45: 1, 46: 0, 55: 2, 57: 2, 74: 1}


@pytest.mark.parametrize(("key", "operation", "given", "code_of"), CLUSTER_CALLS)
async def test_cluster_operations_need_a_right_on_the_cluster(
    guarded: Guarded, key: int, operation: Operation, given: Any, code_of: Callable[[Any], Any]
) -> None:
    def work(raw: RawClient) -> Any:
        return code_of(ask(raw, key, NEWEST[key], **given))

    assert await guarded.do(work) is E.cluster_authorization_failed
    allowed = await guarded.do(work, (operation, *CLUSTER))
    assert allowed is (E.log_dir_not_found if key == 34 else E.none)


async def test_an_election_that_is_not_allowed_says_so_for_each_partition(guarded: Guarded) -> None:
    def work(raw: RawClient) -> Any:
        return ask(raw, 43, 2, topic_partitions=[{"topic": "orders", "partitions": [0]}])

    response = await guarded.do(work)
    ((result,),) = [each.partition_result for each in response.replica_election_results]
    assert result.error_code is E.cluster_authorization_failed


async def test_the_cluster_is_described_without_a_right_but_not_its_operations(guarded: Guarded) -> None:
    def work(raw: RawClient) -> Any:
        response = ask(raw, 60, 2, include_cluster_authorized_operations=True)
        return len(response.brokers), response.cluster_authorized_operations

    assert await guarded.do(work) == (1, 0)
    assert await guarded.do(work, (Op.DESCRIBE, *CLUSTER)) == (1, 1 << 8)


@pytest.mark.parametrize(
    ("version", "cluster"), [(8, 1 << 8), (9, 1 << 8), (10, 1 << 8), (11, None), (13, None)]
)
async def test_metadata_says_what_may_be_done_when_asked(
    guarded: Guarded, version: int, cluster: int | None
) -> None:
    def work(raw: RawClient) -> Any:
        return ask(
            raw,
            3,
            version,
            topics=[{"name": "orders", "topic_id": None}],
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )

    response = await guarded.do(work, (Op.DESCRIBE, *CLUSTER), topic(Op.DESCRIBE), topic(Op.READ))
    assert getattr(response, "cluster_authorized_operations", None) == cluster
    assert [each.topic_authorized_operations for each in response.topics] == [1 << 8 | 1 << 3]
    response = await guarded.do(work, topic(Op.DESCRIBE))
    assert getattr(response, "cluster_authorized_operations", 0) == 0
