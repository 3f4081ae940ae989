"""The time at which a group without waiting requests has to be visited: the earliest end of a
session.
"""

from __future__ import annotations

import pytest

from sparrow.broker.groups.description import GroupState
from tests.groups.classic_driver import Driver


def test_a_group_says_when_the_first_session_may_be_over() -> None:
    d = Driver()
    first, second = d.stable("one", "two")
    assert d.group.next_session_end == pytest.approx(d.now + 10)
    d.advance(4)
    d.heartbeat(first, 1)
    assert d.group.next_session_end == pytest.approx(d.now + 6)
    d.heartbeat(second, 1)
    assert d.group.next_session_end == pytest.approx(d.now + 10)


def test_static_members_that_left_without_a_word_are_gone_when_their_session_ends() -> None:
    d = Driver()
    d.stable("one")
    d.advance(9.99)
    assert d.group.state is GroupState.STABLE
    at = d.group.next_session_end
    assert at is not None
    d.advance(at - d.now)
    assert not d.group.members
    assert d.group.next_session_end is None


def test_session_of_a_waiting_member_does_not_end() -> None:
    d = Driver()
    first, _ = d.stable(None, None)
    d.join(first)
    d.join(instance_id="new")  # a new member is given up after a while, even if it waits
    ends = [member.overdue_at for member in d.group.members.values()]
    assert ends[0] is None
    assert ends[1] is not None
    assert ends[2] is not None
