"""What doors may ask of queues, with the question who may do it.

A queue is a resource of type GROUP by its name, as a share group is in Kafka: to take from it one needs READ on it, and READ on its topics.

    lease, settle, peek            READ on the queue and on its topics
    describe, list                 DESCRIBE on the queue
    create, configure, pause,
    add topics                     ALTER_CONFIGS on the queue; create and add topics also READ on the topics (and CREATE for those that are missing);
                                   to name a dead-letter topic WRITE on that
    purge, delete                  DELETE on the queue
    dead letters                   READ on the queue and on its dead-letter topic
    redrive                        that, and WRITE on its topics
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument, NotAuthorized, QueueExists, StaleMember
from sparrow.base.ids import uuid7
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType, require
from sparrow.broker.queues import peeking
from sparrow.broker.queues.consumer import QueueConsumer
from sparrow.broker.queues.description import Peeked, QueueInfo, describe
from sparrow.broker.queues.letter_browsing import DeadLetters, browse
from sparrow.broker.queues.policy import QueuePolicy
from sparrow.broker.queues.queues import check_dead_letters
from sparrow.broker.queues.redrive import RedriveFilter, RedriveProgress, Redrives
from sparrow.broker.queues.state import ONE_OF

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Authorizer
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.queues import Queues

_GROUP, _TOPIC = ResourceType.GROUP, ResourceType.TOPIC
EnsureTopic = Callable[[str, int, Principal], Awaitable[None]]
"""Make a topic with so many partitions (-1: the default) if it is missing, and the principal may."""
_MAX_ID = 200
LISTED_PER_TURN = 200
"""Queues that are described before others have their turn."""


class QueueVerbs:
    """`broker.queues`. Loop thread only."""

    def __init__(
        self,
        registry: Queues,
        authorizer: Callable[[], Authorizer],
        ensure_topic: EnsureTopic,
        *,
        redrives: Redrives,
        watch_rules: Callable[[Callable[[], None]], object] = lambda _: None,
    ) -> None:
        self.registry = registry
        self._redrives = redrives
        self._authorizer = authorizer
        self._ensure_topic = ensure_topic
        watch_rules(self._rules_changed)

    def _require(self, principal: Principal, operation: Operation, kind: ResourceType, name: str) -> None:
        require(self._authorizer(), principal, operation, kind, name)

    def _readable(self, name: str, principal: Principal) -> Queue:
        """The queue; who may not read it does not learn whether it is there."""
        self._require(principal, Operation.READ, _GROUP, name)
        queue = self.registry.get(name)
        self._require_reading(principal, queue)
        return queue

    def _require_reading(self, principal: Principal, queue: Queue) -> None:
        self._require(principal, Operation.READ, _GROUP, queue.name)
        for topic in queue.definition.topics:
            self._require(principal, Operation.READ, _TOPIC, topic)

    def _require_dead_letters(self, principal: Principal, settings: Mapping[str, object]) -> None:
        """The broker writes to a topic that somebody names: not for whoever may not do so himself."""
        topic = settings.get("dead_letter_topic")
        if isinstance(topic, str) and topic:
            self._require(principal, Operation.WRITE, _TOPIC, topic)

    def _rules_changed(self) -> None:
        """Who may not take from a queue any more does not go on with what it opened before."""
        for queue in self.registry:
            for consumer in list(queue.consumers.values()):
                if consumer.principal is not None:
                    try:
                        self._require_reading(consumer.principal, queue)
                    except NotAuthorized as refusal:
                        consumer.end(refusal)

    # ── making and changing ───────────────────────────────────────────────────────────────────────

    async def create(
        self,
        name: str,
        topics: Sequence[str] = (),
        policy: Mapping[str, object] | None = None,
        *,
        partitions: int = -1,
        principal: Principal = ANONYMOUS,
    ) -> QueueInfo:
        """Make a queue on topics (default: the one of its name; those that are missing are made with so many `partitions`).

        To make one again with the same topics and policy is no error. Durable when it returns.

        Raises:
            QueueExists: there is another queue of this name.
            InvalidConfig, InvalidTopicName, InvalidArgument, NotAuthorized
        """
        self._require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
        wanted = tuple(topics) or (name,)
        for topic in wanted:
            self._require(principal, Operation.READ, _TOPIC, topic)
        self._require_dead_letters(principal, policy or {})
        checked = QueuePolicy().changed(policy or {})
        existing = self.registry.find(name)
        if existing is None:
            for topic in wanted:
                await self._ensure_topic(topic, partitions, principal)
            try:
                return self._info(await self.registry.create(name, wanted, policy))
            except QueueExists:
                existing = self.registry.get(name)
        if existing.definition.topics != wanted or existing.definition.policy != checked:
            raise QueueExists(
                f"queue {name!r} exists with other topics or another policy; `sparrow queue describe` shows them,"
                " `configure` changes them"
            )
        return self._info(existing)

    async def configure(
        self,
        name: str,
        set: Mapping[str, object] | None = None,  # noqa: A002 - the verb's own word
        unset: Sequence[str] = (),
        *,
        principal: Principal = ANONYMOUS,
    ) -> QueueInfo:
        """Change settings of the policy; they hold for what happens from now on.

        Raises:
            UnknownQueue, InvalidConfig, InvalidArgument, NotAuthorized
        """
        self._require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
        self._require_dead_letters(principal, set or {})
        return self._info(await self.registry.configure(name, set or {}, unset))

    async def set_subscriber(
        self, name: str, subscriber: str, *, is_one: bool, principal: Principal = ANONYMOUS
    ) -> QueueInfo:
        """Have a name among the subscribers, or not. The first one makes the queue an all-of queue.

        Raises:
            UnknownQueue, InvalidConfig, NotAuthorized
        """
        self._require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
        return self._info(await self.registry.set_subscriber(name, subscriber, is_one=is_one))

    async def add_topics(
        self, name: str, topics: Sequence[str], *, partitions: int = -1, principal: Principal = ANONYMOUS
    ) -> QueueInfo:
        """Let a queue take from more topics; those that are missing are made with so many `partitions`.

        Raises:
            UnknownQueue, InvalidTopicName, InvalidArgument, NotAuthorized
        """
        self._require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
        for topic in topics:
            self._require(principal, Operation.READ, _TOPIC, topic)
        queue = self.registry.get(name)
        if queue.is_share_group:
            raise InvalidArgument(
                f"{name!r} is a share group, whose topics are those that its members subscribe to"
            )
        check_dead_letters(name, (*queue.definition.topics, *topics), queue.definition.policy)
        for topic in topics:
            await self._ensure_topic(topic, partitions, principal)
        extended = await self.registry.extend(name, topics)
        self._rules_changed()  # whoever may not read the new topics
        return self._info(extended)

    async def delete(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Forget a queue; the records stay in their topics.

        Raises:
            UnknownQueue, NotAuthorized
        """
        self._require(principal, Operation.DELETE, _GROUP, name)
        await self.registry.delete(name)

    async def pause(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Hand out nothing until `resume`; what is leased can be settled.

        Raises:
            UnknownQueue, NotAuthorized
        """
        self._require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
        await self.registry.set_paused(name, is_paused=True)

    async def resume(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Go on after `pause`.

        Raises:
            UnknownQueue, NotAuthorized
        """
        self._require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
        await self.registry.set_paused(name, is_paused=False)

    async def purge(self, name: str, *, principal: Principal = ANONYMOUS) -> int:
        """Finish all records that are there and not leased; returns how many.

        Raises:
            UnknownQueue, NotAuthorized
        """
        self._require(principal, Operation.DELETE, _GROUP, name)
        return await self.registry.get(name).purge()

    # ── looking ───────────────────────────────────────────────────────────────────────────────────

    def describe(self, name: str, *, principal: Principal = ANONYMOUS) -> QueueInfo:
        """What is known of a queue.

        Raises:
            UnknownQueue, NotAuthorized
        """
        self._require(principal, Operation.DESCRIBE, _GROUP, name)
        return self._info(self.registry.get(name))

    def listing(self, pattern: str = "*", *, principal: Principal = ANONYMOUS) -> list[QueueInfo]:
        """The queues that the principal may describe, by name."""
        allows = self._authorizer().allows
        return [
            self._info(queue)
            for queue in self.registry.matching(pattern)
            if allows(principal, Operation.DESCRIBE, _GROUP, queue.name)
        ]

    async def listing_in_turns(
        self, pattern: str = "*", *, principal: Principal = ANONYMOUS
    ) -> list[QueueInfo]:
        """As `listing`, but others have their turn in between: with thousands of queues it takes long."""
        allows = self._authorizer().allows
        found = []
        for number, queue in enumerate(self.registry.matching(pattern)):
            if number and number % LISTED_PER_TURN == 0:
                await asyncio.sleep(0)
            is_there = self.registry.find(queue.name) is queue
            if is_there and allows(principal, Operation.DESCRIBE, _GROUP, queue.name):
                found.append(self._info(queue))
        return found

    def _info(self, queue: Queue) -> QueueInfo:
        topic = queue.definition.policy.dead_letters_of(queue.name)
        dead = self.registry.find(topic) if topic is not None else None
        return describe(queue, dead.unfinished if dead is not None else 0)

    async def peek(
        self,
        name: str,
        max_records: int = 10,
        *,
        states: Sequence[str] = ("ready", "leased", "delayed", "blocked"),
        subscriber: str = "",
        skip: int = 0,
        max_bytes: int = peeking.MAX_BYTES,
        principal: Principal = ANONYMOUS,
    ) -> list[Peeked]:
        """Records of a queue as they stand; nothing changes. See `peeking.peek`.

        Raises:
            UnknownQueue, InvalidArgument, NotAuthorized
        """
        queue = self._readable(name, principal)
        _check_subscriber(queue, subscriber)
        return await peeking.peek(
            queue, max_records, states, subscriber=subscriber, skip=skip, max_bytes=max_bytes
        )

    def first_topic(self, name: str, *, principal: Principal = ANONYMOUS) -> str:
        """The topic that messages for a queue are published to.

        Raises:
            UnknownQueue, NotAuthorized
            InvalidArgument: it has none.
        """
        self._require(principal, Operation.DESCRIBE, _GROUP, name)
        topics = self.registry.get(name).definition.topics
        if not topics:
            raise InvalidArgument(f"queue {name!r} has no topic that messages could be published to")
        return topics[0]

    async def dead_letters(
        self,
        name: str,
        max_records: int = 10,
        *,
        where: RedriveFilter = RedriveFilter(),  # noqa: B008 - frozen
        skip: int = 0,
        max_bytes: int = peeking.MAX_BYTES,
        principal: Principal = ANONYMOUS,
    ) -> DeadLetters:
        """Dead letters of a queue that are not finished on the dead-letter topic; nothing changes. See `letter_browsing.browse`.

        Raises:
            UnknownQueue, NotAuthorized
            InvalidArgument: the queue has no dead-letter topic, or as `browse`.
        """
        self._require(principal, Operation.READ, _GROUP, name)
        topic = self.registry.get(name).definition.policy.dead_letters_of(name)
        if topic is None:
            raise InvalidArgument(
                f"queue {name!r} keeps no dead letters: what it cannot deliver is dropped (dead_letter_topic)"
            )
        self._require(principal, Operation.READ, _TOPIC, topic)
        dead = self.registry.find(topic)
        if dead is None:  # nothing has died yet
            return DeadLetters([], -1)
        return await browse(dead, name, where, max_records, skip=skip, max_bytes=max_bytes)

    # ── sending dead letters back ─────────────────────────────────────────────────────────────────

    async def redrive(
        self,
        name: str,
        where: RedriveFilter = RedriveFilter(),  # noqa: B008 - frozen
        *,
        max_records: int = 0,
        per_second: float = 0,
        principal: Principal = ANONYMOUS,
    ) -> RedriveProgress:
        """Begin to send dead letters of a queue back to where they came from, each exactly once.

        Args:
            max_records: at most so many; 0: all that are there now.
            per_second: at most so many; 0: no limit.

        Raises:
            UnknownQueue, NotAuthorized
            InvalidArgument: a limit is negative, or the queue has no dead-letter topic.
            Conflict: it runs already.
        """
        self._require(principal, Operation.READ, _GROUP, name)
        queue = self.registry.get(name)
        dead = queue.definition.policy.dead_letters_of(name)
        if dead is not None:
            self._require(principal, Operation.READ, _TOPIC, dead)
        for topic in queue.definition.topics:
            self._require(principal, Operation.WRITE, _TOPIC, topic)
        return await self._redrives.begin(queue, where, max_records, per_second)

    def redrive_progress(self, name: str, *, principal: Principal = ANONYMOUS) -> RedriveProgress:
        """How far the redrive of a queue is that runs, or ran last since the broker started.

        Raises:
            UnknownQueue, NotAuthorized
        """
        self._require(principal, Operation.DESCRIBE, _GROUP, name)
        return self._redrives.progress(self.registry.get(name))

    async def stop_redrive(self, name: str, *, principal: Principal = ANONYMOUS) -> RedriveProgress:
        """End the redrive of a queue; what was sent is sent.

        Raises:
            UnknownQueue, NotAuthorized
        """
        self._require(principal, Operation.READ, _GROUP, name)
        return await self._redrives.stop(self.registry.get(name))

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────

    def require_consuming(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """See that a principal may take from a queue, where it does so by a consumer that another opened.

        Raises:
            UnknownQueue, NotAuthorized
        """
        self._readable(name, principal)

    async def open_consumer(
        self,
        name: str,
        *,
        consumer_id: str = "",
        client_name: str = "",
        subscriber: str = "",
        prefetch: int = 0,
        create: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> QueueConsumer:
        """A consumer of the queue, or of one of its subscribers.

        Args:
            consumer_id: who comes back gives its own and keeps what it has leased; "" asks for a new one.
            prefetch: how many records it may hold leased; 0: as the policy says.
            create: make the queue, with the default policy, on the topic of its name, if it is missing.

        Raises:
            UnknownQueue, InvalidArgument, NotAuthorized
        """
        if create and self.registry.find(name) is None:
            with suppress(QueueExists):  # made by another at the same time
                await self.create(name, principal=principal)
        queue = self._readable(name, principal)
        _check_subscriber(queue, subscriber)
        if prefetch < 0 or len(consumer_id) > _MAX_ID or not consumer_id.isprintable():
            raise InvalidArgument(
                f"a consumer with id {consumer_id[:40]!r} and prefetch {prefetch}: ids have at most {_MAX_ID} printable"
                " characters, a prefetch is not negative"
            )
        consumer = attach(queue, consumer_id or str(uuid7(queue.now()[1])), client_name, subscriber, prefetch)
        consumer.principal = principal
        return consumer

    def open_member(
        self, group: str, member_id: str, *, client_name: str = "", principal: Principal = ANONYMOUS
    ) -> QueueConsumer:
        """A member of a share group, as a consumer of the queue that the group is.

        Members subscribe to different topics of one group, so whoever leases for one names the sources, and asks for READ on each topic.

        Raises:
            UnknownQueue, InvalidArgument, NotAuthorized
        """
        self._require(principal, Operation.READ, _GROUP, group)
        queue = self.registry.get(group)
        _check_subscriber(queue, ONE_OF)
        member = attach(queue, member_id, client_name)
        member.takes_by_offset = True
        return member


def attach(
    queue: Queue, consumer_id: str, client_name: str, subscriber: str = "", prefetch: int = 0
) -> QueueConsumer:
    """A consumer of that id; one that has it already is put out, its leases go over."""
    old = queue.consumers.get(consumer_id)
    if old is not None:
        old.end(StaleMember(f"consumer {consumer_id!r} of queue {queue.name!r} was opened elsewhere"))
    consumer = queue.consumers[consumer_id] = QueueConsumer(
        queue, consumer_id, client_name, subscriber, prefetch
    )
    return consumer


def _check_subscriber(queue: Queue, subscriber: str) -> None:
    if subscriber not in queue.state.lanes:
        raise InvalidArgument(_no_subscriber(queue, subscriber))


def _no_subscriber(queue: Queue, subscriber: str) -> str:
    names = ", ".join(name for name in queue.state.lanes if name)
    if not names:
        return f"queue {queue.name!r} has no subscribers: leave {subscriber!r} out"
    if not subscriber:
        return f"queue {queue.name!r} has subscribers; say which one takes: {names}"
    return f"queue {queue.name!r} has no subscriber {subscriber!r}; there are {names}"
