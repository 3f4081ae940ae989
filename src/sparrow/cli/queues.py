"""`sparrow queue …`: create, list, describe, configure, pause, purge and delete queues. Records and
dead letters have their own modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import msgspec
import typer

from sparrow.base.queue_policy import known
from sparrow.base.units import counted, format_duration
from sparrow.cli import dead_letters, queue_lease, queue_peek, queue_publish, redrive, webhooks
from sparrow.cli.confirmation import Yes, confirmed
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.queue_options import AsJson, Name
from sparrow.cli.queue_policy import Settings, policy_rows, takes_policy
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, at_broker, broker_command, with_client

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.cli.target import CommandTarget
    from sparrow.client import Client, Policy
    from sparrow.client.results import QueueDescription, QueueStatistics

app = typer.Typer(
    help="Work queues: make, list, describe and change them, look at their records, send dead letters back.",
    no_args_is_help=True,
)

_COUNTS = ("ready", "leased", "delayed", "blocked", "moving", "dead")


@app.command("create")
@takes_policy
@at_broker
def create(
    broker: CommandTarget,
    name: Name,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Topic of its records; may repeat. [QUEUE]"),
    ] = None,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Partitions of new topics; -1: the broker's default.")
    ] = -1,
    policy: Settings,
) -> int:
    """Create a queue, and the topics that are missing."""
    made = with_client(
        broker,
        lambda client: client.admin.create_queue(
            name, topic or (), policy=cast("Policy", policy), partitions=partitions
        ),
    )
    print(f"queue {made.name} made on {_topics(made)}")
    return OK


@broker_command(app, "list")
def list_queues(
    broker: CommandTarget,
    pattern: Annotated[
        str, typer.Argument(help="Only queues that match; * and ? stand for characters.")
    ] = "*",
    *,
    as_json: AsJson = False,
) -> int:
    """List queues with the number of their records."""
    found = with_client(broker, lambda client: client.admin.list_queues(pattern))
    found.sort(key=lambda each: each.name)
    if as_json:
        _print_json(found)
        return OK
    columns = ("QUEUE", "KIND", *(name.upper() for name in _COUNTS), "OLDEST", "PAUSED")
    print_table(columns, [_row(queue) for queue in found])
    return OK


def _row(queue: QueueDescription) -> tuple[object, ...]:
    statistics = queue.statistics
    counts = (getattr(statistics, name) for name in _COUNTS)
    paused = "yes" if queue.is_paused else "no"
    return queue.name, queue.kind, *counts, _age(statistics.oldest_ms), paused


@broker_command(app, "describe")
def describe(broker: CommandTarget, name: Name, *, as_json: AsJson = False) -> int:
    """Show a queue's statistics, consumers and policy."""
    queue = with_client(broker, lambda client: client.admin.describe_queue(name))
    if as_json:
        _print_json([queue])
        return OK
    paused = ", paused" if queue.is_paused else ""
    print(f"{queue.kind} {queue.name} on {_topics(queue)}, id {queue.id}{paused}")
    statistics = queue.statistics
    print_table(("STATISTIC", "VALUE"), _statistics_rows(statistics))
    if len(statistics.oldest_by_priority) > 1:
        ages = sorted(statistics.oldest_by_priority.items(), reverse=True)
        print_table(("PRIORITY", "OLDEST"), [(level, _age(oldest_ms)) for level, oldest_ms in ages])
    if statistics.subscribers:
        rows = [(name, s.ready, s.leased, s.delayed, s.blocked) for name, s in statistics.subscribers.items()]
        print_table(("SUBSCRIBER", "READY", "LEASED", "DELAYED", "BLOCKED"), rows)
    if statistics.consumers:
        consumers = [(c.consumer_id, c.client_name, c.subscriber, c.leased) for c in statistics.consumers]
        print_table(("CONSUMER", "CLIENT", "SUBSCRIBER", "LEASED"), consumers)
    print_table(("SETTING", "VALUE"), policy_rows(queue.policy))
    return OK


