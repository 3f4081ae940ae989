"""ShareFetch and ShareAcknowledge by raw requests: acquiring, settling, refusals.

The same requests were sent to Kafka 4.2.1; differences of its responses are in `docs/kafka.md`
("Differences") or noted in the test.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

import sparrow.sync
import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient
from tests.share_fetch.calls import (
    ACCEPT,
    GAP,
    NEWEST,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    Partition,
    acquired,
    base_offsets,
    batch,
    configure,
    errors,
    fill,
    offsets,
    parts,
    renewing_fetch,
    share_acknowledge,
    share_fetch,
)

OK = ErrorCode.none
NOT_ACQUIRED = ErrorCode.invalid_record_state
Make = Callable[[], Member]


@pytest.fixture
def zero(raw: RawClient, topic: str) -> Partition:
    """Return a partition with fifteen records in three batches."""
    return fill(raw, topic, [batch(5), batch(5, 5), batch(5, 10)]), 0


@pytest.fixture
def one(member: Make, topic: str, zero: Partition) -> Member:
    """Return a member that has joined."""
    made = member()
    made.join(topic)
    assert zero in made.assigned
    return made


# ── acquiring ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [1, 2])
def test_every_version_acquires_and_acknowledges(one: Member, zero: Partition, version: int) -> None:
    response = one.get([zero], version=version)
    assert acquired(response) == {0: [(0, 14, 1)]}
    assert base_offsets(parts(response)[zero].records) == [0, 5, 10]
    assert response.acquisition_lock_timeout.total_seconds() == 30
    assert errors(one.acknowledge({zero: [(0, 14, [ACCEPT])]}, version=version)) == {0: OK}
    assert acquired(one.fetch(version=version)) == {}


def test_records_of_one_member_are_invisible_to_the_others(
    one: Member, member: Make, topic: str, zero: Partition
) -> None:
    other = member()
    other.join(topic)
    assert offsets(one.get([zero], max_records=7)) == list(range(7))
    assert offsets(other.get([zero])) == list(range(7, 15))
    assert acquired(one.fetch()) == acquired(other.fetch()) == {}


@pytest.mark.parametrize("mode", [0, 1])
def test_no_more_is_acquired_than_asked_for(one: Member, zero: Partition, mode: int) -> None:
    """Kafka does so only in the mode with a record limit."""
    taken = [offsets(one.get([zero], max_records=4, share_acquire_mode=mode)) for _ in range(4)]
    assert taken == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14]]


def test_a_fetch_has_bytes_of_the_records_that_it_acquired(one: Member, zero: Partition) -> None:
    for _ in range(3):
        response = one.get([zero], max_bytes=1)
        first, last = offsets(response)[0], offsets(response)[-1]
        assert base_offsets(parts(response)[zero].records) == [first // 5 * 5]
        assert last // 5 == first // 5


@pytest.mark.parametrize("nothing", ["max_records", "max_bytes", "min_bytes"])
def test_a_fetch_that_wants_nothing_does_not_wait(one: Member, zero: Partition, nothing: str) -> None:
    one.get([zero])
    assert acquired(one.fetch(wait_ms=10**6, **{nothing: 0})) == {}


def test_a_fetch_waits_for_a_record_and_no_longer(
    one: Member, raw: RawClient, topic: str, zero: Partition
) -> None:
    one.get([zero])
    publishing = threading.Timer(0.1, fill, [raw, topic, [batch(2, 15)]])
    publishing.start()
    assert acquired(one.fetch(wait_ms=10**6)) == {0: [(15, 16, 1)]}
    publishing.join()


def test_a_fetch_wakes_when_another_member_releases(
    one: Member, member: Make, topic: str, zero: Partition
) -> None:
    other = member()
    other.join(topic)
    one.get([zero])
    releasing = threading.Timer(0.1, one.acknowledge, [{zero: [(3, 4, [RELEASE])]}])
    releasing.start()
    assert acquired(other.fetch([zero], wait_ms=10**6)) == {0: [(3, 4, 2)]}
    releasing.join()


def test_a_fetch_ends_when_the_broker_stops(topic: str) -> None:
    with sparrow.testing.broker() as running, RawClient(running.kafka) as raw:
        member = Member(running.kafka, "group")
        member.raw.socket.settimeout(60)
        zero = (fill(raw, topic, []), 0)
        member.join(topic)
        member.fetch([zero])
        stopping = threading.Timer(0.2, running.stop)
        stopping.start()
        assert acquired(member.fetch(wait_ms=10**7)) == {}
        stopping.join()
        member.close()


def test_members_of_different_groups_get_every_record(
    one: Member, broker: RunningBroker, raw: RawClient, topic: str, zero: Partition
) -> None:
    name = f"other-{uuid.uuid4().hex}"
    configure(raw, name, {"share.auto.offset.reset": "earliest"})
    other = Member(broker.kafka, name)
    other.join(topic)
    assert offsets(other.get([zero])) == offsets(one.get([zero])) == list(range(15))
    other.close()


def test_a_group_begins_at_the_end_unless_it_says_otherwise(
    broker: RunningBroker, raw: RawClient, topic: str, zero: Partition
) -> None:
    late = Member(broker.kafka, f"late-{uuid.uuid4().hex}")
    late.join(topic)
    assert acquired(late.fetch([zero])) == {}
    fill(raw, topic, [batch(1, 15)])
    assert acquired(late.get()) == {0: [(15, 15, 1)]}
    late.close()


def test_several_partitions_are_fetched_together(raw: RawClient, member: Make, topic: str) -> None:
    for number in range(3):
        topic_id = fill(raw, topic, [batch(3)], number)
    made = member()
    made.join(topic, partitions=3)
    response = made.get([(topic_id, number) for number in range(3)])
    assert acquired(response) == {number: [(0, 2, 1)] for number in range(3)}


def test_only_partitions_of_the_session_are_acquired(raw: RawClient, member: Make, topic: str) -> None:
    for number in range(2):
        topic_id = fill(raw, topic, [batch(3)], number)
    made = member()
    made.join(topic, partitions=2)
    assert acquired(made.get([(topic_id, 1)])) == {1: [(0, 2, 1)]}
    assert acquired(made.fetch(wait_ms=50)) == {}
    assert acquired(made.get([(topic_id, 0)], forgotten=[(topic_id, 1)])) == {0: [(0, 2, 1)]}
    fill(raw, topic, [batch(1)], 1)
    assert acquired(made.fetch(wait_ms=50)) == {}


# ── what becomes of records ───────────────────────────────────────────────────────────────────────


def test_each_type_of_acknowledgement_has_its_effect(one: Member, zero: Partition) -> None:
    one.get([zero])
    types = [ACCEPT, RELEASE, REJECT, GAP, RELEASE]
    assert errors(one.acknowledge({zero: [(0, 4, types), (5, 14, [ACCEPT])]})) == {0: OK}
    assert acquired(one.get()) == {0: [(1, 1, 2), (4, 4, 2)]}


def test_acknowledgements_come_with_a_fetch_too(one: Member, zero: Partition) -> None:
    one.get([zero])
    response = one.fetch({zero: [(0, 9, [ACCEPT]), (10, 14, [RELEASE])]}, wait_ms=500)
    assert errors(response) == {0: OK}
    assert acquired(response) == {0: [(10, 14, 2)]}


def test_a_record_that_is_always_released_is_delivered_as_often_as_the_limit_says_and_never_again(
    one: Member, zero: Partition
) -> None:
    counts = []
    response = one.get([zero], max_records=1)
    while acquired(response):
        counts.append(acquired(response)[0])
        one.acknowledge({zero: [(0, 0, [RELEASE])]})
        response = one.fetch(max_records=1, wait_ms=0)
        if offsets(response) == [1]:
            break
    assert counts == [[(0, 0, count)] for count in range(1, 6)]


def test_the_delivery_limit_is_the_groups(raw: RawClient, one: Member, group: str, zero: Partition) -> None:
    configure(raw, group, {"share.delivery.count.limit": "2"})
    for count in (1, 2):
        assert acquired(one.get([zero])) == {0: [(0, 14, count)]}
        one.acknowledge({zero: [(0, 14, [RELEASE])]})
    assert acquired(one.fetch(wait_ms=50)) == {}


def test_records_come_to_others_when_their_time_is_over(
    raw: RawClient, member: Make, group: str, topic: str, zero: Partition
) -> None:
    configure(raw, group, {"share.record.lock.duration.ms": "1000"})
    slow, quick = member(), member()
    slow.join(topic)
    quick.join(topic)
    response = slow.get([zero])
    assert response.acquisition_lock_timeout.total_seconds() == 1
    configure(raw, group, {"share.record.lock.duration.ms": "60000"})
    assert acquired(quick.get([zero])) == {0: [(0, 14, 2)]}
    assert errors(slow.acknowledge({zero: [(0, 14, [ACCEPT])]})) == {0: NOT_ACQUIRED}
    assert errors(quick.acknowledge({zero: [(0, 14, [ACCEPT])]})) == {0: OK}


def test_renewed_records_stay_with_their_member(
    raw: RawClient, member: Make, group: str, topic: str, zero: Partition
) -> None:
    configure(raw, group, {"share.record.lock.duration.ms": "1500"})
    one = member()
    one.join(topic)
    one.get([zero])
    configure(raw, group, {"share.record.lock.duration.ms": "60000"})
    renewed = one.acknowledge({zero: [(0, 9, [RENEW])]}, is_renew_ack=True)
    assert (errors(renewed), renewed.acquisition_lock_timeout.total_seconds()) == ({0: OK}, 60)
    assert acquired(one.get()) == {0: [(10, 14, 2)]}
    assert errors(one.acknowledge({zero: [(0, 9, [ACCEPT])]})) == {0: OK}


def test_a_fetch_may_renew_and_then_fetches_nothing(one: Member, zero: Partition) -> None:
    one.get([zero], max_records=5)
    response = one.raw.call(
        renewing_fetch(one.group, one.id, one.epoch, {zero: [(0, 3, [RENEW]), (4, 4, [ACCEPT])]})
    )
    assert (response.error_code, errors(response), acquired(response)) == (OK, {0: OK}, {})
    one.epoch += 1
    assert offsets(one.get()) == list(range(5, 15))


def test_renewals_are_refused_where_the_group_has_them_off(
    raw: RawClient, one: Member, group: str, zero: Partition
) -> None:
    """(KIP-1222, share.renew.acknowledge.enable)"""
    configure(raw, group, {"share.renew.acknowledge.enable": "false"})
    one.get([zero])
    refused = one.acknowledge({zero: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert errors(refused) == {0: ErrorCode.invalid_request}


# ── what is refused ───────────────────────────────────────────────────────────────────────────────


def test_unacquired_records_cannot_be_acknowledged(
    one: Member, member: Make, topic: str, zero: Partition
) -> None:
    other = member()
    other.join(topic)
    one.get([zero], max_records=5)
    other.fetch([zero], max_records=5)
    for wrong in [(5, 9), (10, 10), (4, 5), (100, 200)]:
        assert errors(one.acknowledge({zero: [(*wrong, [ACCEPT])]})) == {0: NOT_ACQUIRED}
    assert errors(other.acknowledge({zero: [(5, 9, [ACCEPT])]})) == {0: OK}


def test_acknowledged_records_cannot_be_acknowledged_again(one: Member, zero: Partition) -> None:
    """Kafka accepts it silently if everything before it is finished, too."""
    one.get([zero])
    for expected in (OK, NOT_ACQUIRED):
        assert errors(one.acknowledge({zero: [(0, 3, [ACCEPT]), (8, 8, [ACCEPT])]})) == {0: expected}


def test_the_acknowledgements_of_a_partition_hold_together(one: Member, zero: Partition) -> None:
    one.get([zero])
    assert errors(one.acknowledge({zero: [(0, 4, [ACCEPT]), (90, 99, [ACCEPT])]})) == {0: NOT_ACQUIRED}
    assert errors(one.acknowledge({zero: [(0, 4, [ACCEPT])]})) == {0: OK}


def test_partitions_fail_by_themselves(one: Member, topic: str, zero: Partition) -> None:
    one.get([zero])
    nowhere = (uuid.uuid4(), 1)
    response = one.acknowledge(
        {nowhere: [(0, 0, [ACCEPT])], (zero[0], 9): [(0, 0, [ACCEPT])], zero: [(0, 0, [ACCEPT])]}
    )
    assert {key: each.error_code for key, each in parts(response).items()} == {
        nowhere: ErrorCode.unknown_topic_id,
        (zero[0], 9): ErrorCode.unknown_topic_or_partition,
        zero: OK,
    }


@pytest.mark.parametrize(
    "batches",
    [
        [(5, 3, [ACCEPT])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 2, [])],
        [(0, 2, [9])],
        [(0, 2, [-1])],
        [(0, 2, [RENEW])],
        [(0, 2, [ACCEPT]), (2, 3, [ACCEPT])],
        [(4, 4, [ACCEPT]), (0, 1, [ACCEPT])],
    ],
    ids=str,
)
def test_malformed_batches_are_refused_and_do_nothing(
    one: Member, zero: Partition, batches: list[tuple[int, int, list[int]]]
) -> None:
    one.get([zero])
    assert errors(one.acknowledge({zero: batches})) == {0: ErrorCode.invalid_request}
    assert errors(one.fetch({zero: batches})) == {0: ErrorCode.invalid_request}
    assert errors(one.acknowledge({zero: [(0, 14, [ACCEPT])]})) == {0: OK}


def test_version_1_knows_no_renewals(one: Member, zero: Partition) -> None:
    one.get([zero])
    refused = one.acknowledge({zero: [(0, 0, [RENEW])]}, version=1)
    assert errors(refused) == {0: ErrorCode.invalid_request}


def test_an_error_of_a_partition_is_reported_and_the_others_are_fetched(one: Member, zero: Partition) -> None:
    nowhere = (uuid.uuid4(), 0)
    response = one.get([zero, nowhere, (zero[0], 9)])
    assert {key: each.error_code for key, each in parts(response).items()} == {
        zero: OK,
        nowhere: ErrorCode.unknown_topic_id,
        (zero[0], 9): ErrorCode.unknown_topic_or_partition,
    }
    assert offsets(response) == list(range(15))


def test_a_group_without_members_has_nothing_to_fetch(broker: RunningBroker, zero: Partition) -> None:
    """Kafka responds at the end of the wait, too, but without an error."""
    stranger = Member(broker.kafka, f"nobody-{uuid.uuid4().hex}")
    response = stranger.fetch([zero], wait_ms=50)
    assert (response.error_code, response.responses) == (ErrorCode.group_id_not_found, ())
    stranger.close()


@pytest.mark.parametrize("member_id", ["", "x" * 37, None])
def test_a_member_id_is_no_longer_than_a_uuid(raw: RawClient, group: str, member_id: str | None) -> None:
    fetched = raw.call(share_fetch(group, member_id or "", 0))
    acknowledged = raw.call(share_acknowledge(group, member_id or "", 1, {}))
    assert fetched.error_code is acknowledged.error_code is ErrorCode.invalid_request


def test_a_group_has_a_name(raw: RawClient) -> None:
    for name in ("", None):
        assert raw.call(share_fetch(name, "member", 0)).error_code is ErrorCode.invalid_group_id  # type: ignore[arg-type]


def test_there_are_two_acquire_modes(one: Member, zero: Partition) -> None:
    assert one.fetch([zero], share_acquire_mode=2).error_code is ErrorCode.invalid_request


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────


def test_a_session_counts_its_requests(one: Member, zero: Partition) -> None:
    one.fetch([zero])
    for wrong in (one.epoch - 1 or 7, one.epoch + 1):
        assert (
            one.raw.call(share_fetch(one.group, one.id, wrong)).error_code
            is ErrorCode.invalid_share_session_epoch
        )
        refused = one.raw.call(share_acknowledge(one.group, one.id, wrong, {}))
        assert refused.error_code is ErrorCode.invalid_share_session_epoch
    assert one.fetch().error_code is OK
    assert one.acknowledge({}).error_code is OK
    assert one.fetch().error_code is OK


def test_only_a_fetch_opens_a_session(one: Member, zero: Partition) -> None:
    for epoch, code in [
        (0, ErrorCode.invalid_share_session_epoch),
        (1, ErrorCode.share_session_not_found),
        (-1, ErrorCode.share_session_not_found),
    ]:
        assert one.raw.call(share_acknowledge(one.group, one.id, epoch, {})).error_code is code
    assert one.raw.call(share_fetch(one.group, one.id, 1)).error_code is ErrorCode.share_session_not_found
    assert one.raw.call(share_fetch(one.group, one.id, -1)).error_code is ErrorCode.share_session_not_found


def test_a_session_does_not_begin_with_acknowledgements(one: Member, zero: Partition) -> None:
    refused = one.fetch({zero: [(0, 0, [ACCEPT])]})
    assert refused.error_code is ErrorCode.invalid_request


def test_a_fetch_that_renews_must_ask_for_nothing(one: Member, zero: Partition) -> None:
    one.get([zero])
    refused = one.fetch({zero: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert refused.error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("closing", [share_fetch, share_acknowledge])
def test_closing_a_session_releases_records_of_its_member(
    one: Member, zero: Partition, closing: Callable[..., object]
) -> None:
    one.get([zero])
    response = one.raw.call(closing(one.group, one.id, -1, {zero: [(0, 9, [ACCEPT])]}))
    assert (response.error_code, errors(response)) == (OK, {0: OK})
    one.epoch = 0
    assert acquired(one.get([zero])) == {0: [(10, 14, 2)]}


def test_a_lost_connection_releases_its_records_and_the_delivery_counts(
    broker: RunningBroker, member: Make, group: str, topic: str, zero: Partition
) -> None:
    for count in range(1, 6):
        dying = Member(broker.kafka, group)
        dying.join(topic)
        assert acquired(dying.get([zero], max_records=3)) == {0: [(0, 2, count)]}
        dying.die()
    survivor = member()
    survivor.join(topic)
    assert offsets(survivor.get([zero])) == list(range(3, 15))


def test_a_lost_connection_ends_a_fetch_that_waits(
    broker: RunningBroker, one: Member, member: Make, topic: str, zero: Partition
) -> None:
    one.get([zero])
    waiting = member()
    waiting.join(topic)
    waiting.fetch([zero])
    waiting.raw.send(share_fetch(waiting.group, waiting.id, waiting.epoch, wait_ms=10**7))
    time.sleep(0.1)
    waiting.die()
    with sparrow.sync.connect(broker.url) as client:
        while len(client.queue(one.group).statistics().consumers) > 1:
            time.sleep(0.01)
    one.acknowledge({zero: [(0, 14, [RELEASE])]})
    assert acquired(one.get()) == {0: [(0, 14, 2)]}


def test_a_session_that_is_opened_again_keeps_its_records(one: Member, zero: Partition) -> None:
    one.get([zero], max_records=5)
    one.epoch = 0
    assert offsets(one.get([zero], max_records=5)) == [5, 6, 7, 8, 9]
    assert errors(one.acknowledge({zero: [(0, 9, [ACCEPT])]})) == {0: OK}


def test_a_session_may_move_to_another_connection(
    broker: RunningBroker, one: Member, zero: Partition
) -> None:
    one.get([zero], max_records=5)
    before, one.raw = one.raw, RawClient(broker.kafka)
    one.epoch = 0
    assert offsets(one.get([zero], max_records=5)) == [5, 6, 7, 8, 9]
    before.socket.close()
    time.sleep(0.1)
    assert errors(one.acknowledge({zero: [(0, 9, [ACCEPT])]})) == {0: OK}
    one.raw.socket.close()


# ── what survives ─────────────────────────────────────────────────────────────────────────────────


def test_acknowledged_records_stay_so_and_the_others_come_again_after_a_restart(topic: str) -> None:
    with sparrow.testing.broker() as running:
        with RawClient(running.kafka) as raw:
            configure(raw, "g", {"share.auto.offset.reset": "earliest"})
            zero = (fill(raw, topic, [batch(10)]), 0)
            one = Member(running.kafka, "g")
            one.join(topic)
            one.get([zero])
            one.acknowledge({zero: [(0, 3, [ACCEPT]), (6, 6, [REJECT])]})
            running.restart()
            one.die()
        other = Member(running.kafka, "g")
        other.join(topic)
        assert acquired(other.get([zero])) == {0: [(4, 5, 2), (7, 9, 2)]}
        other.close()


@pytest.mark.slow
def test_a_broker_that_was_killed_knows_the_leases(topic: str) -> None:
    with sparrow.testing.broker(process=True) as running:
        with RawClient(running.kafka) as raw:
            configure(
                raw, "g", {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "600000"}
            )
            zero = (fill(raw, topic, [batch(10)]), 0)
            one = Member(running.kafka, "g")
            one.join(topic)
            one.get([zero])
            one.acknowledge({zero: [(0, 3, [ACCEPT])]})
            running.kill()
            one.die()
            running.restart()
        again, other = Member(running.kafka, "g", one.id), Member(running.kafka, "g")
        for each in (again, other):
            each.join(topic)
            assert acquired(each.fetch([zero], wait_ms=20)) == {}
        assert errors(again.acknowledge({zero: [(4, 5, [ACCEPT]), (6, 9, [RELEASE])]})) == {0: OK}
        assert acquired(other.get()) == {0: [(6, 9, 2)]}
        again.close()
        other.close()


def test_the_newest_version_is_tried_in_these_tests() -> None:
    from sparrow.frontends.kafka.apis import APIS

    assert APIS[78].last == APIS[79].last == NEWEST
