"""Any order of heartbeats, lost responses, departures, changed topics, restarts: it ends, and every
member has its assignment of the group.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparrow.base.errors import FencedMemberEpoch, UnknownMember
from sparrow.broker.groups.consumer.member import NOTHING, Assignment
from sparrow.broker.groups.share.group import ShareGroup
from sparrow.broker.groups.share.member import ShareHeartbeat
from sparrow.broker.groups.share.persistence import load, writes
from sparrow.meta.memory import MemoryMetaStore
from tests.repetitions import repetitions
from tests.share_groups.machine import SESSION_TIMEOUT_S, Machine

TOPICS = ("a", "b", "c")
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]


@dataclass
class Client:
    """A share consumer."""

    member_id: str
    topics: tuple[str, ...]
    epoch: int = 0
    assigned: Assignment = NOTHING
    must_say_all: bool = True
    said: tuple[str, ...] = ()


class ShareGroupModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.meta = MemoryMetaStore()
        self.machine = Machine({"a": 2})
        self.clients: dict[str, Client] = {}

    @rule(name=st.sampled_from("mnopq"), topics=st.sets(st.sampled_from(TOPICS), min_size=1))
    def subscribe(self, name: str, topics: set[str]) -> None:
        client = self.clients.setdefault(name, Client(name, ()))
        client.topics = tuple(sorted(topics))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), is_heard=st.booleans())
    def heartbeat(self, data: st.DataObject, is_heard: bool) -> None:
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        self.beat(client, is_heard=is_heard)

    def beat(self, client: Client, *, is_heard: bool = True) -> None:
        says_all = client.must_say_all or client.epoch == 0 or client.said != client.topics
        client.must_say_all, client.said = False, client.topics
        beat = ShareHeartbeat(client.member_id, client.epoch, topics=client.topics if says_all else None)
        try:
            answer = self.machine.send(beat)
        except (FencedMemberEpoch, UnknownMember):
            client.epoch, client.assigned, client.must_say_all = 0, NOTHING, True
            return
        finally:
            self.keep()
        if not is_heard:
            client.must_say_all = True
            return
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.assigned = answer.assignment

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.clients.pop(data.draw(st.sampled_from(sorted(self.clients))))
        with contextlib.suppress(UnknownMember):
            self.machine.group.leave(client.member_id)
        self.keep()

    @rule(seconds=st.sampled_from((1, 30, 46)))
    def wait(self, seconds: int) -> None:
        self.machine.now += seconds
        self.machine.group.expire(self.machine.now)
        self.keep()

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 5))
    def make_topic(self, name: str, partitions: int) -> None:
        known = self.machine.topics.find(name)
        if known is None or known.partitions < partitions:
            self.machine.put(name, partitions)

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        if self.machine.topics.find(name) is not None:
            self.machine.drop(name)

    @rule()
    def restart(self) -> None:
        def make(name: str) -> ShareGroup:
            return ShareGroup(name, self.machine.topics, 200)

        meta = MemoryMetaStore(dict(self.meta.entries))
        found = asyncio.run(load(meta, make))
        self.machine.group = found[0] if found else make("g")
        self.machine.group.start_clocks(self.machine.now, SESSION_TIMEOUT_S)

    def keep(self) -> None:
        """Responses are written before they are sent."""
        group = self.machine.group
        if group.changes:
            asyncio.run(self.meta.write(writes(group, group.take_changes())))

    @invariant()
    def members_have_what_the_group_sent(self) -> None:
        if not hasattr(self, "machine"):
            return
        for client in self.clients.values():
            member = self.machine.group.members.get(client.member_id)
            if member is not None and not client.must_say_all and client.epoch == member.epoch:
                assert client.assigned == member.assigned

    def teardown(self) -> None:
        if not hasattr(self, "machine"):
            return
        for _ in range(4):
            for client in self.clients.values():
                self.beat(client)
        group = self.machine.group
        existing = {topic.topic_id: topic for topic in self.machine.topics}
        for client in self.clients.values():
            wanted = {topic.topic_id for topic in existing.values() if topic.name in client.topics}
            assert client.epoch == group.epoch == group.assignment_epoch
            assert {topic_id for topic_id, _ in client.assigned} <= wanted
            assert bool(client.assigned) == bool(wanted)
        read = {partition for client in self.clients.values() for partition in client.assigned}
        subscribed = {name for client in self.clients.values() for name in client.topics}
        assert read == {
            (topic.topic_id, number)
            for topic in existing.values()
            if topic.name in subscribed
            for number in range(topic.partitions)
        }


TestShareGroupModel = ShareGroupModel.TestCase
TestShareGroupModel.settings = settings(
    max_examples=repetitions(40),
    stateful_step_count=30,
    deadline=None,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
)
