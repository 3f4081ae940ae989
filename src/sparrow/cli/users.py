"""`sparrow user …`: create, list and delete users, and change their passwords; at a running broker,
or in the data directory of a stopped one.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sparrow.base.errors import ConnectionLost, DirectoryUnreadable, InvalidArgument
from sparrow.cli.confirmation import Yes, confirmed
from sparrow.cli.exits import FAILED, OK
from sparrow.cli.tables import print_table
from sparrow.cli.target import CommandTarget, broker_command, read_password_file, with_client
from sparrow.client.security import MECHANISMS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.broker.access.users import UserService
    from sparrow.client.admin import Admin

T = TypeVar("T")

app = typer.Typer(help="Make, list and delete users, and change their passwords.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name.", show_default=False)]
Mechanism = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        help=f"Only for this one of {', '.join(MECHANISMS)}; may repeat. PLAIN works with either.",
    ),
]
NewPassword = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="File whose first line is the new password; - is stdin. Without it the terminal is "
        "asked, else stdin is read.",
    ),
]
DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="DIR", help="The data directory of a broker that does not run."),
]


@broker_command(app, "create")
def create(
    broker: CommandTarget,
    name: Name,
    *,
    password_file: NewPassword = None,
    mechanism: Mechanism = None,
    data_dir: DataDir = None,
) -> int:
    """Create a user. The password is hashed before it leaves this command."""
    mechanisms = _mechanisms(mechanism)
    password = _new_password(name, password_file)
    _act(
        broker,
        data_dir,
        lambda admin: admin.create_user(name, password, mechanisms=mechanisms),
        lambda users: users.create(_upsertions(name, password, mechanisms), principal=_system()),
        makes=True,
    )
    print(f"user {name} made")
    return OK


@broker_command(app, "password")
def set_password(
    broker: CommandTarget,
    name: Name,
    *,
    password_file: NewPassword = None,
    mechanism: Mechanism = None,
    data_dir: DataDir = None,
) -> int:
    """Set a user's password. Sessions by the old one end."""
    mechanisms = _mechanisms(mechanism)
    password = _new_password(name, password_file)
    _act(
        broker,
        data_dir,
        lambda admin: admin.set_password(name, password, mechanisms=mechanisms),
        lambda users: users.set_password(_upsertions(name, password, mechanisms), principal=_system()),
    )
    print(f"user {name} has a new password")
    return OK


@broker_command(app, "list")
def list_users(broker: CommandTarget, *, data_dir: DataDir = None) -> int:
    """List users with their mechanisms."""

    async def stored(users: UserService) -> list[Any]:
        return list(users.listing(principal=_system()))

    found = _act(broker, data_dir, lambda admin: admin.list_users(), stored)
    rows = [(user.name, ", ".join(name for name, _ in user.credentials)) for user in found]
    print_table(("USER", "MECHANISMS"), rows)
    return OK


@broker_command(app, "delete")
def delete(
    broker: CommandTarget,
    name: Name,
    *,
    yes: Yes = False,
    data_dir: DataDir = None,
) -> int:
    """Delete a user. The user's sessions end and webhooks are paused; access rules that name the
    user stay.
    """
    if not confirmed(f"Delete user {name}?", yes=yes):
        return FAILED
    _act(
        broker,
        data_dir,
        lambda admin: admin.delete_user(name),
        lambda users: users.delete(name, principal=_system()),
    )
    print(f"user {name} deleted")
    return OK


# ── where ─────────────────────────────────────────────────────────────────────────────────────────


def _act(
    broker: CommandTarget,
    data_dir: str | None,
    ask: Callable[[Admin], Awaitable[T]],
    in_data: Callable[[UserService], Awaitable[T]],
    *,
    makes: bool = False,
) -> T:
    """Act at a running broker, or in the data directory of one that does not run.

    Raises:
        ConnectionLost: no broker runs there; says what else can be done.
        DirectoryInUse: the directory's broker runs.
        DirectoryUnreadable: it is no data directory; only `create` makes one.
    """
    if data_dir is not None:
        if not makes and not os.path.exists(f"{data_dir}/format"):
            raise DirectoryUnreadable(
                f"{data_dir} is no data directory; name the one that `sparrow serve --data-dir` uses"
            )
        return asyncio.run(_in_data_dir(data_dir, in_data))
    try:
        return with_client(broker, lambda client: ask(client.admin))
    except ConnectionLost as error:
        raise ConnectionLost(
            f"{error.text}. Without a running broker, --data-dir DIR does it in the directory of a "
            "stopped one"
        ) from None


async def _in_data_dir(path: str, act: Callable[[UserService], Awaitable[T]]) -> T:
    from sparrow.broker.broker import Broker

    async with Broker(path) as broker:
        return await act(broker.users)


def _system() -> Any:
    from sparrow.broker.access.authz import SYSTEM

    return SYSTEM


def _upsertions(name: str, password: str, mechanisms: list[str]) -> Any:
    from sparrow.broker.access import credentials, scram

    return credentials.upsertions_of(name, password, [scram.Mechanism(each) for each in mechanisms])


# ── what ──────────────────────────────────────────────────────────────────────────────────────────


def _mechanisms(given: list[str] | None) -> list[str]:
    chosen = [each.upper() for each in given or MECHANISMS]
    unknown = next((each for each in chosen if each not in MECHANISMS), None)
    if unknown is not None:
        raise InvalidArgument(f"there is no mechanism {unknown}; there are {', '.join(MECHANISMS)}")
    return list(dict.fromkeys(chosen))


def _new_password(name: str, file: str | None) -> str:
    """Read the password from the file, the terminal or stdin; never from the command line, which
    other users of the machine can read.
    """
    if file is not None:
        return read_password_file(file)
    if not sys.stdin.isatty():
        return read_password_file("-")
    password: str = typer.prompt(f"New password of {name}", hide_input=True, confirmation_prompt=True)
    return password
