"""`sparrow bench publish|consume|queue`: the speed of a broker on this machine, in the manner of
kafka-producer-perf-test.
"""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sparrow.cli.bench_work import Load, consume, publish, random_payloads, through_queue
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.queue_options import AsJson
from sparrow.cli.target import CommandTarget, broker_command, connecting, with_client

if TYPE_CHECKING:
    from sparrow.cli.bench_report import Figures
    from sparrow.client.client import Client

app = typer.Typer(help="Measure a broker: publishing, consuming, queues.", no_args_is_help=True)

Messages = Annotated[int, typer.Option("--messages", "-n", min=1, help="Number of messages.")]
Size = Annotated[int, typer.Option("--size", min=1, max=8 << 20, help="Bytes of each message.")]
Keys = Annotated[int, typer.Option("--keys", min=0, help="Number of different keys; 0: none.")]
Rate = Annotated[float, typer.Option("--rate", min=0, help="Messages per second; 0: as fast as they go.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]

_FSYNCED = {"all": "acknowledged on stable storage", "1": "acknowledged in the page cache", "0": "sent"}


@broker_command(app, "publish")
def publish_command(
    broker: CommandTarget,
    topic: Topic,
    *,
    messages: Messages = 1_000_000,
    size: Size = 100,
    payload_file: Annotated[
        str | None,
        typer.Option("--payload-file", help="Send the lines of a file in turn, instead of --size bytes."),
    ] = None,
    keys: Keys = 0,
    rate: Rate = 0,
    acks: Annotated[
        Literal["all", "1", "0"],
        typer.Option("--acks", help="all: on stable storage; 1: page cache; 0: nothing."),
    ] = "all",
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        typer.Option("--compression", help="Compression of batches."),
    ] = "none",
    linger_ms: Annotated[
        float, typer.Option("--linger-ms", min=0, help="Time that a batch waits to become full.")
    ] = 5,
    json: AsJson = False,
) -> int:
    """Publish messages, and print the rate and the time until they were acknowledged."""
    load = Load(messages, _payloads(size, payload_file), keys, rate)

    async def act(client: Client) -> Figures:
        return await publish(client, topic, load, acks=acks, compression=compression, linger_ms=linger_ms)

    figures = with_client(broker, act)
    if json:
        print(figures.as_json(work="publish", topic=topic, acks=acks, rate=rate))
    else:
        print(figures.sentence(_FSYNCED[acks]))
        print(figures.latency_line("from due to acknowledged" if rate else "from sent to acknowledged"))
    return FAILED if figures.failed else OK


@broker_command(app, "consume")
def consume_command(
    broker: CommandTarget,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)],
    *,
    messages: Annotated[
        int,
        typer.Option(
            "--messages", "-n", min=0, help="Number of messages; 0: those that exist when it begins."
        ),
    ] = 0,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of a group, and commit at the end.")
    ] = None,
    json: AsJson = False,
) -> int:
    """Read topics from their beginning, and print the rate."""

    async def act(client: Client) -> Figures:
        return await consume(client, topics, messages, group=group)

    figures = with_client(broker, act)
    print(figures.as_json(work="consume", topics=topics) if json else figures.sentence("read"))
    return FAILED if messages and figures.messages < messages else OK


@broker_command(app, "queue")
def queue_command(
    broker: CommandTarget,
    *,
    messages: Messages = 200_000,
    size: Size = 100,
    keys: Keys = 0,
    rate: Rate = 0,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="Number of consumers that lease and acknowledge.")
    ] = 2,
    json: AsJson = False,
) -> int:
    """Send messages through a temporary queue, which is removed at the end; each is acknowledged on
    stable storage.
    """
    load = Load(messages, random_payloads(max(size, 8)), keys, rate)
    to = broker
    name = f"bench-{uuid.uuid4().hex[:12]}"

    async def act(client: Client) -> Figures:
        await client.admin.create_queue(name)
        try:
            async with AsyncExitStack() as opened:
                others = [await opened.enter_async_context(connecting(to)) for _ in range(workers)]
                return await through_queue(client, others, name, load)
        finally:
            await client.admin.delete_queue(name)
            await client.admin.delete_topic(name)

    figures = with_client(to, act)
    if json:
        print(figures.as_json(work="queue", workers=workers, rate=rate))
    else:
        print(figures.sentence("published, leased and acknowledged, on stable storage"))
        print(figures.latency_line("from due to leased" if rate else "from sent to leased"))
    return OK


def _payloads(size_bytes: int, file: str | None) -> list[bytes]:
    if file is None:
        return random_payloads(size_bytes)
    with open(file, "rb") as opened:
        lines = [line.rstrip(b"\r\n") for line in opened]
    if not lines:
        raise typer.BadParameter(f"--payload-file {file} has no lines")
    return lines
