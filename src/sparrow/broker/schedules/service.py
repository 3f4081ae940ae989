"""Operations on schedules, with their access checks. The queue is the resource, of type GROUP by
its name.

    put                      ALTER_CONFIGS on the queue, WRITE on the topic that gets the jobs
    ... another queue before ALTER_CONFIGS on that one, too
    run                      ALTER_CONFIGS on the queue, WRITE on the topic
    delete, pause, resume    ALTER_CONFIGS on the queue
    describe, list           DESCRIBE on the queue

Jobs are published with the rights of the schedule's owner, who put it last: they end when the owner
loses WRITE on the topic, and go on when it is given again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sparrow.base.errors import InvalidArgument, SparrowError, UnknownSchedule
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.audit.event import names, safe
from sparrow.broker.names import compile_any_pattern
from sparrow.broker.schedules.description import describe
from sparrow.broker.schedules.entry import ScheduleDefinition
from sparrow.broker.schedules.settings import new_settings
from sparrow.broker.schedules.targets import partition_of
from sparrow.broker.schedules.waves import DueJob
from sparrow.model.schedules import ScheduledJob

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.access.access import Access
    from sparrow.broker.audit.audit import Audit
    from sparrow.broker.schedules.entry import ScheduleEntry
    from sparrow.broker.schedules.registry import ScheduleRegistry
    from sparrow.broker.schedules.settings import ScheduleSettings
    from sparrow.broker.schedules.targets import ScheduleTargets
    from sparrow.broker.schedules.waves import Waves
    from sparrow.model.schedules import ScheduleDescription

_LOG = logging.getLogger(__name__)
_GROUP, _TOPIC = ResourceType.GROUP, ResourceType.TOPIC
_MAX_NAME: Final = 200
_DESCRIBED_AT_ONCE: Final = 50


class ScheduleService:
    """`broker.schedules`. Loop thread only."""

    def __init__(
        self,
        registry: ScheduleRegistry,
        targets: ScheduleTargets,
        waves: Waves,
        clock: Clock,
        *,
        access: Access,
        audit: Audit,
    ) -> None:
        self._registry = registry
        self._targets = targets
        self._waves = waves
        self._clock = clock
        self._access = access
        self._audit = audit

    # ── making and changing ───────────────────────────────────────────────────────────────────────

    async def put(
        self, name: str, settings: Mapping[str, object], *, principal: Principal = ANONYMOUS
    ) -> ScheduleDescription:
        """Create a schedule, or replace its settings: those that are left out get their defaults.
        Putting the same again changes nothing. Durable when it returns.

        Raises:
            InvalidConfig: a setting is unknown or wrong, the expression cannot be read or is never
                due. UnknownQueue, UnknownTopic, InvalidArgument, PolicyViolation, NotAuthorized
        """
        queue = settings.get("queue")
        resource = queue if isinstance(queue, str) else ""
        with self._audit.act(
            principal, "schedule.put", _GROUP, resource, schedule=safe(name), set=names([*settings])
        ) as act:
            self._access.require(principal, Operation.ALTER_CONFIGS, _GROUP, resource)
            _check_name(name)
            asked = new_settings(settings)
            present = self._registry.find(name)
            if present is not None:
                self._require(principal, Operation.ALTER_CONFIGS, name)
            self._require_target(principal, asked)

            def make(before: ScheduleDefinition | None) -> ScheduleDefinition:
                if before is not None and before.settings == asked and before.owner == principal:
                    return before
                if before is not None and present is None:
                    raise InvalidArgument(f"another caller has just created schedule {name!r}; put it again")
                if before is None:
                    return ScheduleDefinition(name, asked, principal, self._clock.wall_ms())
                restarts = asked.every_ms != before.settings.every_ms
                created_ms = self._clock.wall_ms() if restarts else before.created_ms
                return replace(before, settings=asked, owner=principal, created_ms=created_ms)

            unchanged = None if present is None else present.definition
            entry = await self._registry.put(name, make)
            if entry.definition is unchanged:
                act.discard()
            return self._shown(entry)

    def _require_target(self, principal: Principal, settings: ScheduleSettings) -> None:
        """Raise unless jobs can be published now, with the rights of the principal."""
        try:
            self._targets.find(settings, principal)
        except SparrowError:
            queue = settings.topic or settings.queue
            self._access.require(principal, Operation.WRITE, _TOPIC, queue)
            raise

    async def delete(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Delete a schedule. Its jobs stay.

        Raises:
            UnknownSchedule, NotAuthorized
        """
        queue = self._queue_of(name)
        with self._audit.act(principal, "schedule.delete", _GROUP, queue, schedule=safe(name)):
            self._changeable(name, principal)
            await self._registry.delete(name)

    async def pause(self, name: str, *, principal: Principal = ANONYMOUS) -> ScheduleDescription:
        """Publish no jobs until `resume`, over restarts as well.

        Raises:
            UnknownSchedule, NotAuthorized
        """
        return await self._set_paused(name, is_paused=True, principal=principal)

    async def resume(self, name: str, *, principal: Principal = ANONYMOUS) -> ScheduleDescription:
        """Publish again after `pause`, from the next tick on: those of the pause are not made up
        for.

        Raises:
            UnknownSchedule, NotAuthorized
        """
        return await self._set_paused(name, is_paused=False, principal=principal)

    async def _set_paused(self, name: str, *, is_paused: bool, principal: Principal) -> ScheduleDescription:
        action = "schedule.pause" if is_paused else "schedule.resume"
        with self._audit.act(principal, action, _GROUP, self._queue_of(name), schedule=safe(name)):
            self._changeable(name, principal)
            return self._shown(await self._pause(name, is_paused=is_paused))

    async def _pause(self, name: str, *, is_paused: bool, because: str = "") -> ScheduleEntry:
        def make(before: ScheduleDefinition | None) -> ScheduleDefinition:
            before = before or self._registry.get(name).definition
            if before.is_paused == is_paused:
                return before
            return replace(before, is_paused=is_paused, paused_because=because)

        return await self._registry.put(name, make)

    async def owner_deleted(self, user: str) -> None:
        """Pause the schedules of a deleted user, so that nothing is published in the user's name.
        Another principal that puts one becomes its owner.
        """
        for entry in self._registry.of_owner(Principal(user)):
            with suppress(UnknownSchedule):  # deleted meanwhile
                await self._pause(entry.name, is_paused=True, because=f"its owner {user!r} was deleted")

    async def run(self, name: str, *, principal: Principal = ANONYMOUS) -> ScheduledJob:
        """Publish a job of the schedule now, whatever its times, pause and policies say. Durable
        when it returns.

        Raises:
            UnknownSchedule, UnknownQueue, UnknownTopic, NotAuthorized, and what a publish raises.
        """
        with self._audit.act(principal, "schedule.run", _GROUP, self._queue_of(name), schedule=safe(name)):
            entry = self._changeable(name, principal)
            settings, state = entry.definition.settings, entry.state
            self._require_target(principal, settings)
            topic = self._targets.find(settings, principal).topic
            partition = partition_of(topic, name, settings.key)
            job = DueJob(entry, settings, state, self._clock.wall_ms(), state.cursor_ms)
            published = await partition.publish(self._waves.build([job]), -1, is_built_here=True)
            number = partition.id.partition
            state.place(topic.id.bytes, number, published.base_offset)
            state.last_ms = job.tick_ms
            entry.counts.jobs += 1
            self._registry.changed(entry)
            try:
                await self._registry.write(())
            except SparrowError as error:  # the job is there; a later write stores its place
                _LOG.warning("the state of schedule %r is not stored yet: %s", name, error.text)
            return ScheduledJob(topic.name, number, published.base_offset)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────

    def describe(self, name: str, *, principal: Principal = ANONYMOUS) -> ScheduleDescription:
        """Return a schedule with its next times.

        Raises:
            UnknownSchedule, NotAuthorized
        """
        self._require(principal, Operation.DESCRIBE, name)
        return self._shown(self._registry.get(name))

    async def listing(
        self, pattern: str = "*", *, queue: str = "", principal: Principal = ANONYMOUS
    ) -> Sequence[ScheduleDescription]:
        """Return the schedules that the principal may describe, by name.

        Args:
            pattern: only those whose name matches (`*` and `?`).
            queue: only those of this queue; "": of all.
        """
        matches = compile_any_pattern(pattern).match
        allows = self._access.allows
        found = []
        for entry in sorted(self._registry, key=lambda each: each.name):
            of_queue = entry.definition.settings.queue
            if (pattern == "*" or matches(entry.name)) and queue in ("", of_queue):
                if not allows(principal, Operation.DESCRIBE, _GROUP, of_queue):
                    continue
                found.append(self._shown(entry))
                if len(found) % _DESCRIBED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return found

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _shown(self, entry: ScheduleEntry) -> ScheduleDescription:
        return describe(entry, self._targets.problem(entry), self._clock.wall_ms())

    def _queue_of(self, name: str) -> str:
        """Return the queue of a schedule; its own name for a missing one."""
        entry = self._registry.find(name)
        return name if entry is None else entry.definition.settings.queue

    def _changeable(self, name: str, principal: Principal) -> ScheduleEntry:
        self._require(principal, Operation.ALTER_CONFIGS, name)
        return self._registry.get(name)

    def _require(self, principal: Principal, operation: Operation, name: str) -> None:
        """Raise NotAuthorized unless the principal may do this to the queue of a schedule.

        The error is the same for a missing schedule, and does not name the queue.
        """
        queue = self._queue_of(name)
        if not self._access.allows(principal, operation, _GROUP, queue):
            raise self._access.refusal(
                principal,
                operation,
                _GROUP,
                queue,
                text=f"{principal} is not allowed to {operation.value} Group of schedule {name[:200]!r}; an "
                "administrator can grant it, for the schedule's queue",
            )


def _check_name(name: str) -> None:
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable() or "/" in name:
        raise InvalidArgument(
            f"a schedule cannot have the name {name[:80]!r}; a name has 1 to {_MAX_NAME} printable "
            "characters without '/'"
        )
