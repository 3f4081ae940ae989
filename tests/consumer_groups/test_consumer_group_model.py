"""Any order of heartbeats, lost responses, departures, changes of topics, restarts: no partition
has two members, and the group becomes stable.
"""

import asyncio
import contextlib
import uuid
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparrow.base.errors import FencedInstance, FencedMemberEpoch, UnknownMember, UnreleasedInstanceId
from sparrow.broker.groups.consumer.group import ConsumerGroup
from sparrow.broker.groups.consumer.member import NOTHING, Assignment, Heartbeat
from sparrow.broker.groups.consumer.persistence import load, writes
from sparrow.broker.groups.description import GroupState
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Entry, Put
from tests.consumer_groups.machine import SESSION_TIMEOUT_S, Machine
from tests.repetitions import repetitions

TOPICS = ("a", "b", "c", "ab")
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
REGEXES = ("a.*", ".*b", "[bc]")


@dataclass
class Client:
    """A consumer: it revokes partitions before it takes new ones, and reports both."""

    member_id: str
    topics: tuple[str, ...] | None
    regex: str | None
    assignor: str | None
    instance_id: str | None
    epoch: int = 0
    owned: Assignment = NOTHING
    assigned: Assignment = NOTHING
    reported: Assignment | None = None
    has_missed_answer: bool = False
    seen_epochs: list[int] = field(default_factory=list)

    def heartbeat(self, *, full: bool) -> Heartbeat:
        is_full = full or self.epoch == 0 or self.has_missed_answer
        self.has_missed_answer = False
        return Heartbeat(
            self.member_id,
            self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000 if is_full else -1,
            topics=self.topics if is_full else None,
            regex=self.regex if is_full else None,
            server_assignor=self.assignor if is_full else None,
            owned=self._owned_to_report(full=is_full),
        )

    def _owned_to_report(self, *, full: bool) -> Assignment | None:
        """Return the owned partitions if they changed, as consumers do."""
        if not full and self.owned == self.reported:
            return None
        self.reported = self.owned
        return self.owned

    def miss_answer(self) -> None:
        """Lose a response: the next heartbeat has all fields, and nothing new is taken before its
        response.
        """
        self.reported = None
        self.has_missed_answer = True
        self.assigned &= self.owned

    def reset(self) -> None:
        self.epoch, self.owned, self.assigned = 0, NOTHING, NOTHING
        self.seen_epochs.clear()

    def work(self) -> None:
        """Release first, then take, in one step, as a consumer does between two polls."""
        self.owned &= self.assigned
        self.owned = self.assigned


