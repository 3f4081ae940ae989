"""Options of login and TLS behind a command's name, as well as before it.

They are declared once, for `sparrow` itself; each command that talks to a broker (it has `--url`)
also takes them, and the value behind the command wins. An option that a command uses for another
purpose keeps that meaning there (`sparrow quota set --user NAME`).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperOption

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES: Final = ("user", "password_file", "ca_file", "certificate_file", "key_file")


def take_login_options(root: Any) -> None:
    """Let all commands below `root` take its login options. Commands are changed in place."""
    options = [option for option in root.params if option.name in NAMES]
    for command in _leaves(root):
        if any(param.name == "url" for param in command.params):
            command.params += [
                _behind(option)
                for option in options
                if isinstance(option, TyperOption) and _is_free(option, command)
            ]


def _leaves(command: Any) -> Iterator[Any]:
    if not hasattr(command, "commands"):
        yield command
        return
    for inner in command.commands.values():
        yield from _leaves(inner)


def _is_free(option: TyperOption, command: Any) -> bool:
    taken = {flag for param in command.params for flag in param.opts}
    return taken.isdisjoint(option.opts)


def _behind(option: TyperOption) -> TyperOption:
    """Return the same option for a command: its value becomes that of `sparrow`."""
    same = copy.copy(option)
    same.expose_value = False
    same.callback = _keep
    return same


def _keep(context: Any, param: Any, value: Any) -> Any:
    if value is not None:
        context.find_root().params[param.name] = value
    return value
