"""`sparrow queue publish QUEUE …`: as `sparrow publish`, to the first topic of a queue."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import InvalidArgument
from sparrow.cli import publish as publishing
from sparrow.cli.queue_options import Name
from sparrow.cli.target import target, with_client

if TYPE_CHECKING:
    import typer


def publish(context: typer.Context, name: str, **options: Any) -> int:
    """Publish messages to a queue and print how many were acknowledged. Takes the options of
    `sparrow publish`.
    """
    where = target(context, options["url"], options["token"])
    queue = with_client(where, lambda client: client.admin.describe_queue(name))
    if not queue.topics:
        raise InvalidArgument(f"queue {name} has no topic yet; publish to one that it shall have")
    return publishing.publish(context, queue.topics[0], **options)


def _signature() -> inspect.Signature:
    """Return the signature of `sparrow publish`, with a queue instead of the topic."""
    signature = inspect.signature(publishing.publish, eval_str=True)
    context, topic, *options = signature.parameters.values()
    return signature.replace(parameters=[context, topic.replace(name="name", annotation=Name), *options])


publish.__signature__ = _signature()  # type: ignore[attr-defined]
publish.__annotations__ = {}