class ConsumerGroupModel(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.machine = Machine(a=3, b=1)
        self.clients = [
            Client("first", ("a", "b"), None, None, None),
            Client("second", ("a",), None, None, None),
            Client("third", None, "a.*", "uniform", "i3"),
        ]
        self.last_epoch = 0
        self.entries: dict[tuple[str, str], Entry] = {}

    # ── what happens ──────────────────────────────────────────────────────────────────────────────

    @rule(
        topics=st.one_of(st.none(), st.sets(st.sampled_from(TOPICS), max_size=3)),
        regex=st.sampled_from([None, *REGEXES]),
        assignor=st.sampled_from([None, "uniform", "range"]),
        instance=st.sampled_from([None, None, "i1", "i2"]),
    )
    def start_client(
        self, topics: set[str] | None, regex: str | None, assignor: str | None, instance: str | None
    ) -> None:
        if len(self.clients) < 5 and instance not in {c.instance_id for c in self.clients if c.instance_id}:
            names = () if topics is None and regex is None else None if topics is None else tuple(topics)
            self.clients.append(Client(str(uuid.uuid4()), names, regex, assignor, instance))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), full=st.booleans(), lost=st.booleans())
    def client_beats(self, data: st.DataObject, full: bool, lost: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.beat(client, full=full, lost=lost)

    @precondition(lambda self: self.clients)
    @rule(
        choice=st.lists(
            st.tuples(st.integers(0, 4), st.sampled_from([False, False, True])), min_size=5, max_size=12
        )
    )
    def several_beat_and_some_work(self, choice: list[tuple[int, bool]]) -> None:
        for index, works in choice:
            client = self.clients[index % len(self.clients)]
            self.beat(client, full=False, lost=False)
            if works:
                client.work()
            self.no_partition_has_two_owners()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def client_works(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.clients)).work()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        client.reset()
        self.clients.remove(client)
        self.say(Heartbeat(client.member_id, -1, instance_id=client.instance_id))

    @precondition(lambda self: any(c.instance_id for c in self.clients))
    @rule(data=st.data())
    def static_client_restarts(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([c for c in self.clients if c.instance_id]))
        self.say(Heartbeat(client.member_id, -2, instance_id=client.instance_id))
        client.reset()
        client.member_id = str(uuid.uuid4())

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def client_dies(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if client.member_id in self.machine.group.members:
            self.machine.now += SESSION_TIMEOUT_S
            for other in self.clients:
                self.beat(other, full=False, lost=False)
            self.expire()

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.machine.now += seconds
        self.expire()

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 5))
    def topic_changes(self, name: str, partitions: int) -> None:
        topic = self.machine.catalog.find(name)
        if topic is None:
            self.machine.make_topic(name, partitions)
        elif partitions > topic.partitions:
            self.machine.grow_topic(name, partitions)
        else:
            self.machine.delete_topic(name)

    @rule()
    def broker_restarts(self) -> None:
        self.store_changes()
        machine = self.machine
        entries = dict(self.entries)
        (machine.group,) = asyncio.run(
            load(MemoryMetaStore(entries), lambda name: ConsumerGroup(name, machine.catalog, 1000))
        ) or (ConsumerGroup("g", machine.catalog, 1000),)
        machine.group.start_clocks(machine.now, SESSION_TIMEOUT_S)

    # ── how it is said ────────────────────────────────────────────────────────────────────────────

    def say(self, beat: Heartbeat) -> None:
        with contextlib.suppress(UnknownMember, FencedInstance):
            self.machine.beat(beat)

    def beat(self, client: Client, *, full: bool, lost: bool) -> None:
        try:
            answer = self.machine.beat(client.heartbeat(full=full))
        except (UnknownMember, FencedMemberEpoch, FencedInstance, UnreleasedInstanceId):
            client.reset()
            return
        if lost:
            client.miss_answer()
            return
        client.epoch = answer.member_epoch
        client.seen_epochs.append(answer.member_epoch)
        if answer.assignment is not None:
            client.assigned = answer.assignment

    def expire(self) -> None:
        for member_id, _ in self.machine.group.expire(self.machine.now):
            for client in self.clients:
                if client.member_id == member_id:
                    client.reset()

    def store_changes(self) -> None:
        group = self.machine.group
        for write in writes(group, group.take_changes()):
            if isinstance(write, Put):
                self.entries[write.kind, write.key] = Entry(write.kind, write.key, write.value, 1)
            else:
                self.entries.pop((write.kind, write.key), None)

    # ── what holds ────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def what_is_written_is_enough(self) -> None:
        if hasattr(self, "machine"):
            self.store_changes()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned = [partition for client in getattr(self, "clients", ()) for partition in client.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def epochs_only_rise(self) -> None:
        if hasattr(self, "machine"):
            group = self.machine.group
            assert group.epoch >= self.last_epoch
            assert group.epoch >= group.assignment_epoch
            self.last_epoch = group.epoch
            for client in self.clients:
                assert client.seen_epochs == sorted(client.seen_epochs)

    def teardown(self) -> None:
        if not hasattr(self, "machine"):
            return
        for _ in range(12):
            for client in self.clients:
                client.work()
                self.beat(client, full=True, lost=False)
                client.work()
        self.machine.now += SESSION_TIMEOUT_S - 1  # members without a client are removed
        for client in self.clients:
            self.beat(client, full=False, lost=False)
        self.machine.now += 2
        self.expire()
        for _ in range(12):
            for client in self.clients:
                client.work()
                self.beat(client, full=False, lost=False)
                client.work()
            self.no_partition_has_two_owners()
        self.everything_is_read()

    def everything_is_read(self) -> None:
        group = self.machine.group
        assert group.state is (GroupState.STABLE if self.clients else GroupState.EMPTY)
        wanted = {topic for client in self.clients for topic in self.names(client)}
        assert frozenset().union(*(client.owned for client in self.clients)) == self.machine.partitions(
            *wanted
        )
        for client in self.clients:
            assert client.owned <= self.machine.partitions(*self.names(client))

    def names(self, client: Client) -> set[str]:
        matching = self.machine.regexes.matching(client.regex) if client.regex else ()
        return {*(client.topics or ()), *matching}


TestConsumerGroupModel = ConsumerGroupModel.TestCase
TestConsumerGroupModel.settings = settings(
    max_examples=repetitions(80),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=PHASES,
)
