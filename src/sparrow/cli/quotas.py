"""`sparrow quota …`: limit what clients may publish and consume per second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparrow.base.units import parse_size_bytes
from sparrow.cli.exits import OK
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, broker_command, with_client

if TYPE_CHECKING:
    from sparrow.client.results import Quota

app = typer.Typer(help="Limit what clients may publish and consume per second.", no_args_is_help=True)

BYTES = ("producer_byte_rate", "consumer_byte_rate")
NAMES = {
    "publish": "producer_byte_rate",
    "consume": "consumer_byte_rate",
    "requests": "request_percentage",
}
"""Short names; Kafka's own are also accepted."""
DEFAULT = "<default>"

User = Annotated[
    str | None,
    typer.Option(
        "--user", metavar="NAME", help=f"A user; '{DEFAULT}' is every user without a quota of his own."
    ),
]
Client = Annotated[
    str | None,
    typer.Option(
        "--client-id", metavar="ID", help=f"A client id; '{DEFAULT}' is every one without a quota of its own."
    ),
]


@broker_command(app, "set")
def set_quota(
    broker: CommandTarget,
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=LIMIT",
            help="publish=1MiB, consume=500kB (bytes per second), requests=50 (percent of the "
            "broker's time).",
            show_default=False,
        ),
    ],
    *,
    user: User = None,
    client_id: Client = None,
) -> int:
    """Limit a user, a client id, or a user's client id."""
    entity = _entity(user, client_id)
    values = dict(_limit(text) for text in limits)
    with_client(broker, lambda client: client.admin.alter_quota(entity, values))
    print(f"{_words(entity)}: {', '.join(f'{name} {_number(value)}' for name, value in values.items())}")
    return OK


@broker_command(app, "remove")
def remove(
    broker: CommandTarget,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these limits.", show_default=False)
    ] = None,
    *,
    user: User = None,
    client_id: Client = None,
) -> int:
    """Remove limits of a user, a client id, or a user's client id."""
    entity = _entity(user, client_id)
    present = {
        name
        for quota in with_client(broker, lambda client: client.admin.list_quotas())
        if quota.entity == entity
        for name in quota.values
    }
    wanted = {NAMES.get(name, name) for name in names} if names else present
    values: dict[str, float | None] = dict.fromkeys(sorted(wanted))
    if values:
        with_client(broker, lambda client: client.admin.alter_quota(entity, values))
    removed = sorted(present & wanted)
    print(
        f"{_words(entity)}: removed {', '.join(removed)}"
        if removed
        else f"{_words(entity)}: had no such limit"
    )
    return OK


@broker_command(app, "list")
def list_quotas(broker: CommandTarget) -> int:
    """List all quotas."""
    found = with_client(broker, lambda client: client.admin.list_quotas())
    print_table(("ENTITY", "LIMIT", "VALUE"), [row for quota in found for row in _rows(quota)])
    return OK


def _rows(quota: Quota) -> list[tuple[str, str, str]]:
    return [(_words(quota.entity), name, _number(value)) for name, value in quota.values.items()]


def _entity(user: str | None, client_id: str | None) -> dict[str, str | None]:
    given = {"user": user, "client-id": client_id}
    entity = {kind: None if name == DEFAULT else name for kind, name in given.items() if name is not None}
    if not entity:
        raise typer.BadParameter("say whom to limit: --user, --client-id, or both")
    return entity


def _limit(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    key = NAMES.get(name, name)
    if not equals:
        raise typer.BadParameter(f"{text!r}: NAME=LIMIT is expected, such as publish=1MiB")
    try:
        return key, float(parse_size_bytes(value)) if key in BYTES else float(value.removesuffix("%"))
    except ValueError as error:
        raise typer.BadParameter(f"{name} cannot be {value!r}: {error}") from None


def _words(entity: dict[str, str | None]) -> str:
    return ", ".join(
        f"{kind} {DEFAULT if name is None else name}" for kind, name in sorted(entity.items(), reverse=True)
    )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"
