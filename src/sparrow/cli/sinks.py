"""`sparrow sink …`: list, describe and delete sinks, into which data pipelines write their
batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sparrow.base.units import format_duration
from sparrow.cli.confirmation import Yes, confirmed
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.queue_options import AsJson
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, broker_command, with_client
from sparrow.cli.times import format_time

if TYPE_CHECKING:
    from sparrow.client.results import SinkDescription

app = typer.Typer(
    help="List, describe and delete sinks, which data pipelines write their batches into.",
    no_args_is_help=True,
)

Sink = Annotated[str, typer.Argument(metavar="SINK", help="The sink's id.", show_default=False)]


@broker_command(app, "list")
def list_sinks(broker: CommandTarget, *, as_json: AsJson = False) -> int:
    """List sinks: their owner, the last committed batch, and the number of open stages."""
    found = with_client(broker, lambda client: client.admin.list_sinks())
    if as_json:
        for each in found:
            print(msgspec.json.encode(each).decode())
        return OK
    rows = [
        (
            each.sink,
            each.kind,
            each.query or "-",
            _batch(each),
            each.open_stages,
            format_time(each.updated_ms),
        )
        for each in found
    ]
    print_table(("SINK", "KIND", "QUERY", "LAST BATCH", "OPEN STAGES", "CHANGED"), rows)
    return OK


@broker_command(app, "describe")
def describe(broker: CommandTarget, sink: Sink, *, as_json: AsJson = False) -> int:
    """Show a sink, with the stages of the batch that is being written."""
    found = with_client(broker, lambda client: client.admin.describe_sink(sink))
    if as_json:
        print(msgspec.json.encode(found).decode())
        return OK
    print(
        f"sink {found.sink} ({found.kind}): last batch {_batch(found)}, changed "
        f"{format_time(found.updated_ms)}"
    )
    print(f"query {found.query or '-'}, run {found.run} (epoch {found.epoch})")
    if found.past_runs:
        print(f"fenced runs: {', '.join(found.past_runs)}")
    rows = [
        (
            each.stage,
            each.batch,
            each.task,
            each.attempt,
            f"{each.producer_id}/{each.producer_epoch}",
            ", ".join(f"{topic}-{partition}" for topic, partition in each.partitions) or "-",
            format_duration(each.left_ms),
        )
        for each in found.stages
    ]
    if rows:
        print_table(("STAGE", "BATCH", "TASK", "ATTEMPT", "PRODUCER", "PARTITIONS", "EXPIRES IN"), rows)
    return OK


@broker_command(app, "delete")
def delete(broker: CommandTarget, sink: Sink, *, yes: Yes = False) -> int:
    """Delete a sink with its record of committed batches, and drop what is staged. A query that
    continues with it may write a batch twice.
    """
    if not confirmed(f"Forget sink {sink} and which batches it committed?", yes=yes):
        return FAILED
    dropped = with_client(broker, lambda client: client.admin.delete_sink(sink))
    print(f"deleted sink {sink}" + (f"; {dropped} open stages were dropped" if dropped else ""))
    return OK


def _batch(sink: SinkDescription) -> str:
    return str(sink.last_batch) if sink.last_batch >= 0 else "-"
