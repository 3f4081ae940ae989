"""`sparrow group …`: list, describe, reset and delete consumer groups."""

from __future__ import annotations

from typing import Annotated

import typer

from sparrow.cli.confirmation import Yes, confirmed
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.starts import parse_start
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, broker_command, with_client

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.", show_default=False)]


@broker_command(app, "list")
def list_groups(broker: CommandTarget) -> int:
    """List groups of all kinds, with their state and members."""
    found = with_client(broker, lambda client: client.admin.list_groups())
    rows = [
        (each.group, each.type, each.state, each.members)
        for each in sorted(found, key=lambda each: each.group)
    ]
    print_table(("GROUP", "KIND", "STATE", "MEMBERS"), rows)
    return OK


@broker_command(app, "describe")
def describe(broker: CommandTarget, group: Group) -> int:
    """Show a group's members and how far it has read."""
    found = with_client(broker, lambda client: client.admin.describe_group(group))
    print(f"group {found.group} ({found.type}): {found.state}, epoch {found.epoch}")
    members = [(m.member_id, m.client_name, _assignment(m.partitions)) for m in found.members]
    if members:
        print_table(("MEMBER", "CLIENT", "PARTITIONS"), members)
    offsets = [(o.topic, o.partition, o.offset, o.end_offset, o.lag) for o in found.offsets]
    if offsets:
        print_table(("TOPIC", "PARTITION", "OFFSET", "END", "LAG"), sorted(offsets))
    return OK


@broker_command(app, "reset")
def reset(
    broker: CommandTarget,
    group: Group,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic whose offsets move.", show_default=False)
    ],
    *,
    to: Annotated[
        str,
        typer.Option("--to", help="beginning, end, an offset, or a time (ISO 8601, or ms with 13 digits)."),
    ],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this partition; may repeat.")
    ] = None,
) -> int:
    """Move a group to another position in a topic. The group must have no members."""
    start = parse_start(to)
    moved = with_client(
        broker,
        lambda client: client.admin.reset_group(group, topic, start, partitions=partition or []),
    )
    print_table(("TOPIC", "PARTITION", "OFFSET"), [(topic, *each) for each in sorted(moved.items())])
    return OK


@broker_command(app, "delete")
def delete(broker: CommandTarget, group: Group, *, yes: Yes = False) -> int:
    """Delete a group with its committed offsets. The group must have no members."""
    if not confirmed(f"Delete group {group} with its committed offsets?", yes=yes):
        return FAILED
    with_client(broker, lambda client: client.admin.delete_group(group))
    print(f"group {group} deleted")
    return OK


def _assignment(partitions: list[tuple[str, int]]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "none"
