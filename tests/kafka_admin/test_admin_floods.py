"""Floods and long work: limited, and refused with the protocol's own errors."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

import sparrow.testing
from sparrow.frontends.kafka.deadlines import outcomes
from tests.kafka_admin.messages import ask, create, make, new_topic
from tests.kafka_admin.test_admin_topics import grow
from tests.kafka_frontend.raw import RawClient
from tests.kafka_frontend.requests import metadata

E = ErrorCode


def test_new_topics_are_refused_above_the_limit_of_partitions_and_old_ones_stay(topic: str) -> None:
    with sparrow.testing.broker(max_partitions=20, default_partitions=4) as broker:
        with RawClient(broker.kafka) as raw:
            made = create(raw, *(new_topic(f"{topic}-{index}", 3) for index in range(5)))
            assert {each.error_code for each in made} == {E.none}
            asked = raw.call(metadata(13, *(f"{topic}-auto-{index}" for index in range(100)))).topics
            assert [each.error_code for each in asked] == [E.none] + [E.policy_violation] * 99
            (refused,) = create(raw, new_topic(f"{topic}-more", 2))
            assert refused.error_code is E.policy_violation
            assert "max_partitions" in refused.error_message
            assert grow(raw, f"{topic}-0", 5).error_code is E.policy_violation
            assert len(raw.call(metadata(13, f"{topic}-0")).topics[0].partitions) == 3
        broker.restart()
        with RawClient(broker.kafka) as raw:
            (refused,) = create(raw, new_topic(f"{topic}-more", 2))
            assert refused.error_code is E.policy_violation
            make(raw, f"{topic}-last", 1)


def test_many_topics_are_made_by_one_request(raw: RawClient, topic: str) -> None:
    made = create(raw, *(new_topic(f"{topic}-{index}") for index in range(120)))
    assert [each.name for each in made] == [f"{topic}-{index}" for index in range(120)]
    assert {each.error_code for each in made} == {E.none}


async def _forever(begun: list[int], number: int) -> None:
    begun.append(number)
    await asyncio.Event().wait()


async def test_operations_that_take_too_long_are_answered_with_a_timeout() -> None:
    begun: list[int] = []
    works: list[Any] = [_forever(begun, number) for number in range(120)]
    found = await outcomes(timedelta(), works)
    assert {outcome.code for outcome in found} == {E.request_timed_out}
    assert len(found) == 120
    assert len(begun) < 120


def test_a_resource_that_is_named_many_times_is_described_once(raw: RawClient, topic: str) -> None:
    make(raw, topic)
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
    (found,) = ask(raw, 32, 4, resources=[resource] * 5000).results
    assert found.error_code is E.none


def test_many_resources_are_described_by_one_request(raw: RawClient, topic: str) -> None:
    names = [f"{topic}-{index}" for index in range(70)]
    create(raw, *map(new_topic, names))
    resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]
    found = ask(raw, 32, 4, resources=resources, include_synonyms=True, include_documentation=True).results
    assert [each.resource_name for each in found] == names
    assert all(len(each.configs) > 30 for each in found)


def test_a_response_has_a_limit(raw: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparrow.frontends.kafka.handlers import configs

    monkeypatch.setattr(configs, "MAX_CONFIGS", 10)
    make(raw, topic)
    names = [topic, f"{topic}-none"]
    resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]
    found = ask(raw, 32, 4, resources=resources).results
    assert [each.error_code for each in found] == [E.none, E.policy_violation]
