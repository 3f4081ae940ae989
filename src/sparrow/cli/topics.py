"""`sparrow topic …`: create, list, describe, configure and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparrow.base.errors import InvalidConfig
from sparrow.base.units import format_size, plain_topic_config
from sparrow.cli.confirmation import Yes, confirmed
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, broker_command, with_client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.client import Client
    from sparrow.client.results import TopicDescription

app = typer.Typer(help="Make, list, describe, configure and delete topics.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)]
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", metavar="NAME=VALUE", help="Configuration, such as retention.ms=7d; may repeat."
    ),
]


@broker_command(app, "create")
def create(
    broker: CommandTarget,
    name: Name,
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Number of partitions; -1: the broker's default.")
    ] = -1,
    config: Config = None,
) -> int:
    """Create a topic."""
    settings = parse_pairs(config or [])
    made = with_client(
        broker,
        lambda client: client.admin.create_topic(name, partitions=partitions, config=settings),
    )
    print(f"topic {made.name} made with {_partitions(made.partition_count)}")
    return OK


@broker_command(app, "list")
def list_topics(
    broker: CommandTarget,
    pattern: Annotated[
        str, typer.Argument(help="Only topics that match; * and ? stand for characters.")
    ] = "*",
    *,
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Also messages and sizes; asks for each topic.")
    ] = False,
) -> int:
    """List topics with their partitions."""

    async def act(client: Client) -> list[TopicDescription]:
        found = sorted(await client.admin.list_topics(pattern), key=lambda each: each.name)
        return [await client.admin.describe_topic(each.name) for each in found] if long else found

    found = with_client(broker, act)
    columns = ("TOPIC", "PARTITIONS", "MESSAGES", "SIZE") if long else ("TOPIC", "PARTITIONS")
    print_table(columns, [_row(topic)[: len(columns)] for topic in found])
    return OK


def _row(topic: TopicDescription) -> tuple[str, int, int, str]:
    messages = sum(each.end_offset - each.start_offset for each in topic.partitions)
    size_bytes = sum(each.bytes for each in topic.partitions)
    return topic.name, topic.partition_count, messages, format_size(size_bytes)


@broker_command(app, "describe")
def describe(
    broker: CommandTarget,
    name: Name,
    *,
    all_config: Annotated[bool, typer.Option("--all", help="Also configuration that nobody set.")] = False,
) -> int:
    """Show a topic's partitions and configuration."""
    topic = with_client(broker, lambda client: client.admin.describe_topic(name))
    print(f"topic {topic.name}, id {topic.id}")
    partitions = [(p.partition, p.start_offset, p.end_offset, format_size(p.bytes)) for p in topic.partitions]
    print_table(("PARTITION", "START", "END", "SIZE"), partitions)
    entries = [entry for entry in topic.config if all_config or entry.source != "default"]
    if entries:
        print_table(("CONFIGURATION", "VALUE", "SOURCE"), [(e.name, e.value, e.source) for e in entries])
    return OK


@broker_command(app, "configure")
def configure(
    broker: CommandTarget,
    name: Name,
    *,
    config: Config = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Back to the default; may repeat.")
    ] = None,
) -> int:
    """Change a topic's configuration."""
    settings = parse_pairs(config or [])
    if not settings and not unset:
        raise typer.BadParameter("say what to change by --config NAME=VALUE or --unset NAME")
    topic = with_client(
        broker,
        lambda client: client.admin.configure_topic(name, set=settings, unset=unset or []),
    )
    own = ", ".join(f"{e.name}={e.value}" for e in topic.config if e.source == "topic")
    print(f"topic {name} is configured: {own or 'all defaults'}")
    return OK


@broker_command(app, "add-partitions")
def add_partitions(
    broker: CommandTarget,
    name: Name,
    *,
    total: Annotated[
        int,
        typer.Argument(metavar="TOTAL", help="New number of partitions of the topic.", show_default=False),
    ],
) -> int:
    """Add partitions to a topic. Keys may move to others; partitions cannot be removed again."""
    topic = with_client(broker, lambda client: client.admin.add_partitions(name, total))
    print(f"topic {name} has {_partitions(topic.partition_count)}")
    return OK


@broker_command(app, "delete")
def delete(broker: CommandTarget, name: Name, *, yes: Yes = False) -> int:
    """Delete a topic with all its messages."""
    if not confirmed(f"Delete topic {name} with all its messages?", yes=yes):
        return FAILED
    with_client(broker, lambda client: client.admin.delete_topic(name))
    print(f"topic {name} deleted")
    return OK


def parse_pairs(texts: list[str]) -> Mapping[str, str]:
    """Parse configuration from NAME=VALUE texts; durations and sizes may have units.

    Raises:
        typer.BadParameter: a text without "=".
        InvalidConfig: a value that is no duration or size where one is required.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
        pairs[name.strip()] = value.strip()
    try:
        return plain_topic_config(pairs)
    except ValueError as error:
        raise InvalidConfig(f"a topic takes {error}") from None


def _partitions(number: int) -> str:
    return "1 partition" if number == 1 else f"{number} partitions"
