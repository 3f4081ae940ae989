"""`sparrow queue subscribe`, `unsubscribe`, `subscribers` and `rotate-secret`: subscribers of
queues that are URLs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from sparrow.base.errors import InvalidArgument, InvalidConfig, UnknownWebhook
from sparrow.base.units import format_duration, parse_duration_ms
from sparrow.cli.exits import OK
from sparrow.cli.queue_options import AsJson, Name
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, at_broker, read_password_file, with_client
from sparrow.cli.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.client import Client
    from sparrow.client.results import WebhookDescription

Endpoint = Annotated[
    str, typer.Argument(metavar="URL", help="Where records are POSTed to.", show_default=False)
]
Subscriber = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The webhook's name, as `subscribers` shows it.", show_default=False),
]
SecretFile = Annotated[
    str | None,
    typer.Option(
        "--secret-file", metavar="FILE", help="Sign with the secret in this file (-: standard input)."
    ),
]


def _duration(flag: str, text: str) -> Any:
    return typer.Option(flag, metavar="DURATION", help=text)


@at_broker
def subscribe(
    broker: CommandTarget,
    name: Name,
    endpoint: Endpoint,
    *,
    called: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="The webhook's name. [host and path of the URL]"),
    ] = None,
    all_of: Annotated[
        bool,
        typer.Option("--all-of", help="Make it a subscriber of the queue: each of them gets every record."),
    ] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="raw, json, cloudevents, cloudevents-binary or syncbrok. [raw]"
        ),
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(
            "--accept", metavar="WHAT", help="Responses that accept a delivery: 2xx or body-true. [2xx]"
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="Sent with each delivery; may repeat."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="N", help="Deliveries at a time. [8]")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="Deliveries per second; 0: no limit. [0]")
    ] = None,
    timeout: Annotated[str | None, _duration("--timeout", "Maximum time for a response. [10s]")] = None,
    backoff_delay: Annotated[
        str | None, _duration("--backoff-delay", "The delay after a first failure; it doubles. [the queue's]")
    ] = None,
    backoff_max: Annotated[str | None, _duration("--backoff-max", "The longest delay. [10m]")] = None,
    jitter: Annotated[
        float | None, typer.Option("--jitter", metavar="SHARE", help="Vary delays by up to this share. [0.2]")
    ] = None,
    pause_after: Annotated[
        int | None,
        typer.Option("--pause-after", metavar="N", help="Failures in a row after which it is paused. [10]"),
    ] = None,
    secret_file: SecretFile = None,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Do not sign deliveries.")] = False,
    as_json: AsJson = False,
) -> int:
    """Deliver a queue's records to a URL, or change its settings. A generated secret is shown only
    this once.
    """
    settings = {
        "format": form,
        "accept": accept,
        "headers": parse_headers(header) if header is not None else None,
        "concurrency": concurrency,
        "rate": rate,
        "timeout_ms": _milliseconds("--timeout", timeout),
        "backoff_ms": _milliseconds("--backoff-delay", backoff_delay),
        "backoff_max_ms": _milliseconds("--backoff-max", backoff_max),
        "backoff_jitter": jitter,
        "pause_after": pause_after,
    }
    chosen = {setting: value for setting, value in settings.items() if value is not None}
    secrets = _secrets(secret_file, unsigned=unsigned)

    async def act(client: Client) -> WebhookDescription:
        given = called or await _free_name(client, name, endpoint)
        return await client.admin.put_webhook(
            name, given, endpoint, add_subscriber=all_of, secrets=secrets, **chosen
        )

    made = with_client(broker, act)
    if as_json:
        _print_json([made])
        return OK
    print(f"queue {name} delivers to {made.settings['url']}, as {made.name}")
    if made.secret:
        print(f"secret (not shown again): {made.secret}")
    return OK


async def _free_name(client: Client, queue: str, endpoint: str) -> str:
    """Return the default name of a URL.

    Raises:
        InvalidArgument: another URL has it.
    """
    made = name_of(endpoint)
    try:
        there = await client.admin.describe_webhook(queue, made)
    except UnknownWebhook:
        return made
    if there.settings["url"] != endpoint:
        raise InvalidArgument(
            f"queue {queue!r} has a webhook {made!r} for {there.settings['url']}; give this one "
            "another name with --name"
        )
    return made


def name_of(endpoint: str) -> str:
    """Return host and path of a URL as one word; the broker checks what is no URL."""
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        return "webhook"
    words = [parts.netloc, *parts.path.split("/")]
    return "-".join(filter(None, words))[:200] or "webhook"


def parse_headers(texts: Iterable[str]) -> dict[str, str]:
    """Parse headers from texts such as "Authorization: Bearer abc".

    Raises:
        typer.BadParameter: a text without ":".
    """
    headers = {}
    for text in texts:
        header, colon, value = text.partition(":")
        if not colon or not header.strip():
            raise typer.BadParameter(f"{text!r} is not 'NAME: VALUE'")
        headers[header.strip()] = value.strip()
    return headers


def _milliseconds(flag: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise InvalidConfig(f"{flag} cannot be {text!r}: {error}") from None


def _secrets(file: str | None, *, unsigned: bool) -> list[str] | None:
    if unsigned and file is not None:
        raise typer.BadParameter("--unsigned and --secret-file say the opposite; give one of them")
    if unsigned:
        return []
    return None if file is None else [read_password_file(file)]


@at_broker
def unsubscribe(
    broker: CommandTarget,
    name: Name,
    subscriber: Subscriber,
    *,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Let it stay a subscriber of an all-of queue, whose records wait for it."
        ),
    ] = False,
) -> int:
    """Stop delivering a queue's records to a URL. An all-of queue no longer waits for this
    subscriber.
    """
    with_client(
        broker,
        lambda client: client.admin.delete_webhook(name, subscriber, remove_subscriber=not keep),
    )
    print(f"queue {name} delivers to {subscriber} no longer")
    return OK


@at_broker
def subscribers(
    broker: CommandTarget,
    name: Name,
    *,
    as_json: AsJson = False,
) -> int:
    """List the URLs that a queue's records are delivered to, with their state."""
    found = with_client(broker, lambda client: client.admin.list_webhooks(name))
    if as_json:
        _print_json(found)
        return OK
    columns = ("NAME", "URL", "FORMAT", "STATE", "DELIVERED", "FAILED", "LAST ERROR")
    print_table(columns, [_row(each) for each in found])
    return OK


