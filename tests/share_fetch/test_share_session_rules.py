"""Share sessions without a broker: epochs, owners, limits, connections."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparrow.broker.access.authz import Principal
from sparrow.frontends.kafka.share_sessions import (
    InvalidSessionEpoch,
    MemberTaken,
    SessionLimitReached,
    SessionNotFound,
    ShareSession,
    ShareSessions,
    TopicIdPartition,
)
from tests.repetitions import repetitions

TOPIC = uuid.UUID(int=7)
ALICE, BOB = Principal("alice"), Principal("bob")
MEMBER = ("group", "member")


def keys(*numbers: int) -> list[TopicIdPartition]:
    return [(TOPIC, number) for number in numbers]


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions(3, 10)


def test_each_request_of_a_session_has_the_next_epoch(sessions: ShareSessions) -> None:
    session = sessions.open(MEMBER, keys(0), "connection")
    assert [sessions.advance(MEMBER, epoch) for epoch in (1, 2, 3)] == [session] * 3
    with pytest.raises(InvalidSessionEpoch):
        sessions.advance(MEMBER, 3)
    assert sessions.advance(MEMBER, 4) is session


def test_the_epoch_after_the_highest_is_one(sessions: ShareSessions) -> None:
    session = sessions.open(MEMBER, keys(0), "connection")
    session.epoch = (1 << 31) - 1
    sessions.advance(MEMBER, (1 << 31) - 1)
    assert session.epoch == 1


def test_a_session_that_was_never_opened_is_not_found(sessions: ShareSessions) -> None:
    with pytest.raises(SessionNotFound):
        sessions.advance(MEMBER, 1)


def test_to_others_a_session_does_not_exist_and_its_member_is_taken(sessions: ShareSessions) -> None:
    sessions.open(MEMBER, keys(0), "connection", ALICE)
    with pytest.raises(SessionNotFound):
        sessions.advance(MEMBER, 1, BOB)
    with pytest.raises(MemberTaken):
        sessions.open(MEMBER, keys(0), "other", BOB)
    assert sessions.find(MEMBER, ALICE).is_open


def test_partitions_are_added_and_forgotten(sessions: ShareSessions) -> None:
    session = sessions.open(MEMBER, keys(0, 1, 1), "connection")
    sessions.update(session, keys(1, 2), keys(0, 9))
    assert list(session.partitions) == keys(1, 2)
    assert sessions.partitions == 2


def test_a_partition_that_is_added_and_forgotten_at_once_is_forgotten(sessions: ShareSessions) -> None:
    session = sessions.open(MEMBER, keys(0), "connection")
    sessions.update(session, keys(1), keys(1))
    assert list(session.partitions) == keys(0)


def test_opening_again_replaces_the_previous_session(sessions: ShareSessions) -> None:
    before = sessions.open(MEMBER, keys(0, 1), "old connection")
    session = sessions.open(MEMBER, keys(2), "new connection")
    assert not before.is_open
    assert (session.epoch, sessions.partitions, len(sessions)) == (1, 1, 1)
    assert sessions.disconnected("old connection") == []
    assert sessions.find(MEMBER) is session


def test_sessions_end_with_their_connection(sessions: ShareSessions) -> None:
    first = sessions.open(("g", "1"), keys(0), "a")
    second = sessions.open(("g", "2"), keys(0), "a")
    other = sessions.open(("g", "3"), keys(0), "b")
    assert set(sessions.disconnected("a")) == {first, second}
    assert list(sessions) == [other]
    assert sessions.disconnected("a") == []


def test_there_is_a_limit_of_sessions(sessions: ShareSessions) -> None:
    for number in range(3):
        sessions.open(("g", str(number)), keys(0), "a")
    with pytest.raises(SessionLimitReached):
        sessions.open(("g", "3"), keys(0), "a")
    sessions.open(("g", "2"), keys(0), "a")
    sessions.close(sessions.find(("g", "0")))
    sessions.open(("g", "3"), keys(0), "a")


def test_there_is_a_limit_of_partitions(sessions: ShareSessions) -> None:
    session = sessions.open(MEMBER, keys(*range(8)), "a")
    with pytest.raises(SessionLimitReached):
        sessions.open(("g", "other"), keys(*range(3)), "a")
    with pytest.raises(SessionLimitReached):
        sessions.update(session, keys(8, 9, 10), keys(0))
    assert list(session.partitions) == keys(*range(8))
    sessions.open(MEMBER, keys(*range(10)), "a")
    assert sessions.partitions == 10


MEMBERS = [("g", "a"), ("g", "b"), ("h", "a"), ("h", "b")]
CONNECTIONS = ["x", "y"]
NUMBERS = st.lists(st.integers(0, 5), max_size=4)


class SessionMachine(RuleBasedStateMachine):
    """Compares with a dict of (epoch, partitions, connection)."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = ShareSessions(3, 8)
        self.model: dict[tuple[str, str], tuple[int, list[TopicIdPartition], str]] = {}
        self.opened: dict[tuple[str, str], ShareSession] = {}

    def used(self, but: tuple[str, str] | None = None) -> int:
        return sum(len(each[1]) for member, each in self.model.items() if member != but)

    @rule(member=st.sampled_from(MEMBERS), connection=st.sampled_from(CONNECTIONS), numbers=NUMBERS)
    def open(self, member: tuple[str, str], connection: str, numbers: list[int]) -> None:
        wanted = list(dict.fromkeys(keys(*numbers)))
        has_room = len(self.model.keys() - {member}) < 3 and self.used(member) + len(wanted) <= 8
        if not has_room:
            with pytest.raises(SessionLimitReached):
                self.sessions.open(member, keys(*numbers), connection)
            return
        self.opened[member] = self.sessions.open(member, keys(*numbers), connection)
        self.model[member] = (1, wanted, connection)

    @rule(
        member=st.sampled_from(MEMBERS),
        ahead=st.sampled_from([0, 0, 0, 1, -1]),
        added=NUMBERS,
        forgotten=NUMBERS,
    )
    def request(self, member: tuple[str, str], ahead: int, added: list[int], forgotten: list[int]) -> None:
        epoch, partitions, connection = self.model.get(member, (1, [], ""))
        if member not in self.model:
            with pytest.raises(SessionNotFound):
                self.sessions.advance(member, epoch + ahead)
            return
        if ahead:
            with pytest.raises(InvalidSessionEpoch):
                self.sessions.advance(member, epoch + ahead)
            return
        session = self.sessions.advance(member, epoch)
        wanted = list(dict.fromkeys(partitions + keys(*added)))
        if self.used(member) + len(wanted) > 8:
            with pytest.raises(SessionLimitReached):
                self.sessions.update(session, keys(*added), keys(*forgotten))
        else:
            self.sessions.update(session, keys(*added), keys(*forgotten))
            partitions = [key for key in wanted if key not in keys(*forgotten)]
        self.model[member] = (epoch + 1, partitions, connection)

    @rule(member=st.sampled_from(MEMBERS))
    def close(self, member: tuple[str, str]) -> None:
        if self.model.pop(member, None) is not None:
            self.sessions.close(self.sessions.find(member))
        elif member in self.opened:
            self.sessions.close(self.opened[member])

    @rule(connection=st.sampled_from(CONNECTIONS))
    def disconnect(self, connection: str) -> None:
        gone = {member for member, each in self.model.items() if each[2] == connection}
        assert {each.member for each in self.sessions.disconnected(connection)} == gone
        for member in gone:
            del self.model[member]

    @invariant()
    def agrees(self) -> None:
        found = {each.member: (each.epoch, list(each.partitions), each.connection) for each in self.sessions}
        assert found == self.model
        assert self.sessions.partitions == self.used()


SessionMachine.TestCase.settings = settings(
    max_examples=repetitions(40), stateful_step_count=40, deadline=None
)
TestShareSessionsAgainstAModel = SessionMachine.TestCase
