"""Operations on queues for frontends, with their access rights.

A queue is a resource of type GROUP by its name, as a share group is in Kafka: to take from it a
principal needs READ on it, and READ on its topics.

    lease, settle, peek          READ on the queue and on its topics
    describe, list               DESCRIBE on the queue
    create, ensure, configure,
    pause, add topics            ALTER_CONFIGS on the queue
    ... create, add topics       also READ on the topics, and CREATE for those that are missing
    ... a dead-letter topic      also WRITE on the topic, to name it
    ... ensure, nothing to do    DESCRIBE on the queue is enough
    purge, delete                DELETE on the queue
    dead letters                 READ on the queue and on its dead-letter topic
    redrive                      that, and WRITE on its topics
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument, NotAuthorized, QueueExists, StaleMember
from sparrow.base.ids import uuid7
from sparrow.base.queue_policy import QueuePolicy, changes_to, differences, names_of, read_settings
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.event import names
from sparrow.broker.names import compile_any_pattern
from sparrow.broker.queues import peek as peeking
from sparrow.broker.queues.consumer import QueueConsumer
from sparrow.broker.queues.dead_letters.browse import DeadLetterPage, browse, purge, summarize
from sparrow.broker.queues.dead_letters.redrive import RedriveFilter, Redrives
from sparrow.broker.queues.description import describe
from sparrow.broker.queues.persistence.definition import DEAD
from sparrow.broker.queues.registry import check_dead_letters
from sparrow.broker.queues.rules.state import ONE_OF
from sparrow.model.queues import DeadLetterSummary

if TYPE_CHECKING:
    from sparrow.broker.access.access import Access
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.registry import QueueRegistry
    from sparrow.model.queues import PeekedRecord, QueueDescription, RedriveProgress

_GROUP, _TOPIC = ResourceType.GROUP, ResourceType.TOPIC
_DEAD_LETTER_TOPIC: Final = "dead_letter_topic"
EnsureTopic = Callable[[str, int, Principal], Awaitable[None]]
"""Makes a topic with this many partitions (-1: the default) if it is missing, and the principal
may.
"""
_MAX_ID = 200
LISTED_AT_ONCE = 200
"""Number of queues to describe before other tasks run."""


class QueueService:
    """The queues of a broker as frontends use them (`broker.queues`). Loop thread only."""

    def __init__(
        self,
        registry: QueueRegistry,
        access: Access,
        ensure_topic: EnsureTopic,
        *,
        redrives: Redrives,
        watch_rules: Callable[[Callable[[], None]], object] = lambda _: None,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit or Audit()
        self._registry = registry
        self._redrives = redrives
        self._access = access
        self._ensure_topic = ensure_topic
        watch_rules(self._rules_changed)

    def _readable(self, name: str, principal: Principal) -> Queue:
        """Return a queue. A principal that may not read it does not learn whether it exists."""
        self._access.require(principal, Operation.READ, _GROUP, name)
        queue = self._registry.get(name)
        self._require_reading(principal, queue)
        return queue

    def _require_reading(self, principal: Principal, queue: Queue) -> None:
        self._access.require(principal, Operation.READ, _GROUP, queue.name)
        for topic in queue.definition.topics:
            self._access.require(principal, Operation.READ, _TOPIC, topic)

    def _require_dead_letters(self, principal: Principal, queue: str, policy: QueuePolicy) -> None:
        """Raise NotAuthorized if the principal may not write to the queue's dead-letter topic,
        named or by default.

        The broker writes there on behalf of the principal that chose it.
        """
        topic = policy.dead_letters_of(queue)
        if topic is not None:
            self._access.require(principal, Operation.WRITE, _TOPIC, topic)

    def _rules_changed(self) -> None:
        """Close consumers whose principals may not read their queues any more."""
        for queue in self._registry:
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
    ) -> QueueDescription:
        """Make a queue on topics (default: the one of its name). Missing topics are made with so
        many `partitions`.

        Making a queue again with the same topics and policy is no error. Durable when it returns.

        Raises:
            QueueExists: there is another queue of this name. InvalidConfig, InvalidTopicName,
                InvalidArgument, NotAuthorized
        """
        with self._audit.act(
            principal, "queue.create", _GROUP, name, topics=names(topics), set=names([*(policy or {})])
        ) as act:
            self._access.require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
            wanted = tuple(topics) or (name,)
            for topic in wanted:
                self._access.require(principal, Operation.READ, _TOPIC, topic)
            checked = QueuePolicy().changed(policy or {})
            self._require_dead_letters(principal, name, checked)
            existing = self._registry.find(name)
            if existing is None:
                for topic in wanted:
                    await self._ensure_topic(topic, partitions, principal)
                try:
                    return self._info(await self._registry.create(name, wanted, policy))
                except QueueExists:
                    existing = self._registry.get(name)
            if existing.definition.topics != wanted or existing.definition.policy != checked:
                raise QueueExists(_other(existing, wanted, checked))
            act.discard()  # exists with the same topics and policy
            return self._info(existing)

    async def ensure(
        self,
        name: str,
        topics: Sequence[str] = (),
        policy: Mapping[str, object] | None = None,
        *,
        partitions: int = -1,
        principal: Principal = ANONYMOUS,
    ) -> QueueDescription:
        """Make a queue with these settings if it is missing, else change what differs. Several
        callers may do so at once.

        Settings and topics that are not named stay as they are, as do subscribers. `start` counts
        only when the queue is made. If there is nothing to do DESCRIBE on the queue is enough.
        Durable when it returns.

        Raises:
            InvalidConfig, InvalidTopicName, InvalidArgument, NotAuthorized
        """
        with self._audit.act(principal, "queue.ensure", _GROUP, name) as act:
            asked = read_settings(policy or {})
            existing = self._registry.find(name)
            if existing is None:
                try:
                    return await self.create(name, topics, asked, partitions=partitions, principal=principal)
                except QueueExists:  # made by another caller meanwhile
                    existing = self._registry.get(name)
            new = [topic for topic in topics if topic not in existing.definition.topics]
            if new:
                await self.add_topics(name, new, partitions=partitions, principal=principal)
            changes = changes_to(existing.definition.policy, asked)
            changes.pop("start", None)
            # One by one, as each call sees what other callers added.
            changes.pop("subscribers", None)
            has_new_subscribers = False
            for subscriber in asked.get("subscribers", ()):
                if subscriber not in self._registry.get(name).definition.policy.subscribers:
                    has_new_subscribers = True
                    await self.set_subscriber(name, subscriber, is_one=True, principal=principal)
            if changes:
                return await self.configure(name, changes, principal=principal)
            if not (new or has_new_subscribers):
                act.discard()  # nothing to change
            return self.describe(name, principal=principal)

    async def configure(
        self,
        name: str,
        set: Mapping[str, object] | None = None,  # noqa: A002 - the verb's own word
        unset: Sequence[str] = (),
        *,
        principal: Principal = ANONYMOUS,
    ) -> QueueDescription:
        """Change settings of the policy, from now on.

        Raises:
            UnknownQueue, InvalidConfig, InvalidArgument, NotAuthorized
        """
        with self._audit.act(
            principal, "queue.configure", _GROUP, name, set=names([*(set or {})]), unset=names(unset)
        ):
            self._access.require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
            if _DEAD_LETTER_TOPIC in (set or {}) or _DEAD_LETTER_TOPIC in names_of(unset):
                changed = self._registry.get(name).definition.policy.changed(set or {}, unset)
                self._require_dead_letters(principal, name, changed)
            return self._info(await self._registry.configure(name, set or {}, unset))

    async def set_subscriber(
        self, name: str, subscriber: str, *, is_one: bool, principal: Principal = ANONYMOUS
    ) -> QueueDescription:
        """Add a subscriber, or remove it. The first one makes the queue an all-of queue.

        Raises:
            UnknownQueue, InvalidConfig, NotAuthorized
        """
        with self._audit.act(principal, "queue.configure", _GROUP, name, set=("subscribers",)):
            self._access.require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
            return self._info(await self._registry.set_subscriber(name, subscriber, is_one=is_one))

    async def add_topics(
        self, name: str, topics: Sequence[str], *, partitions: int = -1, principal: Principal = ANONYMOUS
    ) -> QueueDescription:
        """Let a queue take from more topics. Missing ones are made with this many `partitions`.

        Raises:
            UnknownQueue, InvalidTopicName, InvalidArgument, NotAuthorized
        """
        with self._audit.act(principal, "queue.add_topics", _GROUP, name, topics=names(topics)):
            self._access.require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
            for topic in topics:
                self._access.require(principal, Operation.READ, _TOPIC, topic)
            queue = self._registry.get(name)
            if queue.is_share_group:
                raise InvalidArgument(
                    f"{name!r} is a share group, whose topics are those that its members subscribe to"
                )
            check_dead_letters(name, (*queue.definition.topics, *topics), queue.definition.policy)
            for topic in topics:
                await self._ensure_topic(topic, partitions, principal)
            extended = await self._registry.extend(name, topics)
            self._rules_changed()  # consumers that may not read the new topics
            return self._info(extended)

    async def delete(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Delete a queue. The records stay in their topics.

        Raises:
            UnknownQueue, NotAuthorized
        """
        with self._audit.act(principal, "queue.delete", _GROUP, name):
            self._access.require(principal, Operation.DELETE, _GROUP, name)
            await self._registry.delete(name)

    async def pause(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Lease nothing until `resume`. Leased records can be settled.

        Raises:
            UnknownQueue, NotAuthorized
        """
        with self._audit.act(principal, "queue.pause", _GROUP, name):
            self._access.require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
            await self._registry.set_paused(name, is_paused=True)

    async def resume(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Lease again after `pause`.

        Raises:
            UnknownQueue, NotAuthorized
        """
        with self._audit.act(principal, "queue.resume", _GROUP, name):
            self._access.require(principal, Operation.ALTER_CONFIGS, _GROUP, name)
            await self._registry.set_paused(name, is_paused=False)

    async def purge(self, name: str, *, principal: Principal = ANONYMOUS) -> int:
        """Finish all records that are there and not leased. Return their number.

        Raises:
            UnknownQueue, NotAuthorized
        """
        with self._audit.act(principal, "queue.purge", _GROUP, name):
            self._access.require(principal, Operation.DELETE, _GROUP, name)
            return await self._registry.get(name).purge()

    # ── names; no right is needed, as the operations on what they name check it ───────────────────

    def exists(self, name: str) -> bool:
        """Return True if there is a queue of this name."""
        return self._registry.find(name) is not None

    def topics_of(self, name: str) -> tuple[str, ...]:
        """Return the topics of a queue; empty for a missing one."""
        queue = self._registry.find(name)
        return () if queue is None else queue.definition.topics

    def subscribers_of(self, name: str) -> Sequence[str]:
        """Return the subscribers of an all-of queue; empty for another one.

        Raises:
            UnknownQueue
        """
        return self._registry.get(name).definition.policy.subscribers

    def watch(self, watcher: Callable[[Queue], None]) -> Callable[[], None]:
        """Call `watcher` with each queue that was made or whose policy has changed. Return a
        function that ends this; it may be called again.
        """
        made = self._registry.made
        made.append(watcher)

        def stop() -> None:
            if watcher in made:
                made.remove(watcher)

        return stop

    # ── looking ───────────────────────────────────────────────────────────────────────────────────

    def describe(self, name: str, *, principal: Principal = ANONYMOUS) -> QueueDescription:
        """Return the description of a queue.

        Raises:
            UnknownQueue, NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, name)
        return self._info(self._registry.get(name))

    def listing(self, pattern: str = "*", *, principal: Principal = ANONYMOUS) -> list[QueueDescription]:
        """Return the queues that the principal may describe, by name."""
        allows = self._access.allows
        return [
            self._info(queue)
            for queue in self._registry.matching(pattern)
            if allows(principal, Operation.DESCRIBE, _GROUP, queue.name)
        ]

    async def listing_in_steps(
        self, pattern: str = "*", *, principal: Principal = ANONYMOUS
    ) -> list[QueueDescription]:
        """Do as `listing`, but let other tasks run meanwhile: with thousands of queues it takes
        long.
        """
        allows = self._access.allows
        found = []
        matches = compile_any_pattern(pattern).match
        for number, queue in enumerate(self._registry.matching("*")):
            if number and number % LISTED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not matches(queue.name):
                continue
            is_there = self._registry.find(queue.name) is queue
            if is_there and allows(principal, Operation.DESCRIBE, _GROUP, queue.name):
                found.append(self._info(queue))
        return found

    def overview(
        self, pattern: str = "*", *, limit: int, skip: int = 0, principal: Principal = ANONYMOUS
    ) -> tuple[list[QueueDescription], int]:
        """Return some of the queues that match and that the principal may describe, by name, and
        the number of all.
        """
        allows = self._access.allows
        seen = [
            queue
            for queue in self._registry.matching(pattern)
            if allows(principal, Operation.DESCRIBE, _GROUP, queue.name)
        ]
        return [self._info(queue) for queue in seen[skip : skip + limit]], len(seen)

    def readers_of(self, topic: str, *, principal: Principal = ANONYMOUS) -> list[QueueDescription]:
        """Return the queues on a topic that the principal may describe."""
        allows = self._access.allows
        return [
            self._info(queue)
            for queue in self._registry.of_topic(topic)
            if allows(principal, Operation.DESCRIBE, _GROUP, queue.name)
        ]

    def _info(self, queue: Queue) -> QueueDescription:
        topic = queue.definition.policy.dead_letters_of(queue.name)
        dead = self._registry.find(topic) if topic is not None else None
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
    ) -> list[PeekedRecord]:
        """Return records of a queue without changing them. See `peek.peek`.

        Raises:
            UnknownQueue, InvalidArgument, NotAuthorized
        """
        queue = self._readable(name, principal)
        _check_subscriber(queue, subscriber)
        return await peeking.peek(
            queue, max_records, states, subscriber=subscriber, skip=skip, max_bytes=max_bytes
        )

    def first_topic(self, name: str, *, principal: Principal = ANONYMOUS) -> str:
        """Return the topic that messages for a queue are published to.

        Raises:
            UnknownQueue, NotAuthorized
            InvalidArgument: the queue has no topic.
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, name)
        topics = self._registry.get(name).definition.topics
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
    ) -> DeadLetterPage:
        """Return dead letters of a queue that are not finished on the dead-letter topic, without
        changing them. See `dead_letters.browse`.

        Raises:
            UnknownQueue, NotAuthorized
            InvalidArgument: the queue has no dead-letter topic, or as `browse`.
        """
        dead = self._dead(name, principal)
        if dead is None:  # nothing has died yet
            return DeadLetterPage([], -1)
        return await browse(dead, name, where, max_records, skip=skip, max_bytes=max_bytes)

    async def dead_letter_groups(
        self, name: str, *, skip: int = 0, principal: Principal = ANONYMOUS
    ) -> DeadLetterSummary:
        """Return the dead letters of a queue by reason and error. Rights and errors are those of
        `dead_letters`.
        """
        dead = self._dead(name, principal)
        return DeadLetterSummary() if dead is None else await summarize(dead, name, skip=skip)

    async def purge_dead_letters(
        self,
        name: str,
        where: RedriveFilter = RedriveFilter(),  # noqa: B008 - frozen
        *,
        principal: Principal = ANONYMOUS,
    ) -> int:
        """Finish dead letters of a queue that match and are not leased. Return their number.
        Durable when it returns.

        Raises:
            UnknownQueue, InvalidArgument
            NotAuthorized: needs DELETE on the queue, beside the rights of `dead_letters`.
        """
        with self._audit.act(principal, "queue.purge_dead_letters", _GROUP, name):
            self._access.require(principal, Operation.DELETE, _GROUP, name)
            dead = self._dead(name, principal)
            return 0 if dead is None else await purge(dead, name, where)

    def _dead(self, name: str, principal: Principal) -> Queue | None:
        """Return the queue of the dead letters of a queue; None if nothing has died yet.

        Raises:
            UnknownQueue, NotAuthorized
            InvalidArgument: the queue has no dead-letter topic.
        """
        self._access.require(principal, Operation.READ, _GROUP, name)
        definition = self._registry.get(name).definition
        topic = definition.policy.dead_letters_of(name)
        if topic is None and definition.kind == DEAD:
            raise InvalidArgument(
                f"queue {name!r} is where dead letters lie; ask for those of the queue that they came from"
            )
        if topic is None:
            raise InvalidArgument(
                f"queue {name!r} keeps no dead letters: what it cannot deliver is dropped (dead_letter_topic)"
            )
        self._access.require(principal, Operation.READ, _TOPIC, topic)
        return self._registry.find(topic)

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
        """Start to send dead letters of a queue back to where they came from, each exactly once.

        Args:
            max_records: maximum number; 0: all that are there now.
            per_second: maximum rate; 0: no limit.

        Raises:
            UnknownQueue, NotAuthorized
            InvalidArgument: a limit is negative, or the queue has no dead-letter topic.
            Conflict: it runs already.
        """
        with self._audit.act(principal, "queue.redrive", _GROUP, name):
            self._access.require(principal, Operation.READ, _GROUP, name)
            queue = self._registry.get(name)
            dead = queue.definition.policy.dead_letters_of(name)
            if dead is not None:
                self._access.require(principal, Operation.READ, _TOPIC, dead)
            for topic in queue.definition.topics:
                self._access.require(principal, Operation.WRITE, _TOPIC, topic)
            return await self._redrives.begin(queue, where, max_records, per_second)

    def redrive_progress(self, name: str, *, principal: Principal = ANONYMOUS) -> RedriveProgress:
        """Return the progress of a queue's redrive: the one that runs, or the last since the broker
        started.

        Raises:
            UnknownQueue, NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, name)
        return self._redrives.progress(self._registry.get(name))

    async def stop_redrive(self, name: str, *, principal: Principal = ANONYMOUS) -> RedriveProgress:
        """End the redrive of a queue. Dead letters that were sent stay so.

        Raises:
            UnknownQueue, NotAuthorized
        """
        with self._audit.act(principal, "queue.redrive_stop", _GROUP, name):
            self._access.require(principal, Operation.READ, _GROUP, name)
            return await self._redrives.stop(self._registry.get(name))

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────

    def require_consuming(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Check that a principal may take from a queue through a consumer that another principal
        opened.

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
        """Open a consumer of a queue, or of one of its subscribers.

        Args:
            consumer_id: id of a consumer that comes back and keeps its leased records; "": make a
                new id.
            prefetch: maximum number of records that it may have leased; 0: the policy decides.
            create: make the queue if it is missing, with the default policy, on the topic of its
                name.

        Raises:
            UnknownQueue, InvalidArgument, NotAuthorized
        """
        if create and self._registry.find(name) is None:
            with suppress(QueueExists):  # made by another at the same time
                await self.create(name, principal=principal)
        queue = self._readable(name, principal)
        _check_subscriber(queue, subscriber)
        if prefetch < 0 or len(consumer_id) > _MAX_ID or not consumer_id.isprintable():
            raise InvalidArgument(
                f"a consumer with id {consumer_id[:40]!r} and prefetch {prefetch}: ids have at "
                f"most {_MAX_ID} printable"
                " characters, a prefetch is not negative"
            )
        consumer = attach(queue, consumer_id or str(uuid7(queue.now()[1])), client_name, subscriber, prefetch)
        consumer.principal = principal
        return consumer

    async def release_abandoned(self, name: str, consumers: str, *, principal: Principal = ANONYMOUS) -> None:
        """Release the leases of consumers that are gone and whose ids start with `consumers`: a
        broker that was killed released none.

        Raises:
            UnknownQueue, NotAuthorized, DiskFull, StorageFailed
        """
        queue = self._readable(name, principal)
        subscriber = queue.state.subscribers.get(ONE_OF)
        leased_counts = () if subscriber is None else subscriber.leases.leased_counts
        for consumer_id in [each for each in leased_counts if each.startswith(consumers)]:
            if consumer_id not in queue.consumers:
                await attach(queue, consumer_id, "").close(release=True)

    def open_member(
        self, group: str, member_id: str, *, client_name: str = "", principal: Principal = ANONYMOUS
    ) -> QueueConsumer:
        """Open a member of a share group, as a consumer of the group's queue.

        Members subscribe to different topics of one group, so the caller that leases for a member
        names the sources, and requires READ on each topic.

        Raises:
            UnknownQueue, InvalidArgument, NotAuthorized
        """
        self._access.require(principal, Operation.READ, _GROUP, group)
        queue = self._registry.get(group)
        _check_subscriber(queue, ONE_OF)
        member = attach(queue, member_id, client_name)
        member.takes_by_offset = True
        return member


def attach(
    queue: Queue, consumer_id: str, client_name: str, subscriber: str = "", prefetch: int = 0
) -> QueueConsumer:
    """Add a consumer of that id. It replaces a consumer of the same id, and takes over its
    leases.
    """
    old = queue.consumers.get(consumer_id)
    if old is not None:
        old.end(StaleMember(f"consumer {consumer_id!r} of queue {queue.name!r} was opened elsewhere"))
    consumer = queue.consumers[consumer_id] = QueueConsumer(
        queue, consumer_id, client_name, subscriber, prefetch
    )
    return consumer


def _check_subscriber(queue: Queue, subscriber: str) -> None:
    if subscriber not in queue.state.subscribers:
        raise InvalidArgument(_no_subscriber(queue, subscriber))


def _no_subscriber(queue: Queue, subscriber: str) -> str:
    names = ", ".join(name for name in queue.state.subscribers if name)
    if not names:
        return f"queue {queue.name!r} has no subscribers: leave {subscriber!r} out"
    if not subscriber:
        return f"queue {queue.name!r} has subscribers; say which one takes: {names}"
    return f"queue {queue.name!r} has no subscriber {subscriber!r}; there are {names}"


def _other(queue: Queue, topics: tuple[str, ...], policy: QueuePolicy) -> str:
    """Return the first difference between a queue and the requested one."""
    there = queue.definition
    differing = differences(there.policy.settings(), policy.settings())
    if there.topics != topics:
        differing.insert(0, f"topics are {', '.join(there.topics) or 'none'}, not {', '.join(topics)}")
    return (
        f"queue {queue.name!r} exists with other settings: {'; '.join(differing)}. "
        "`client.admin.ensure_queue` or"
        " `sparrow queue configure` changes them"
    )