def _row(webhook: WebhookDescription) -> tuple[object, ...]:
    statistics = webhook.statistics
    state = statistics.state
    if statistics.until_ms >= 0:
        state = f"{state} until {format_time(statistics.until_ms)}"
    error = webhook.paused_because or statistics.last_error or "-"
    settings = webhook.settings
    return (
        webhook.name,
        settings["url"],
        settings["format"],
        state,
        statistics.delivered,
        statistics.failed,
        error,
    )


@at_broker
def rotate_secret(
    broker: CommandTarget,
    name: Name,
    subscriber: Subscriber,
    *,
    secret_file: SecretFile = None,
    keep: Annotated[
        str, typer.Option("--keep", metavar="DURATION", help="Time for which the old secrets also sign. [1d]")
    ] = "1d",
    as_json: AsJson = False,
) -> int:
    """Sign the deliveries to a URL with a new secret, which is shown only this once; the old ones
    also sign for a while.
    """
    keep_ms = _milliseconds("--keep", keep) or 0
    secret = None if secret_file is None else read_password_file(secret_file)
    rotated = with_client(
        broker,
        lambda client: client.admin.rotate_webhook_secret(name, subscriber, secret, keep_ms=keep_ms),
    )
    if as_json:
        _print_json([rotated])
        return OK
    print(f"{subscriber} of queue {name} has a new secret; the old ones sign for {format_duration(keep_ms)}")
    if rotated.secret:
        print(f"secret (not shown again): {rotated.secret}")
    return OK


async def set_paused(client: Client, queue: str, subscriber: str, *, is_paused: bool) -> None:
    """Pause or resume deliveries to a URL."""
    change = client.admin.pause_webhook if is_paused else client.admin.resume_webhook
    await change(queue, subscriber)


def _print_json(webhooks: Iterable[WebhookDescription]) -> None:
    for webhook in webhooks:
        print(msgspec.json.encode(webhook).decode())
