"""A queue's policy on the command line: one option for each setting, the same for `create` and
`configure`; and settings in words.

The options follow from the settings (`base.queue_policy`); `takes_policy` adds them to a command.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import suggestion
from sparrow.base.queue_policy import WORDS, find, known
from sparrow.base.units import parse_duration_ms
from sparrow.cli.times import format_time, parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparrow.base.named_settings import Setting

Settings = dict[str, Any]
"""Settings by name, as `client.admin.create_queue` takes them."""

_TIMESTAMP = "timestamp:"


OPTIONS: Final = {word: each for word, each in WORDS.items() if each.help}
"""The settings that have an option, by word."""
_SETTING = "--set"


def takes_policy(command: Callable[..., int]) -> Callable[..., int]:
    """Replace a command's parameter `policy` by an option for each setting; it gets those that were
    given.

    Typer reads the signature of what this returns.
    """
    signature = inspect.signature(command, eval_str=True)
    options = _parameters()
    parameters = [
        replaced
        for each in signature.parameters.values()
        for replaced in (options if each.name == "policy" else [each])
    ]

    @wraps(command)
    def with_options(**given: Any) -> int:
        said = {each.name: given.pop(each.name) for each in options}
        return command(**given, policy=parse_policy(**said))

    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {}
    return with_options


def _parameters() -> list[inspect.Parameter]:
    def parameter(name: str, kind: Any, default: Any, option: Any) -> inspect.Parameter:
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
        )

    plain = [parameter(word, str | None, None, _option(word, each)) for word, each in OPTIONS.items()]
    no_dead_letters = typer.Option("--no-dead-letters", help="Drop what cannot be handled.")
    subscriber = typer.Option(
        "--subscriber",
        metavar="NAME",
        help='A subscriber of an "all of" queue, each of which handles every record; may repeat.',
    )
    setting = typer.Option(_SETTING, metavar="NAME=VALUE", help="Any setting by its own name; may repeat.")
    return [
        *plain,
        parameter("no_dead_letters", bool, False, no_dead_letters),
        parameter("subscriber", list[str] | None, None, subscriber),
        parameter("setting", list[str] | None, None, setting),
    ]


def _option(word: str, setting: Setting) -> Any:
    metavar = setting.metavar or ("DURATION" if setting.is_duration else "N")
    return typer.Option(f"--{word.replace('_', '-')}", metavar=metavar, help=help_of(setting))


def help_of(setting: Setting) -> str:
    """Return the help of a setting's option, with the default."""
    default = "" if setting.help.endswith("]") else f" [{setting.show(setting.default)}]"
    return f"{setting.help}{default}"


def parse_policy(
    *,
    no_dead_letters: bool = False,
    subscriber: list[str] | None = None,
    setting: list[str] | None = None,
    **texts: str | None,
) -> Settings:
    """Parse settings from the options; the broker checks their bounds.

    Raises:
        typer.BadParameter: a setting that is given twice, or a text without "=".
        InvalidConfig: an unknown setting, or text that is no duration, time or word of it.
    """
    said: list[tuple[str, Any]] = [(word, text) for word, text in texts.items() if text is not None]
    if no_dead_letters:
        said.append(("dead_letter_topic", None))
    if subscriber:
        said.append(("subscribers", subscriber))
    for text in setting or []:
        word, equals, value = text.partition("=")
        if not equals or not word:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
        said.append((word.strip(), value.strip()))
    settings: Settings = {}
    for word, given in said:
        name = known(word).name
        if name in settings:
            raise typer.BadParameter(f"the setting {known(word).word} is given twice")
        settings[name] = _value(known(word), word, given) if isinstance(given, str) else given
    return settings


def _value(setting: Setting, word: str, text: str) -> Any:
    """Return a value as the broker takes it; the broker checks its bounds. `word`: the name by
    which the setting was given.
    """
    try:
        if setting.is_duration:
            return parse_duration_ms(text)
        if setting.name == "start" and text not in {"beginning", "end"}:
            return f"{_TIMESTAMP}{parse_time_ms(text.removeprefix(_TIMESTAMP))}"
    except ValueError as error:
        raise InvalidConfig(f"{word} cannot be {text!r}: {error}") from None
    if setting.kind.choices and text not in setting.kind.choices:
        raise InvalidConfig(
            f"{word} cannot be {text!r}; it takes one of "
            f"{', '.join(setting.kind.choices)}{suggestion(text, setting.kind.choices)}"
        )
    return text.split(",") if setting.name == "subscribers" else text


def policy_rows(policy: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return settings, given by name, as words with their values in words."""
    return [_words(name, value) for name, value in policy.items()]


def _words(name: str, value: Any) -> tuple[str, str]:
    setting = find(name)
    if setting is None:  # a setting of a broker that is newer than this command
        return name, str(value)
    if name == "start" and str(value).startswith(_TIMESTAMP):
        return setting.word, format_time(int(value.removeprefix(_TIMESTAMP)))
    return setting.word, setting.show(value)
