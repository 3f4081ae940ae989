"""Webhooks of the configuration file: a name, and a URL with settings.

The settings are those of `broker.webhooks.endpoint`, which also checks them. Durations may be
written with units (`timeout_ms: 5s`), also under the name without `_ms`. A secret is in the file
itself, or better in a separate file. The configuration may mark an endpoint as trusted: then its
address may be private.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from sparrow.base.errors import SparrowError
from sparrow.base.faults import misfit
from sparrow.base.settings import BOOLEAN, PATH, TEXT_SCHEMA, TEXTS_SCHEMA, Kind
from sparrow.base.shapes import NAME, Part, Section, named
from sparrow.base.units import parse_duration_ms
from sparrow.broker.webhooks.endpoint import TABLE, WORDS, check_secrets, new_settings
from sparrow.server.bootstrap.settings import part_of, without_aliases

ALIASES = {**WORDS, "backoff": "backoff_ms", "secret": "secrets"}
"""Other names of settings; `backoff` is the first name of `backoff_delay`."""
_MAX_SECRET_FILE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class EndpointDeclaration:
    """A declared endpoint of a queue."""

    name: str
    settings: Mapping[str, object]
    secrets: tuple[str, ...] | None = field(repr=False)
    """Secrets, the newest first. Empty: nothing is signed. None: the endpoint keeps its secrets, or
    one is generated.
    """
    is_trusted: bool


class SubscriberDeclaration(Struct, frozen=True):
    """A declared subscriber of an "all of" queue; `endpoint` None: consumers lease its records."""

    name: str
    endpoint: EndpointDeclaration | None


def _read_secrets(given: object) -> tuple[str, ...]:
    try:
        return tuple(each.text for each in check_secrets(given))
    except SparrowError as error:
        raise misfit(error.text) from None


def _read_secret_file(given: object) -> tuple[str, ...]:
    path = PATH.read(given)
    try:
        with open(path, encoding="ascii") as file:
            lines = file.read(_MAX_SECRET_FILE_BYTES).split()
    except OSError as error:
        raise misfit(f"the file {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise misfit(f"the file {path} is no text of secrets, one in each line") from None
    if not lines:
        raise misfit(f"the file {path} is empty; it has one secret in each line, the newest first")
    return _read_secrets(lines)


def _check(name: str, value: object) -> object:
    if name.endswith("_ms") and isinstance(value, str):
        value = parse_duration_ms(value)
    # YAML makes numbers of digits, and true of on
    if name == "headers" and isinstance(value, Mapping):
        value = {key: _header_text(text) for key, text in value.items()}
    given = {"url": "https://example.org", name: value}
    return new_settings(given).values()[name]


def _header_text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_SETTINGS = {name: part_of(each, name, _check) for name, each in TABLE.by_name.items()}
_PARTS = {
    **_SETTINGS,
    **{alias: _SETTINGS[name] for alias, name in ALIASES.items() if name != "secrets"},
    "secrets": Part(Kind("secrets", _read_secrets, schema=TEXTS_SCHEMA), is_secret=True),
    "secret": Part(Kind("secret", _read_secrets, schema=TEXTS_SCHEMA), is_secret=True),
    "secret_file": Part(Kind("path", _read_secret_file, schema=TEXT_SCHEMA)),
    "trusted": Part(BOOLEAN),
}


def _endpoint(values: dict[str, Any]) -> EndpointDeclaration:
    values = without_aliases(values, ALIASES)
    name = check_name(values.pop(NAME))
    if "url" not in values:
        raise misfit("a webhook needs a url, such as https://example.org/hook")
    if "secrets" in values and "secret_file" in values:
        raise misfit("the secrets of a webhook are here or in secret_file, not both")
    secrets = values.pop("secrets", values.pop("secret_file", None))
    is_trusted = values.pop("trusted", False)
    return EndpointDeclaration(name, values, secrets, is_trusted)


def _subscriber(values: dict[str, Any]) -> SubscriberDeclaration:
    if "url" in values:
        return SubscriberDeclaration(values[NAME], _endpoint(values))
    if len(values) > 1:
        raise misfit("a subscriber that has no url has no settings; it is a name for consumers that come")
    return SubscriberDeclaration(check_name(values[NAME]), None)


def check_name(name: str) -> str:
    """Return the name if a subscriber can have it.

    Raises:
        Misfit: it cannot.
    """
    from sparrow.base.queue_policy import QueuePolicy

    try:
        QueuePolicy().changed({"subscribers": [name]})
    except SparrowError:
        raise misfit(
            f"a subscriber cannot have the name {name[:80]!r}; a name has 1 to 200 printable "
            "characters without '/'"
        ) from None
    return name


SUBSCRIBERS = named(Section("a subscriber", _PARTS, "url"), _subscriber, "subscribers")
WEBHOOKS = named(Section("a webhook", _PARTS, "url"), _endpoint, "webhooks")
