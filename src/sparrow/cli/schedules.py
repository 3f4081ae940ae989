"""`sparrow schedule …`: jobs that the broker publishes to a queue at their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sparrow.base.units import format_duration
from sparrow.cli.confirmation import Yes, confirmed
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.publish import parse_headers
from sparrow.cli.queue_options import AsJson
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, broker_command, with_client
from sparrow.cli.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.client.results import ScheduleDescription

app = typer.Typer(
    help="Schedules: jobs that the broker publishes to a queue by a cron line, or every so often.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The schedule's name.", show_default=False)]
_POLICY = "skip, run_once or run_all."


@broker_command(app, "create")
def create(
    broker: CommandTarget,
    name: Name,
    queue: Annotated[
        str, typer.Argument(metavar="QUEUE", help="The queue that gets the jobs.", show_default=False)
    ],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value of each job.")] = "",
    *,
    cron: Annotated[
        str | None,
        typer.Option(
            "--cron",
            metavar="LINE",
            help="Such as '30 2 * * MON-FRI' (of six fields: seconds first), @daily.",
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="DURATION", help="Instead of --cron: such as 15m.")
    ] = None,
    time_zone: Annotated[
        str | None,
        typer.Option("--time-zone", metavar="ZONE", help="Such as Europe/Berlin. [UTC]"),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="The key of each job.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of each job; may repeat."),
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=0, max=9, help="Queues deliver 9 first. Without: 4.")
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option("--ttl", metavar="DURATION", help="Drop a job that nobody has taken after this time."),
    ] = None,
    misfire: Annotated[
        str | None,
        typer.Option("--misfire", metavar="POLICY", help=f"Jobs that were missed: {_POLICY} [run_once]"),
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap", metavar="POLICY", help=f"Due while the last job is unfinished: {_POLICY} [run_all]"
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Topic of QUEUE that gets the jobs."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Create a schedule, or replace its settings."""
    made = with_client(
        broker,
        lambda client: client.admin.put_schedule(
            name,
            queue,
            cron=cron,
            every=every,
            time_zone=time_zone,
            value=value,
            key=key,
            headers={each: text or b"" for each, text in parse_headers(header or [])} or None,
            priority=priority,
            ttl=ttl,
            misfire=misfire,
            overlap=overlap,
            topic=topic,
        ),
    )
    if as_json:
        _print_json([made])
        return OK
    print(f"schedule {made.name} publishes to {made.queue}, {_when(made)}")
    _print_next(made)
    return OK


@broker_command(app, "list")
def list_schedules(
    broker: CommandTarget,
    pattern: Annotated[
        str, typer.Argument(help="Only schedules that match; * and ? stand for characters.")
    ] = "*",
    *,
    queue: Annotated[
        str, typer.Option("--queue", "-q", metavar="QUEUE", help="Only schedules of this queue.")
    ] = "",
    as_json: AsJson = False,
) -> int:
    """List schedules with their next time."""
    found = with_client(broker, lambda client: client.admin.list_schedules(pattern, queue=queue))
    if as_json:
        _print_json(found)
        return OK
    columns = ("SCHEDULE", "QUEUE", "WHEN", "NEXT", "LAST", "JOBS", "STATE")
    print_table(columns, [_row(each) for each in found])
    return OK


def _row(schedule: ScheduleDescription) -> tuple[object, ...]:
    state = schedule.state if not schedule.problem else f"{schedule.state}: {schedule.problem}"
    return (
        schedule.name,
        schedule.queue,
        _when(schedule),
        format_time(schedule.next_ms[0]) if schedule.next_ms else "-",
        format_time(schedule.statistics.last_ms),
        schedule.statistics.jobs,
        state,
    )


@broker_command(app, "show")
def show(broker: CommandTarget, name: Name, *, as_json: AsJson = False) -> int:
    """Show a schedule: its settings, its next five times, and what it has done."""
    found = with_client(broker, lambda client: client.admin.describe_schedule(name))
    if as_json:
        _print_json([found])
        return OK
    statistics = found.statistics
    rows = [
        ("queue", found.queue + (f", topic {found.topic}" if found.topic else "")),
        ("when", _when(found)),
        ("value", found.value or (f"base64 {found.value_base64}" if found.value_base64 else "-")),
        ("key", found.key if found.key is not None else "-"),
        ("misfire", found.misfire),
        ("overlap", found.overlap),
        ("owner", found.owner),
        ("state", found.problem or found.paused_because or found.state),
        ("last", format_time(statistics.last_ms)),
        ("jobs", f"{statistics.jobs}, skipped {statistics.skipped}, failed {statistics.failed}"),
    ]
    if statistics.last_error:
        rows.append(("last error", f"{statistics.last_error} ({format_time(statistics.last_error_ms)})"))
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        print(f"{label:<{width}}  {text}")
    _print_next(found)
    return OK


@broker_command(app, "pause")
def pause(broker: CommandTarget, name: Name) -> int:
    """Publish no jobs until `resume`, also over restarts of the broker."""
    with_client(broker, lambda client: client.admin.pause_schedule(name))
    print(f"schedule {name} is paused")
    return OK


@broker_command(app, "resume")
def resume(broker: CommandTarget, name: Name) -> int:
    """Publish jobs again, from the next time on."""
    _print_next(with_client(broker, lambda client: client.admin.resume_schedule(name)))
    return OK


@broker_command(app, "run")
def run(broker: CommandTarget, name: Name) -> int:
    """Publish a job now, whatever the time."""
    job = with_client(broker, lambda client: client.admin.run_schedule(name))
    print(f"published to {job.topic}, partition {job.partition}, offset {job.offset}")
    return OK


@broker_command(app, "delete")
def delete(broker: CommandTarget, name: Name, *, yes: Yes = False) -> int:
    """Delete a schedule. Its jobs stay."""
    if not confirmed(f"Delete schedule {name}? Its jobs stay.", yes=yes):
        return FAILED
    with_client(broker, lambda client: client.admin.delete_schedule(name))
    print(f"schedule {name} deleted")
    return OK


def _when(schedule: ScheduleDescription) -> str:
    if schedule.every_ms:
        return f"every {format_duration(schedule.every_ms)}"
    return f"{schedule.cron} ({schedule.time_zone})"


def _print_next(schedule: ScheduleDescription) -> None:
    for number, time_ms in enumerate(schedule.next_ms):
        print(f"{'next' if not number else '':<5} {format_time(time_ms)}")


def _print_json(schedules: Iterable[ScheduleDescription]) -> None:
    for schedule in schedules:
        print(msgspec.json.encode(schedule).decode())