def _statistics_rows(statistics: QueueStatistics) -> list[tuple[str, object]]:
    shown: list[tuple[str, object]] = []
    for name, value in msgspec.structs.asdict(statistics).items():
        if isinstance(value, float):
            shown.append((name.replace("_rate", " per second"), f"{value:.1f}"))
        elif name == "oldest_ms":
            shown.append(("oldest", _age(value)))
        elif isinstance(value, int):
            shown.append((name, value))
    return shown


@app.command("configure")
@takes_policy
@at_broker
def configure(
    broker: CommandTarget,
    name: Name,
    *,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Back to the default; may repeat.")
    ] = None,
    policy: Settings,
) -> int:
    """Change a queue's policy."""
    if not policy and not unset:
        raise typer.BadParameter("say what to change, such as --lease 1m, --set NAME=VALUE or --unset NAME")
    queue = with_client(
        broker,
        lambda client: client.admin.configure_queue(name, set=cast("Policy", policy), unset=unset or []),
    )
    names = [known(key).name for key in (*policy, *(unset or []))]
    changed = {name: queue.policy[name] for name in names}
    print(
        f"queue {name} is configured: {', '.join(f'{name}={value}' for name, value in policy_rows(changed))}"
    )
    return OK


app.command("publish")(queue_publish.publish)
app.command("lease")(queue_lease.lease)
app.command("peek")(queue_peek.peek)
app.command("dead-letters")(dead_letters.dead_letters)
app.command("redrive")(redrive.redrive)
app.command("subscribe")(webhooks.subscribe)
app.command("unsubscribe")(webhooks.unsubscribe)
app.command("subscribers")(webhooks.subscribers)
app.command("rotate-secret")(webhooks.rotate_secret)

Webhook = Annotated[
    str | None,
    typer.Option("--webhook", metavar="NAME", help="Only the deliveries to this URL (see `subscribers`)."),
]


@broker_command(app, "pause")
def pause(broker: CommandTarget, name: Name, webhook: Webhook = None) -> int:
    """Deliver nothing more until it is resumed; what is leased may be acknowledged."""
    _pause(broker, name, webhook, is_paused=True)
    return OK


@broker_command(app, "resume")
def resume(broker: CommandTarget, name: Name, webhook: Webhook = None) -> int:
    """Deliver again."""
    _pause(broker, name, webhook, is_paused=False)
    return OK


def _pause(to: CommandTarget, name: str, webhook: str | None, *, is_paused: bool) -> None:
    async def act(client: Client) -> None:
        if webhook is not None:
            await webhooks.set_paused(client, name, webhook, is_paused=is_paused)
        elif is_paused:
            await client.admin.pause_queue(name)
        else:
            await client.admin.resume_queue(name)

    with_client(to, act)
    what = f"queue {name}" if webhook is None else f"webhook {webhook} of queue {name}"
    print(f"{what} {'paused' if is_paused else 'resumed'}")


@broker_command(app, "purge")
def purge(broker: CommandTarget, name: Name, *, yes: Yes = False) -> int:
    """Finish all records that are not leased, without delivering them. They stay in their
    topics.
    """
    if not confirmed(f"Finish all records of queue {name} that nobody has leased?", yes=yes):
        return FAILED
    purged = with_client(broker, lambda client: client.admin.purge_queue(name))
    print(f"queue {name} purged of {counted(purged, 'record')}")
    return OK


@broker_command(app, "delete")
def delete(broker: CommandTarget, name: Name, *, yes: Yes = False) -> int:
    """Delete a queue with its state of each record. Its topics and dead letters stay."""
    if not confirmed(f"Delete queue {name} with what it knows of each record?", yes=yes):
        return FAILED
    with_client(broker, lambda client: client.admin.delete_queue(name))
    print(f"queue {name} deleted")
    return OK


def _topics(queue: QueueDescription) -> str:
    return f"{'topic' if len(queue.topics) == 1 else 'topics'} {', '.join(queue.topics) or 'none'}"


def _age(age_ms: int) -> str:
    """Return an age in whole seconds, as a longer text is no easier to read; "-" where there is
    none.
    """
    if age_ms < 0:
        return "-"
    return format_duration(age_ms if age_ms < 1000 else age_ms // 1000 * 1000)


def _print_json(queues: Iterable[QueueDescription]) -> None:
    for queue in queues:
        print(msgspec.json.encode(queue).decode())
