"""Operations on schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from sparrow.frontends.admin.fields import Body, MaybeName, Name, Text, given
from sparrow.frontends.admin.operation import Arguments, Named, OperationContext
from sparrow.model.schedules import ScheduleDescription  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from sparrow.model.schedules import ScheduledJob

_Text = Text | None | UnsetType
_Duration = Annotated[
    Text | Annotated[int, Meta(ge=0, lt=1 << 53)] | UnsetType | None,
    Meta(description='With a unit, such as "15m"; a bare number is milliseconds.'),
]
_Policy = Annotated[_Text, Meta(description="skip, run_once or run_all.")]
_LongText = Annotated[str, Meta(max_length=400_000)]


class PutSchedule(Named, frozen=True):
    settings: dict[str, Any] = field(default_factory=dict)


class ListSchedules(Arguments, frozen=True):
    pattern: str = "*"
    queue: str = ""


class ScheduleSelection(Struct):
    pattern: Annotated[
        MaybeName,
        Meta(description="Only names that match: `*` matches any characters, `?` a single one."),
    ] = "*"
    queue: Annotated[MaybeName, Meta(description="Only schedules of this queue; empty: of all.")] = ""


class ScheduleForm(Body, kw_only=True):
    """Settings of a schedule: those that are left out have their defaults."""

    queue: Annotated[Name, Meta(description="The queue that gets the jobs.")]
    topic: Annotated[_Text, Meta(description="The topic of the queue that gets them, if it has several.")] = (
        UNSET
    )
    cron: Annotated[
        _Text, Meta(description='When it is due: five fields, six with seconds, or "@daily".')
    ] = UNSET
    every: Annotated[_Duration, Meta(description="Time between two jobs, instead of cron.")] = UNSET
    time_zone: Annotated[_Text, Meta(description="Time zone of cron; default: UTC.")] = UNSET
    value: Annotated[
        Any, Meta(description="The value of each job: a text, or data that is sent as JSON.")
    ] = UNSET
    value_base64: _LongText | UnsetType | None = UNSET
    key: _Text = UNSET
    headers: Annotated[dict[Name, Text], Meta(max_length=50)] | UnsetType | None = UNSET
    priority: Annotated[int, Meta(ge=0, le=9)] | UnsetType | None = UNSET
    ttl: Annotated[_Duration, Meta(description="Time after which a job that nobody took is dropped.")] = UNSET
    misfire: Annotated[_Policy, Meta(description="Jobs that were missed.")] = UNSET
    overlap: Annotated[_Policy, Meta(description="A job that is due before the last one is finished.")] = (
        UNSET
    )


class ScheduleList(Struct):
    schedules: list[ScheduleDescription]


async def put(context: OperationContext, a: PutSchedule) -> ScheduleDescription:
    """Create a schedule, or replace its settings."""
    return await context.broker.schedules.put(a.name, a.settings, principal=context.principal)


async def delete(context: OperationContext, a: Named) -> None:
    """Delete a schedule. Its jobs stay."""
    await context.broker.schedules.delete(a.name, principal=context.principal)


async def describe(context: OperationContext, a: Named) -> ScheduleDescription:
    """Describe a schedule: its settings, its next five times, and what it has done."""
    return context.broker.schedules.describe(a.name, principal=context.principal)


async def list_schedules(context: OperationContext, a: ListSchedules) -> ScheduleList:
    """List the schedules whose names match and whose queues you may describe."""
    found = await context.broker.schedules.listing(a.pattern, queue=a.queue, principal=context.principal)
    return ScheduleList(list(found))


async def pause(context: OperationContext, a: Named) -> ScheduleDescription:
    """Publish no jobs until `resume`."""
    return await context.broker.schedules.pause(a.name, principal=context.principal)


async def resume(context: OperationContext, a: Named) -> ScheduleDescription:
    """Publish jobs again after `pause`, from the next time on."""
    return await context.broker.schedules.resume(a.name, principal=context.principal)


async def run(context: OperationContext, a: Named) -> ScheduledJob:
    """Publish a job of a schedule now, and return where it is."""
    return await context.broker.schedules.run(a.name, principal=context.principal)


def settings(_: OperationContext, schedule: str, body: ScheduleForm) -> PutSchedule:
    """Return the arguments of `put`: the settings that are given."""
    return PutSchedule(schedule, given(body))
