"""Rights to acquire and acknowledge records of a share group: READ on the group, and READ on each
topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

import sparrow.sync
import sparrow.testing
from sparrow.client.results import AccessRule
from sparrow.testing.running_broker import RunningBroker
from tests.acls.logins import TOKENS, logged_in
from tests.share_fetch.calls import (
    ACCEPT,
    Member,
    Partition,
    acquired,
    batch,
    configure,
    errors,
    fill,
    parts,
    share_acknowledge,
    share_fetch,
)

GROUP, OPEN, SECRET = "readers", "open-topic", "secret-topic"
DENIED = ErrorCode.topic_authorization_failed


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningBroker]:
    """Start a broker where alice and writer may read in the group and one of two topics."""
    options: Any = {"tokens": TOKENS, "super_users": "root", "acl_default": "deny", "default_partitions": 1}
    with sparrow.testing.broker(**options) as broker:
        with sparrow.sync.connect(broker.url, token=TOKENS["root"]) as root:
            root.admin.create_access_rules(
                AccessRule(kind, name, f"User:{user}", "Read")
                for user in ("alice", "writer")
                for kind, name in [("Group", GROUP), ("Topic", OPEN)]
            )
        yield broker


def joined(broker: RunningBroker, user: str, *topics: str) -> Member:
    made = Member(broker.kafka, GROUP)
    made.raw.socket.close()
    made.raw = logged_in(broker.kafka, user)
    if topics:
        made.join(*topics, partitions=len(topics))
    return made


@pytest.fixture
def places(guarded: RunningBroker) -> dict[str, Partition]:
    with logged_in(guarded.kafka, "root") as raw:
        configure(raw, GROUP, {"share.auto.offset.reset": "earliest"})
        return {name: (fill(raw, name, [batch(5)]), 0) for name in (OPEN, SECRET)}


@pytest.fixture
def root(guarded: RunningBroker, places: dict[str, Partition]) -> Iterator[Member]:
    """Return a member that has joined with both topics, so that the group reads them."""
    made = joined(guarded, "root", OPEN, SECRET)
    yield made
    made.close()


def test_topics_that_a_member_may_not_read_are_refused_and_the_others_acquired(
    guarded: RunningBroker, root: Member, places: dict[str, Partition]
) -> None:
    alice = joined(guarded, "alice", OPEN)
    response = alice.get(list(places.values()))
    assert {key: each.error_code for key, each in parts(response).items()} == {
        places[OPEN]: ErrorCode.none,
        places[SECRET]: DENIED,
    }
    assert not parts(response)[places[SECRET]].acquired_records
    refused = alice.acknowledge({places[SECRET]: [(0, 0, [ACCEPT])]})
    assert errors(refused) == {0: DENIED}
    assert SECRET not in str(response) + str(refused)
    alice.close()


def test_the_members_of_a_group_need_not_read_the_same_topics(
    guarded: RunningBroker, root: Member, places: dict[str, Partition]
) -> None:
    writer = joined(guarded, "writer", OPEN)
    assert acquired(root.get([places[SECRET]]))
    assert parts(writer.fetch([places[OPEN]]))[places[OPEN]].error_code is ErrorCode.none
    writer.close()


def test_a_session_belongs_to_the_principal_that_opened_it(
    guarded: RunningBroker, root: Member, places: dict[str, Partition]
) -> None:
    root.get([places[SECRET]])
    thief = joined(guarded, "alice")
    for epoch in (root.epoch, -1):
        for ask in (share_fetch, share_acknowledge):
            response = thief.raw.call(ask(GROUP, root.id, epoch, {}))
            assert response.error_code is ErrorCode.share_session_not_found
    assert thief.raw.call(share_fetch(GROUP, root.id, 0)).error_code is ErrorCode.invalid_request
    assert root.fetch().error_code is ErrorCode.none
    thief.close()
