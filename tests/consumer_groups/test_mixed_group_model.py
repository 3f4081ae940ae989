"""As the model of consumer groups, with members of the classic protocol among the others."""

import struct
import uuid

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from sparrow.base.errors import RebalanceInProgress, StaleMember, UnknownMember
from sparrow.broker.groups.classic.protocol import JoinRequest, SyncRequest
from sparrow.broker.groups.consumer import classic_members as consumer_classic
from sparrow.broker.groups.consumer.member import NOTHING
from sparrow.broker.groups.consumer.protocol import read_assignment
from tests.consumer_groups.machine import Machine
from tests.consumer_groups.test_consumer_group_model import PHASES, Client, ConsumerGroupModel
from tests.repetitions import repetitions


def subscription(topics: tuple[str, ...], owned: set[tuple[str, int]]) -> bytes:
    """Return a subscription (version 1) with the partitions of the member."""
    parts = [struct.pack(">hi", 1, len(topics)), *(_text(name) for name in topics), struct.pack(">i", -1)]
    parts.append(struct.pack(">i", len(owned)))
    parts += [_text(name) + struct.pack(">ii", 1, number) for name, number in owned]
    return b"".join(parts)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class ClassicClient(Client):
    """A consumer of the classic protocol; an eager one releases all partitions before it joins
    again.
    """

    is_eager = False
    must_join = True
    must_sync = False

    def reset(self) -> None:
        super().reset()
        self.must_join, self.must_sync = True, False

    def work(self) -> None:
        if not self.must_sync:
            must_tell = bool(self.owned - self.assigned)
            super().work()
            self.must_join |= must_tell

    def step(self, machine: Machine) -> None:
        try:
            if self.must_join:
                self.join(machine)
            elif self.must_sync:
                self.sync(machine)
            else:
                consumer_classic.heartbeat(machine.group, self.member_id, self.epoch, None, machine.now)
        except RebalanceInProgress:
            self.must_join = True
        except (StaleMember, UnknownMember):
            self.reset()

    def join(self, machine: Machine) -> None:
        if self.is_eager:
            self.owned = self.assigned = NOTHING
        names = {topic.topic_id: topic.name for topic in machine.catalog}
        owned = {(names[topic_id], number) for topic_id, number in self.owned if topic_id in names}
        metadata = subscription(self.topics or (), owned)
        request = JoinRequest(
            "g", self.member_id, "consumer", (("range", metadata),), 45_000, 60_000, client_id="c"
        )
        answer = consumer_classic.join(machine.group, machine.catalog, request, machine.now, self.member_id)
        self.epoch, self.must_join, self.must_sync = answer.generation, False, True
        self.seen_epochs.append(self.epoch)

    def sync(self, machine: Machine) -> None:
        request = SyncRequest("g", self.member_id, self.epoch)
        answer = consumer_classic.sync(machine.group, machine.catalog, request, machine.now)
        partitions = read_assignment(answer.assignment)
        assert partitions is not None
        self.assigned = consumer_classic.owned_ids(partitions, machine.catalog)
        self.must_sync = False


class MixedGroupModel(ConsumerGroupModel):
    @initialize()
    def start(self) -> None:
        super().start()
        self.start_classic_client({"a"}, is_eager=True)
        self.start_classic_client({"a", "b"}, is_eager=False)

    @rule(topics=st.sets(st.sampled_from(("a", "b", "c")), max_size=3), is_eager=st.booleans())
    def start_classic_client(self, topics: set[str], is_eager: bool) -> None:
        if len(self.clients) < 6:
            client = ClassicClient(f"k{uuid.uuid4()}", tuple(topics), None, None, None)
            client.is_eager = is_eager
            self.clients.append(client)

    def beat(self, client: Client, *, full: bool, lost: bool) -> None:
        if isinstance(client, ClassicClient):
            client.step(self.machine)
        else:
            super().beat(client, full=full, lost=lost)


TestMixedGroupModel = MixedGroupModel.TestCase
TestMixedGroupModel.settings = settings(
    max_examples=repetitions(50),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=PHASES,
)
