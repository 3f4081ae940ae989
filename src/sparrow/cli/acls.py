"""`sparrow acl …`: add, list and remove access rules."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from sparrow.base.faults import suggestion
from sparrow.cli.confirmation import Yes, confirmed
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, broker_command, with_client
from sparrow.model.access import CLUSTER_NAME, OperationName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.client.results import AccessRule

app = typer.Typer(help="Add, list and remove access rules.", no_args_is_help=True)

OPERATIONS = {word.lower(): word for word in get_args(OperationName)}
_WHO = "Principal: a name, TYPE:NAME, or '*' for everybody."
_WHAT = "Operations, with commas between: read, write, describe, create, delete, alter, all, ..."

Topic = Annotated[
    str | None, typer.Option("--topic", metavar="NAME", help="A topic's name; '*' stands for all.")
]
Group = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="A consumer group's name; '*' stands for all.")
]
Queue = Annotated[
    str | None,
    typer.Option(
        "--queue",
        metavar="NAME",
        help="A queue's name; '*' stands for all. The same as --group: rules have one kind for both.",
    ),
]
TransactionalId = Annotated[
    str | None,
    typer.Option("--transactional-id", metavar="ID", help="A transactional id; '*' stands for all."),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The broker as a whole.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="All resources whose name begins with the one given.")]
Deny = Annotated[bool, typer.Option("--deny", help="A rule that forbids; it wins over all that allow.")]


@broker_command(app, "add")
def add(
    broker: CommandTarget,
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help=_WHO, show_default=False)],
    operations: Annotated[str, typer.Argument(metavar="OPERATIONS", help=_WHAT, show_default=False)],
    *,
    topic: Topic = None,
    group: Group = None,
    queue: Queue = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    deny: Deny = False,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Only from this address.")] = "*",
) -> int:
    """Allow a principal an operation, or deny it.

    A resource that some rule names is closed to all principals that no rule allows it.
    """
    from sparrow.client.results import AccessRule

    _check_address(host)
    resource = _resource(topic, group, queue, transactional_id, cluster=cluster)
    if resource is None:
        raise typer.BadParameter(
            "name what it is about: --topic, --group, --queue, --transactional-id or --cluster"
        )
    rules = [
        AccessRule(
            resource_type=resource[0],
            name=resource[1],
            principal=_principal(principal),
            operation=operation,
            permission="Deny" if deny else "Allow",
            pattern_type="Prefixed" if prefix else "Literal",
            host=host,
        )
        for operation in _operations(operations)
    ]
    with_client(broker, lambda client: client.admin.create_access_rules(rules))
    for rule in rules:
        print(_sentence(rule))
    return OK


@broker_command(app, "list")
def list_rules(
    broker: CommandTarget,
    *,
    principal: Annotated[str | None, typer.Option("--principal", metavar="PRINCIPAL", help=_WHO)] = None,
    topic: Topic = None,
    group: Group = None,
    queue: Queue = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
) -> int:
    """List rules; for a named resource all that apply to it, those for prefixes and '*'
    included.
    """
    selected = _selection(_resource(topic, group, queue, transactional_id, cluster=cluster), "Match")
    if principal is not None:
        selected["principal"] = _principal(principal)
    _print(with_client(broker, lambda client: client.admin.list_access_rules(**selected)))
    return OK


@broker_command(app, "remove")
def remove(
    broker: CommandTarget,
    principal: Annotated[
        str | None, typer.Argument(metavar="PRINCIPAL", help=_WHO, show_default=False)
    ] = None,
    operations: Annotated[
        str | None, typer.Argument(metavar="OPERATIONS", help=_WHAT, show_default=False)
    ] = None,
    *,
    topic: Topic = None,
    group: Group = None,
    queue: Queue = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    deny: Annotated[bool, typer.Option("--deny", help="Only rules that forbid.")] = False,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Only rules for this address.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All rules, if nothing else is said.")] = False,
    yes: Yes = False,
) -> int:
    """Remove the rules that have everything that is given. A named resource means rules for just
    this name or, with --prefix, this prefix.
    """
    resource = _resource(topic, group, queue, transactional_id, cluster=cluster)
    selected = _selection(resource, "Prefixed" if prefix else "Literal")
    if principal is not None:
        selected["principal"] = _principal(principal)
    if host is not None:
        selected["host"] = host
    if deny:
        selected["permission"] = "Deny"
    if not selected and operations is None and not everything:
        raise typer.BadParameter("say which rules: a principal, a resource or an address; --all for all")
    wanted = (
        [{**selected, "operation": each} for each in _operations(operations)] if operations else [selected]
    )
    if not _confirmed(broker, wanted, yes=yes):
        return FAILED
    removed = [rule for each in wanted for rule in _delete(broker, each)]
    for rule in removed:
        print(f"removed: {_sentence(rule)}")
    if not removed:
        print("no rule has all that; nothing was removed")
    return OK


def _list(broker: CommandTarget, selected: dict[str, str]) -> list[AccessRule]:
    return with_client(broker, lambda client: client.admin.list_access_rules(**selected))


def _delete(broker: CommandTarget, selected: dict[str, str]) -> list[AccessRule]:
    return with_client(broker, lambda client: client.admin.delete_access_rules(**selected))


def _confirmed(broker: CommandTarget, wanted: list[dict[str, str]], *, yes: bool) -> bool:
    rules = [] if yes else [rule for each in wanted for rule in _list(broker, each)]
    if not rules:
        return True
    _print(rules)
    return confirmed(f"Remove {len(rules)} {'rule' if len(rules) == 1 else 'rules'}?", yes=False)


def _resource(
    topic: str | None, group: str | None, queue: str | None, transactional_id: str | None, *, cluster: bool
) -> tuple[str, str] | None:
    """Return (type, name), or None if none was given."""
    named = [
        (kind, name)
        for kind, name in (
            ("Topic", topic),
            ("Group", group),
            ("Group", queue),
            ("TransactionalId", transactional_id),
        )
        if name is not None
    ]
    if cluster:
        named.append(("Cluster", CLUSTER_NAME))
    if len(named) > 1:
        raise typer.BadParameter("a rule is about one resource; name one of them")
    return named[0] if named else None


def _selection(resource: tuple[str, str] | None, pattern_type: str) -> dict[str, str]:
    if resource is None:
        return {}
    return {"resource_type": resource[0], "name": resource[1], "pattern_type": pattern_type}


def _principal(text: str) -> str:
    # A type is one word; a later colon is part of a name, such as a certificate's "CN=a,OU=urn:b".
    return text if text.partition(":")[0].isalnum() and ":" in text else f"User:{text}"


def _check_address(host: str) -> None:
    """Refuse a name or a network: such a rule would apply to no client, and one that denies would
    deny nothing.
    """
    try:
        if host != "*":
            ip_address(host)
    except ValueError:
        raise typer.BadParameter(
            f"--host takes one address, such as 10.0.0.7 or ::1, or '*' for all; not {host!r}"
        ) from None


def _operations(text: str) -> list[str]:
    words = [word.strip().lower().replace("-", "").replace("_", "") for word in text.split(",")]
    unknown = [word for word in words if word not in OPERATIONS]
    if unknown:
        raise typer.BadParameter(
            f"there is no operation {unknown[0]!r}"
            + (suggestion(unknown[0], OPERATIONS) or f"; there are {', '.join(sorted(OPERATIONS))}")
        )
    return list(dict.fromkeys(OPERATIONS[word] for word in words))


def _sentence(rule: AccessRule) -> str:
    names = f"{rule.name}..." if rule.pattern_type == "Prefixed" else rule.name
    host = "" if rule.host == "*" else f" from {rule.host}"
    may = "may" if rule.permission == "Allow" else "may not"
    return f"{rule.principal} {may} {rule.operation} {rule.resource_type} {names}{host}"


def _print(rules: Iterable[AccessRule]) -> None:
    columns = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
    print_table(
        columns,
        [
            (r.resource_type, r.name, r.pattern_type, r.principal, r.host, r.operation, r.permission)
            for r in rules
        ],
    )
