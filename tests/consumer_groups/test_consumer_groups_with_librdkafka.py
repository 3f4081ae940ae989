"""Groups of the new protocol with librdkafka's consumers against a real broker."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.consumer_groups.clients import DEADLINE_S, Cluster, poll_until, shares, values_of

pytestmark = pytest.mark.slow


def numbers(count: int, begin: int = 0) -> set[bytes]:
    return {str(number).encode() for number in range(begin, count)}


def test_three_members_that_join_at_once_share_the_topic_and_read_all_of_it_once(
    cluster: Cluster, name: str
) -> None:
    cluster.make_topic(name, 6)
    readers = [cluster.reader(name, name) for _ in range(3)]
    poll_until(readers, lambda: shares(readers) == [2, 2, 2])
    cluster.fill(name, 6, range(300))
    poll_until(readers, lambda: len(values_of(readers)) == 300)
    assert values_of(readers).most_common(1)[0][1] == 1
    assert not [error for reader in readers for error in reader.errors]


def test_group_is_described_and_listed_with_its_kind(cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 2)
    readers = [cluster.reader(name, name, **{"client.id": "me", "client.rack": "r1"})]
    poll_until(readers, lambda: shares(readers) == [2])
    group = cluster.admin.describe_consumer_groups([name])[name].result(DEADLINE_S)
    assert (group.state, group.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    (member,) = group.members
    assert (member.client_id, member.host) == ("me", "/127.0.0.1")
    for assignment in (member.assignment, member.target_assignment):
        assert {(p.topic, p.partition) for p in assignment.topic_partitions} == {(name, 0), (name, 1)}
    listed = cluster.admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(DEADLINE_S)
    assert name in {each.group_id for each in listed.valid}


def test_partitions_of_a_member_that_leaves_are_read_on_from_its_last_commit(
    cluster: Cluster, name: str
) -> None:
    cluster.make_topic(name, 4, records=100)
    first, second = (cluster.reader(name, name) for _ in range(2))
    poll_until(
        [first, second], lambda: shares([first, second]) == [2, 2] and len(values_of([first, second])) == 100
    )
    first.close()
    cluster.fill(name, 4, range(100, 200))
    poll_until([second], lambda: values_of([first, second]).keys() >= numbers(200))
    assert values_of([first, second]).most_common(1)[0][1] == 1


def test_static_member_comes_back_to_its_partitions_without_a_rebalance(cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 4)
    static = cluster.reader(name, name, **{"group.instance.id": "one"})
    other = cluster.reader(name, name)
    poll_until([static, other], lambda: shares([static, other]) == [2, 2])
    held = static.partitions
    kept = other.partitions
    static.close()
    again = cluster.reader(name, name, **{"group.instance.id": "one"})
    poll_until([again, other], lambda: again.partitions == held)
    assert other.partitions == kept


def test_two_members_with_one_instance_id_do_not_share_a_group(cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 2)
    first = cluster.reader(name, name, **{"group.instance.id": "one"})
    poll_until([first], lambda: shares([first]) == [2])
    second = cluster.reader(name, name, **{"group.instance.id": "one"})
    poll_until([first, second], lambda: bool(second.errors))
    assert "UNRELEASED" in second.errors[0].name() or "FATAL" in second.errors[0].name()
    assert len(first.partitions) == 2


def test_regular_expression_follows_topics_as_they_come(cluster: Cluster, name: str) -> None:
    cluster.make_topic(f"{name}-a", 1)
    reader = cluster.reader(name, f"^{name}-.*")
    poll_until([reader], lambda: reader.partitions == {(f"{name}-a", 0)})
    cluster.make_topic(f"{name}-b", 1)
    cluster.make_topic(f"x{name}-c", 1)
    poll_until([reader], lambda: reader.partitions == {(f"{name}-a", 0), (f"{name}-b", 0)})


def test_topic_that_grows_is_shared_again(cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 2)
    readers = [cluster.reader(name, name) for _ in range(2)]
    poll_until(readers, lambda: shares(readers) == [1, 1])
    cluster.admin.create_partitions([NewPartitions(name, 6)])[name].result(DEADLINE_S)
    poll_until(readers, lambda: shares(readers) == [3, 3])


def test_range_assignor_is_used_when_the_members_ask_for_it(cluster: Cluster, name: str) -> None:
    topics = [f"{name}-a", f"{name}-b"]
    for topic in topics:
        cluster.make_topic(topic, 2)
    readers = [cluster.reader(name, *topics, **{"group.remote.assignor": "range"}) for _ in range(2)]
    poll_until(readers, lambda: shares(readers) == [2, 2])
    for reader in readers:
        assert len({number for _, number in reader.partitions}) == 1


def test_offsets_of_another_epoch_are_refused(cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 2, records=10)
    reader = cluster.reader(name, name)
    poll_until([reader], lambda: len(reader.values) == 10)
    committed = reader.consumer.commit(asynchronous=False)
    assert committed is not None
    assert {each.offset for each in committed} == {5}
    assert {each.offset for each in reader.consumer.committed(committed, timeout=DEADLINE_S)} == {5}


def test_group_sets_its_own_heartbeat_interval(cluster: Cluster, name: str) -> None:
    resource = ConfigResource(
        ResourceType.GROUP,
        name,
        incremental_configs=[
            ConfigEntry("consumer.heartbeat.interval.ms", "70", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    cluster.admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    asked = ConfigResource(ResourceType.GROUP, name)
    described = cluster.admin.describe_configs([asked])[asked].result(DEADLINE_S)
    assert described["consumer.heartbeat.interval.ms"].value == "70"
    assert described["consumer.session.timeout.ms"].value == "45000"


def test_nothing_is_lost_while_members_come_and_go(cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 6)
    first = cluster.reader(name, name)
    everybody, running = [first], [first]
    for round_number in range(4):
        cluster.fill(name, 6, range(round_number * 200, round_number * 200 + 200))
        running.append(cluster.reader(name, name))
        everybody.append(running[-1])
        poll_until(running, lambda: bool(running[-1].partitions))
        if round_number % 2:
            running.pop(0).close()
    poll_until(running, lambda: values_of(everybody).keys() >= numbers(800))


# ── from one protocol to the other ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_group_changes_its_protocol_member_by_member_and_back(
    cluster: Cluster, name: str, strategy: str
) -> None:
    cluster.make_topic(name, 4)
    classic = [
        cluster.classic_reader(name, name, **{"partition.assignment.strategy": strategy}) for _ in range(2)
    ]
    poll_until(classic, lambda: shares(classic) == [2, 2])
    modern = cluster.reader(name, name)
    everybody = [*classic, modern]
    poll_until(everybody, lambda: shares(everybody) == [1, 1, 2])
    kind = cluster.admin.describe_consumer_groups([name])[name].result(DEADLINE_S).type
    assert kind is ConsumerGroupType.CONSUMER
    cluster.fill(name, 4, range(100))
    poll_until(everybody, lambda: values_of(everybody).keys() >= numbers(100))

    modern.close()
    poll_until(classic, lambda: shares(classic) == [2, 2])
    kind = cluster.admin.describe_consumer_groups([name])[name].result(DEADLINE_S).type
    assert kind is ConsumerGroupType.CLASSIC
    cluster.fill(name, 4, range(100, 200))
    poll_until(classic, lambda: values_of(everybody).keys() >= numbers(200))


def test_members_of_two_clients_and_two_protocols_share_a_group(cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 6, records=60)
    readers = [
        cluster.python_reader(name, name),
        cluster.classic_reader(name, name, **{"partition.assignment.strategy": "range,roundrobin"}),
        cluster.reader(name, name),
    ]
    poll_until(readers, lambda: shares(readers) == [2, 2, 2])
    cluster.fill(name, 6, range(60, 120))
    poll_until(readers, lambda: values_of(readers).keys() >= numbers(120))
    assert cluster.member_count(name) == 3


def test_empty_group_of_either_protocol_takes_members_of_the_other(cluster: Cluster, name: str) -> None:
    cluster.make_topic(name, 2, records=10)
    expected = 10
    for make in (cluster.classic_reader, cluster.reader, cluster.classic_reader):
        reader = make(name, name)
        poll_until([reader], lambda r=reader: len(r.values) == 10)  # type: ignore[misc]
        reader.close()
        cluster.fill(name, 2, range(expected, expected + 10))
        expected += 10


# ── a broker that dies ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def mortal() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(
        process=True, group_heartbeat_interval_ms=100, group_session_timeout_ms=1_000
    ) as running:
        yield running


def test_members_go_on_after_the_broker_was_killed(mortal: RunningBroker, name: str) -> None:
    with Cluster(mortal.kafka) as cluster:
        cluster.make_topic(name, 4, records=100)
        readers = [cluster.reader(name, name) for _ in range(2)]
        poll_until(readers, lambda: shares(readers) == [2, 2] and len(values_of(readers)) == 100)
        held = [reader.partitions for reader in readers]
        before = cluster.admin.describe_consumer_groups([name])[name].result(DEADLINE_S)
        mortal.kill()
        mortal.restart()
        cluster.fill(name, 4, range(100, 200))
        poll_until(readers, lambda: values_of(readers).keys() >= numbers(200))
        assert [reader.partitions for reader in readers] == held
        # librdkafka's administrator does not find a coordinator again that it lost; another one
        # does.
        with Cluster(mortal.kafka) as later:
            after = later.admin.describe_consumer_groups([name])[name].result(DEADLINE_S)
        assert {m.member_id for m in after.members} == {m.member_id for m in before.members}
        assert not [error for reader in readers for error in reader.errors if not error.retriable()]


def test_records_of_killed_members_are_read_by_the_others(mortal: RunningBroker, name: str) -> None:
    with Cluster(mortal.kafka) as cluster:
        cluster.make_topic(name, 6)
        readers = [cluster.reader(name, name) for _ in range(2)]
        killed = [start_process(mortal.kafka, name) for _ in range(2)]
        poll_until(readers, lambda: cluster.member_count(name) == 4 and sum(shares(readers)) < 5)
        cluster.fill(name, 6, range(300))
        for process in killed:
            process.kill()
        cluster.fill(name, 6, range(300, 600))
        poll_until(readers, lambda: shares(readers) == [3, 3])
        read_elsewhere: set[bytes] = set()
        for process in killed:
            output, _ = process.communicate()
            read_elsewhere.update(output.split())
        poll_until(readers, lambda: values_of(readers).keys() | read_elsewhere >= numbers(600))


def start_process(servers: str, group: str) -> subprocess.Popen[bytes]:
    """Start a member in another process that prints what it reads."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.consumer_groups.member", servers, group], stdout=subprocess.PIPE
    )
