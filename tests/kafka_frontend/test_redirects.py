"""The refusals of a standby: every API in every version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparrow.frontends.kafka.apis import APIS
from sparrow.frontends.kafka.codec.responses import write_response
from sparrow.frontends.kafka.codec.schema import request_class, wire_fields
from sparrow.frontends.kafka.handlers import standby
from sparrow.frontends.kafka.redirects import refuse

END = frozenset({27, 30, 31, 33, 34, 44, 49, 51, 55})
"""Requests to any broker, and those that have no room for an error: the connection ends."""


def request_of(kind: Any) -> SimpleNamespace:
    """Return a request with one element in each array, and defaults."""
    values: dict[str, Any] = {}
    for field in wire_fields(kind):
        values[field.name] = field.default
        if field.is_array and field.entity is not None:
            values[field.name] = (request_of(field.entity),)
        elif field.is_array:
            values[field.name] = ("named",) if field.kind == "string" else (3,)
    return SimpleNamespace(**values)


class Asked:
    """A call at a standby whose owner is node 2."""

    def __init__(self, key: int, version: int, leader_id: int = 2) -> None:
        self.header = SimpleNamespace(api_key=key)
        self.version = version
        self.is_ended = False
        self.connection = SimpleNamespace(finish=self._end)
        self.broker = SimpleNamespace(leader_epoch=4)
        self.frontend = SimpleNamespace(leader_id=leader_id, advertised=lambda _: ("owner", 9092))

    def _end(self) -> None:
        self.is_ended = True


def refused(key: int, version: int, leader_id: int = 2, **values: object) -> tuple[Any, Asked]:
    call = Asked(key, version, leader_id)
    request = request_of(request_class(key, version))
    request.__dict__.update(values)
    return refuse(request, call), call  # type: ignore[arg-type]  # the part of a call that is used


def codes(found: Any) -> set[int]:
    """Return all error codes of a response."""
    values = {each.name: getattr(found, each.name) for each in wire_fields(type(found))}
    own = {int(value) for name, value in values.items() if name.endswith("error_code")}
    arrays = [value for value in values.values() if isinstance(value, tuple)]
    return own.union(*(codes(each) for array in arrays for each in array if not isinstance(each, (int, str))))


@pytest.mark.parametrize("key", sorted(APIS.keys() - standby._AS_ON_THE_OWNER - {3, 10}))
def test_every_version_is_refused_in_its_own_form_or_ends_the_connection(key: int) -> None:
    for version in range(APIS[key].first, APIS[key].last + 1):
        found, call = refused(key, version, transactional_id="t", acks=1)
        assert call.is_ended is (found is None)
        if found is None:
            assert key in END or (key, version) in {(9, 1), (43, 0)}
        else:
            assert write_response(key, version, 1, found)
            assert key in (16, 35, 66) or codes(found) - {0}, "it says why"


def test_partitions_come_back_with_the_leader() -> None:
    found, _ = refused(0, 13, acks=-1)
    (topic,) = found.responses
    (partition,) = topic.partition_responses
    assert partition.error_code is ErrorCode.not_leader_or_follower
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 4)
    assert [(each.node_id, each.host, each.port) for each in found.node_endpoints] == [(2, "owner", 9092)]
    found, _ = refused(1, 16)
    assert found.responses[0].partitions[0].current_leader.leader_id == 2
    found, _ = refused(1, 16, leader_id=-1)
    assert found.responses[0].partitions[0].current_leader.leader_id == -1
    assert found.node_endpoints == ()


def test_sessions_of_fetches_begin_again() -> None:
    """Their requests need not name a partition, so no partition could have the error."""
    assert refused(1, 18, session_id=7, topics=())[0].error_code is ErrorCode.fetch_session_id_not_found
    assert refused(78, 2, share_session_epoch=1)[0].error_code is ErrorCode.share_session_not_found


def test_a_produce_without_a_response_and_a_producer_id_end_the_connection() -> None:
    assert refused(0, 13, acks=0)[1].is_ended
    assert refused(22, 5, transactional_id=None)[1].is_ended
    assert refused(22, 5, transactional_id="t")[0].error_code is ErrorCode.not_coordinator
    found, _ = refused(22, 5, leader_id=-1, transactional_id="t")
    assert found.error_code is ErrorCode.coordinator_not_available
