"""A queue's policy on the command line: one option for each setting, the same for `create` and `configure`; and settings in words.

The options are declared once, in `OPTIONS`; `takes_policy` gives them to a command.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sparrow.base.errors import InvalidConfig
from sparrow.base.units import format_duration, parse_duration_ms
from sparrow.cli.times import format_time, parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Settings = dict[str, Any]
"""Settings by name, as `client.admin.create_queue` takes them."""

_TIMESTAMP = "timestamp:"


class Option(NamedTuple):
    """One setting: its name, its flag, what stands behind the flag, and what it does."""

    setting: str
    flag: str
    metavar: str
    help: str


OPTIONS = (
    Option(
        "lease_ms", "--lease", "DURATION", "How long a consumer has for a record before others get it. [30s]"
    ),
    Option(
        "delivery_limit",
        "--delivery-limit",
        "N",
        "Deliveries before a record goes to the dead letters; 0: no limit. [5]",
    ),
    Option(
        "backoff",
        "--backoff",
        "KIND",
        "How the delay before another delivery grows: fixed, linear, exponential. [fixed]",
    ),
    Option("backoff_ms", "--backoff-delay", "DURATION", "The delay after the first delivery. [0s]"),
    Option("backoff_max_ms", "--backoff-max", "DURATION", "The longest delay. [10m]"),
    Option("backoff_jitter", "--jitter", "SHARE", "Vary delays by up to this share, 0 to 1. [0]"),
    Option("prefetch", "--prefetch", "N", "Records that one consumer may hold leased; 0: no limit. [0]"),
    Option("max_leased", "--max-leased", "N", "Records that all consumers may hold leased. [100000]"),
    Option("order", "--order", "ORDER", "none, key (one record of a key at a time), or parented. [none]"),
    Option(
        "expiry_ms", "--expiry", "DURATION", "Age at which a record that nobody took expires; 0: never. [0s]"
    ),
    Option(
        "dead_letter_topic",
        "--dead-letter-topic",
        "TOPIC",
        "Where records go that cannot be handled. [QUEUE.dead]",
    ),
    Option(
        "start", "--start", "WHERE", "beginning, end, or a time: the first record of the queue. [beginning]"
    ),
    Option(
        "parent_wait_ms",
        "--parent-wait",
        "DURATION",
        "How long a record waits for a parent that never came. [10m]",
    ),
    Option(
        "parent_failed",
        "--parent-failed",
        "WHAT",
        "follow the failed parent into the dead letters, or release. [follow]",
    ),
)
_SETTING = "--set"


def takes_policy(command: Callable[..., int]) -> Callable[..., int]:
    """Replace a command's parameter `policy` by an option for each setting; it gets those that were given.

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

    plain = [
        parameter(
            each.setting, str | None, None, typer.Option(each.flag, metavar=each.metavar, help=each.help)
        )
        for each in OPTIONS
    ]
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


def parse_policy(
    *,
    no_dead_letters: bool = False,
    subscriber: list[str] | None = None,
    setting: list[str] | None = None,
    **texts: str | None,
) -> Settings:
    """Settings from what the options said; names and bounds are the broker's to judge.

    Raises:
        typer.BadParameter: a setting that is given twice, or a text without "=".
        InvalidConfig: a duration or a time that is none.
    """
    said: list[tuple[str, Any]] = [
        (name, _value(name, text)) for name, text in texts.items() if text is not None
    ]
    if no_dead_letters:
        said.append(("dead_letter_topic", None))
    if subscriber:
        said.append(("subscribers", subscriber))
    for text in setting or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
        said.append((name.strip(), _value(name.strip(), value.strip())))
    settings: Settings = {}
    for name, value in said:
        if name in settings:
            raise typer.BadParameter(f"the setting {name} is given twice")
        settings[name] = value
    return settings


def _value(name: str, text: str) -> Any:
    try:
        if name.endswith("_ms"):
            return parse_duration_ms(text)
        if name == "start" and text not in {"beginning", "end"}:
            return f"{_TIMESTAMP}{parse_time_ms(text.removeprefix(_TIMESTAMP))}"
    except ValueError as error:
        raise InvalidConfig(f"{name} cannot be {text!r}: {error}") from None
    return text.split(",") if name == "subscribers" else text


def policy_rows(policy: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings with their values in words."""
    return [(name, _words(name, value)) for name, value in policy.items()]


def _words(name: str, value: Any) -> str:
    if name.endswith("_ms") and isinstance(value, int):
        return format_duration(value)
    if name == "dead_letter_topic":
        return "none" if value is None else value or "default"
    if name == "start" and str(value).startswith(_TIMESTAMP):
        return format_time(int(value.removeprefix(_TIMESTAMP)))
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
