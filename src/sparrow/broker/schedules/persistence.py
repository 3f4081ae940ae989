"""Schedules in the meta store.

    kind     "schedule"
    key      NAME
    value    msgpack: [version, settings by name (those that differ from the defaults), owner
             [kind, name, host], is paused, paused because, created ms]

    kind     "schedule-state"
    key      page, two hexadecimal digits: the first byte of the digest of the names on it
    value    msgpack: [version, {NAME: [cursor, last, topic id, partition, offset, waiting]}]

    kind     "schedule-plan"
    key      TOPIC ID/PARTITION
    value    msgpack: [version, producer id, first offset, [[[NAME, tick, cursor], …], …]]

A plan is there from just before its batches are appended until their effect is in the states; see
`waves.py`. Change procedure: fields are added at the end, with a default; anything else raises the
version.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from sparrow.broker import entries
from sparrow.broker.access.authz import Principal
from sparrow.broker.schedules.entry import ScheduleDefinition, ScheduleState
from sparrow.broker.schedules.settings import TABLE, ScheduleSettings
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.meta.store import Entry

KIND: Final = "schedule"
STATE_KIND: Final = "schedule-state"
PLAN_KIND: Final = "schedule-plan"
VERSION: Final = 1


class _StoredSchedule(msgspec.Struct, array_like=True):
    version: int
    settings: dict[str, Any]
    owner: tuple[str, str, str]
    is_paused: bool
    paused_because: str
    created_ms: int


class _StoredPage(msgspec.Struct, array_like=True):
    version: int
    states: dict[str, ScheduleState]


class PlannedJob(NamedTuple):
    """A job that is about to be appended."""

    name: str
    tick_ms: int
    cursor_ms: int
    """The schedule's timetable is handled up to here with this job."""


class SchedulePlan(msgspec.Struct, array_like=True):
    """Batches that are about to be appended to one partition. Each has the producer id, which no
    other batch ever has, and its number as the epoch, and is found by them after a crash.
    """

    version: int
    producer_id: int
    first_offset: int
    """End of the partition before the first batch."""
    batches: list[list[PlannedJob]]


_schedule = msgspec.msgpack.Decoder(_StoredSchedule)
_page = msgspec.msgpack.Decoder(_StoredPage)
_plan = msgspec.msgpack.Decoder(SchedulePlan)
_encode = msgspec.msgpack.Encoder().encode


def page_of(name: str) -> str:
    """Return the page on which the state of a schedule is."""
    return hashlib.blake2b(name.encode(), digest_size=1).hexdigest()


def entry_of(definition: ScheduleDefinition) -> Put:
    """Return the entry of a definition."""
    values = definition.settings.values()
    settings = {name: value for name, value in values.items() if value != TABLE.by_name[name].default}
    owner = definition.owner
    stored = _StoredSchedule(
        VERSION,
        settings,
        (owner.kind, owner.name, owner.host),
        definition.is_paused,
        definition.paused_because,
        definition.created_ms,
    )
    return Put(KIND, definition.name, _encode(stored))


def decode(entry: Entry) -> ScheduleDefinition:
    """Return the definition of an entry.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    with entries.readable(entry):
        stored = entries.read(entry, _schedule.decode, VERSION)
        kind, owner, host = stored.owner
        settings = ScheduleSettings(**TABLE.read(stored.settings))
    return ScheduleDefinition(
        entry.key,
        settings,
        Principal(owner, kind, host),
        stored.created_ms,
        stored.is_paused,
        stored.paused_because,
    )


def page_entry(page: str, states: Mapping[str, ScheduleState]) -> Put | Delete:
    """Return the write of a page of states."""
    if not states:
        return Delete(STATE_KIND, page)
    return Put(STATE_KIND, page, _encode(_StoredPage(VERSION, dict(states))))


def decode_page(entry: Entry) -> dict[str, ScheduleState]:
    """Return the states of a page.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    return entries.read(entry, _page.decode, VERSION).states


def plan_key(topic_id: uuid.UUID, partition: int) -> str:
    """Return the key of the plan of a partition."""
    return f"{topic_id.hex}/{partition}"


def plan_entry(key: str, plan: SchedulePlan) -> Put:
    """Return the write of a plan."""
    return Put(PLAN_KIND, key, _encode(plan))


def decode_plan(entry: Entry) -> tuple[uuid.UUID, int, SchedulePlan]:
    """Return topic id and partition of a plan, and the plan.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    with entries.readable(entry):
        topic_id, _, partition = entry.key.partition("/")
        return uuid.UUID(topic_id), int(partition), entries.read(entry, _plan.decode, VERSION)
