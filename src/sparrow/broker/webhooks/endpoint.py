"""An endpoint of a queue: its URL, how records are POSTed to it, and what happens after failures.
Pure.

The settings are declared once, here: every frontend and the configuration file take these names,
types, limits and defaults, and `docs/webhooks.md` lists them. A URL is checked as it is written;
its address is judged at each connection (`addresses.py`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import suggestion
from sparrow.base.units import parse_duration_ms
from sparrow.broker.webhooks.addresses import maybe_address

if TYPE_CHECKING:
    import uuid

    from sparrow.broker.access.authz import Principal

RAW: Final = "raw"
JSON: Final = "json"
CLOUDEVENTS: Final = "cloudevents"
CLOUDEVENTS_BINARY: Final = "cloudevents-binary"
SYNCBROK: Final = "syncbrok"
FORMATS: Final = (RAW, JSON, CLOUDEVENTS, CLOUDEVENTS_BINARY, SYNCBROK)

STATUS: Final = "2xx"
BODY_TRUE: Final = "body-true"
ACCEPTS: Final = (STATUS, BODY_TRUE)

MAX_CONCURRENCY: Final = 256
MAX_SECRETS: Final = 5
_MAX_URL: Final = 2048
_MAX_HEADERS: Final = 32
_MAX_HEADER: Final = 4096
_DAY_MS: Final = 86_400_000
_LEAST_SECRET_BYTES: Final = 24
_MOST_SECRET_BYTES: Final = 64
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the prefix that Standard Webhooks gives secrets

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Times in milliseconds. See `docs/webhooks.md` for what each does."""

    url: str
    format: str = RAW
    accept: str = ""
    """"": by the format, as `accepts` says."""
    headers: Headers = ()
    concurrency: int = 8
    rate: float = 0.0
    timeout_ms: int = 10_000
    backoff_ms: int | None = None
    """None: the queue's policy decides, or the endpoint's default if that has no backoff."""
    backoff_max_ms: int = 600_000
    backoff_jitter: float = 0.2
    pause_after: int = 10

    @property
    def accepts(self) -> str:
        """The responses that count as accepted."""
        return self.accept or (BODY_TRUE if self.format == SYNCBROK else STATUS)

    def backoff_after(self, deliveries: int, jitter: float) -> int:
        """Return how long (ms) a record waits that was not accepted at its delivery of this number;
        doubles with each.

        Args:
            jitter: a random number from -1 to 1.
        """
        first = _DEFAULT_BACKOFF_MS if self.backoff_ms is None else self.backoff_ms
        delay = min(first << min(max(deliveries - 1, 0), 40), self.backoff_max_ms)
        return max(0, round(delay * (1 + self.backoff_jitter * jitter)))

    def values(self) -> dict[str, Any]:
        """Return all settings by name, as `changed` takes them."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        values["headers"] = dict(self.headers)
        return values

    def changed(self, settings: Mapping[str, object]) -> EndpointSettings:
        """Return these settings with changes; None means the default.

        Raises:
            InvalidConfig: no such setting, or a value that it does not take; says which there are.
        """
        return replace(self, **_checked(settings))


WORDS: Final[Mapping[str, str]] = {
    "timeout": "timeout_ms",
    "backoff_delay": "backoff_ms",
    "backoff_max": "backoff_max_ms",
    "jitter": "backoff_jitter",
}
"""Settings by the words that people write, as those of a queue's policy; both are understood
wherever settings are read.
"""
_DEFAULT_BACKOFF_MS: Final = 1_000
Check = Callable[[str, object], Any]


def new_settings(settings: Mapping[str, object]) -> EndpointSettings:
    """Return the settings of a new endpoint.

    Raises:
        InvalidConfig: as `EndpointSettings.changed`, or there is no URL.
    """
    checked = _checked(settings)
    if "url" not in checked:
        raise InvalidConfig("a webhook needs a url, such as https://example.org/hook")
    return EndpointSettings(**checked)


def _checked(settings: Mapping[str, object]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    called: dict[str, str] = {}
    for key, value in settings.items():
        name = WORDS.get(key, key)
        if name in called:
            raise InvalidConfig(f"{called[name]!r} and {key!r} are one setting; give it once")
        called[name] = key
        if value is None and name in DEFAULTS:
            checked[name] = DEFAULTS[name]
        else:
            checked[name] = _check_of(name)(key, _in_ms(name, key, value))
    return checked


def _check_of(name: str) -> Check:
    if name not in _CHECKS:
        close = suggestion(name, [*SETTINGS, *WORDS])
        raise InvalidConfig(
            f"a webhook has no setting {name!r}{close or '; there are ' + ', '.join(SETTINGS)}"
        )
    return _CHECKS[name]


def _in_ms(name: str, key: str, value: object) -> object:
    """Return a duration with a unit ("10s") as a number of milliseconds; anything else
    unchanged.
    """
    if not name.endswith("_ms") or not isinstance(value, str) or value.isdecimal():
        return value
    try:
        return parse_duration_ms(value)
    except (ValueError, OverflowError) as error:
        raise InvalidConfig(f"{key} is {_shown(value)}; it is {error}") from None


# ── the URL ───────────────────────────────────────────────────────────────────────────────────────

_HOST = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")


def _url(name: str, value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_URL:
        raise InvalidConfig(
            f"{name} must be text of 1 to {_MAX_URL} characters, such as https://example.org/hook"
        )
    if not value.isascii() or any(letter <= " " or letter in '\x7f\\"<>^`{|}' for letter in value):
        raise InvalidConfig(
            f"{name} has a space, a control character or another letter that URLs do not have; "
            "write those as %20 and so"
            " on, and names of hosts in their ASCII form"
        )
    try:
        parts = urlsplit(value)
        _check_url(name, parts)
    except ValueError as error:
        raise InvalidConfig(f"{name} is no URL: {error}") from None
    return value


def _check_url(name: str, parts: SplitResult) -> None:
    if parts.scheme not in ("http", "https"):
        raise InvalidConfig(
            f"{name} begins with {parts.scheme or 'nothing'!r}; it must be http:// or https://"
        )
    if "@" in parts.netloc:
        raise InvalidConfig(
            f"{name} has a user or password in it, which logs and listings would show; send it in "
            "a header of the webhook"
            " (setting headers)"
        )
    if parts.fragment:
        raise InvalidConfig(f"{name} has a fragment (#…), which is never sent; leave it out")
    if parts.port == 0:
        raise InvalidConfig(f"{name} has port 0")
    if "[" in parts.netloc and maybe_address(parts.hostname or "") is None:
        raise InvalidConfig(
            f"{name} has {parts.netloc[:80]!r} for a host; an address in brackets is an IPv6 address"
        )
    _check_host(name, parts.hostname or "")


def _check_host(name: str, host: str) -> None:
    if not host:
        raise InvalidConfig(f"{name} has no host")
    if maybe_address(host) is not None:
        return
    if len(host) > 253 or not _HOST.fullmatch(host):
        raise InvalidConfig(f"{name} has {host[:80]!r} for a host, which is neither a name nor an address")
    if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        # What resolvers make of 2130706433, 0x7f.1 or 0177.0.0.1 is an address in disguise.
        raise InvalidConfig(f"{name} has {host!r} for a host; write an IPv4 address as four decimal numbers")


# ── other settings ────────────────────────────────────────────────────────────────────────────────


def _integer(low: int, high: int) -> Check:
    def check(name: str, value: object) -> int:
        if isinstance(value, str) and value.isdecimal() and len(value) < 20:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise InvalidConfig(f"{name} is {_shown(value)}; it is a whole number from {low} to {high}")
        return value

    return check


def _decimal(low: float, high: float) -> Check:
    def check(name: str, value: object) -> float:
        try:
            number = -1.0 if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if not low <= number <= high:
            raise InvalidConfig(f"{name} is {_shown(value)}; it is a number from {low:g} to {high:g}")
        return number

    return check


def _choice(choices: tuple[str, ...]) -> Check:
    def check(name: str, value: object) -> str:
        if value not in choices:
            raise InvalidConfig(f"{name} is {_shown(value)}; it is one of {', '.join(filter(None, choices))}")
        return str(value)

    return check


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_RESERVED: Final = frozenset(
    {
        "host",
        "connection",
        "content-length",
        "content-type",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "keep-alive",
        "accept-encoding",
        "content-encoding",
    }
)
_RESERVED_PREFIXES: Final = ("webhook-", "sparrow-", "ce-", "proxy-")


def _headers(name: str, value: object) -> Headers:
    if isinstance(value, list | tuple) and all(
        isinstance(each, list | tuple) and len(each) == 2 and isinstance(each[0], str) for each in value
    ):
        value = dict(value)
    if not isinstance(value, Mapping) or len(value) > _MAX_HEADERS:
        raise InvalidConfig(f"{name} must be at most {_MAX_HEADERS} names with their values")
    return tuple(_header(header, text) for header, text in value.items())


def _header(header: object, text: object) -> tuple[str, str]:
    if not isinstance(header, str) or not _TOKEN.fullmatch(header):
        raise InvalidConfig(f"headers: {_shown(header)} is no name of an HTTP header")
    if header.lower() in _RESERVED or header.lower().startswith(_RESERVED_PREFIXES):
        raise InvalidConfig(f"headers: {header!r} is set by the broker itself; leave it out")
    if (
        not isinstance(text, str)
        or len(text) > _MAX_HEADER
        or text != text.strip()
        or not all(" " <= letter <= "~" for letter in text)
    ):
        raise InvalidConfig(
            f"headers: the value of {header!r} must be at most {_MAX_HEADER} printable ASCII characters"
        )
    return header, text


_CHECKS: Final[dict[str, Check]] = {
    "url": _url,
    "format": _choice(FORMATS),
    "accept": _choice(("", *ACCEPTS)),
    "headers": _headers,
    "concurrency": _integer(1, MAX_CONCURRENCY),
    "rate": _decimal(0, 1_000_000),
    "timeout_ms": _integer(100, 600_000),
    "backoff_ms": _integer(0, _DAY_MS),
    "backoff_max_ms": _integer(0, 30 * _DAY_MS),
    "backoff_jitter": _decimal(0, 1),
    "pause_after": _integer(1, 1_000_000),
}
DEFAULTS: Final[dict[str, Any]] = {
    field.name: field.default for field in fields(EndpointSettings) if field.name != "url"
}
SETTINGS: Final = (*_CHECKS, "secrets")
"""The names of all settings; `secrets` is kept apart from the others, as secrets are not shown
again.
"""


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret that signs deliveries. `until_ms` (wall): it expires then; 0: never."""

    text: str
    until_ms: int = 0

    @property
    def key(self) -> bytes:
        return _decoded(self.text)


def make_secret(random: bytes) -> str:
    """Return random bytes as a secret in the form of Standard Webhooks."""
    return _SECRET_PREFIX + base64.b64encode(random).decode()


def _decoded(secret: str) -> bytes:
    """Return the key of a secret; some are written without padding."""
    text = secret.removeprefix(_SECRET_PREFIX)
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def check_secret(value: object) -> str:
    """Return the secret if it is valid.

    Raises:
        InvalidConfig: it is not; the message does not contain it.
    """
    if isinstance(value, str) and value.startswith(_SECRET_PREFIX) and len(value) < 200:
        try:
            key = _decoded(value)
        except (binascii.Error, ValueError):
            key = b""
        if _LEAST_SECRET_BYTES <= len(key) <= _MOST_SECRET_BYTES:
            return value
    raise InvalidConfig(
        f"a secret of a webhook is {_SECRET_PREFIX} and then {_LEAST_SECRET_BYTES} to "
        f"{_MOST_SECRET_BYTES} random bytes in"
        " base64; leave it out, and the broker makes one"
    )


def check_secrets(value: object) -> tuple[Secret, ...]:
    """Return the secrets, the newest first. Without any, deliveries are not signed.

    Raises:
        InvalidConfig
    """
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple) or len(value) > MAX_SECRETS:
        raise InvalidConfig(f"secrets must be a list of at most {MAX_SECRETS}, the newest first")
    return tuple(Secret(check_secret(each)) for each in value)


# ── the endpoint ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint as it is stored."""

    queue: str
    name: str
    queue_id: uuid.UUID
    settings: EndpointSettings
    secrets: tuple[Secret, ...]
    owner: Principal
    """The principal that put it last: the endpoint gets what this principal may read."""
    is_trusted: bool = False
    """True if it may have a private address."""
    is_paused: bool = False
    paused_because: str = ""
    created_ms: int = -1

    @property
    def key(self) -> tuple[str, str]:
        return self.queue, self.name

    def live_secrets(self, now_ms: int) -> tuple[Secret, ...]:
        """Return the secrets that sign now."""
        return tuple(each for each in self.secrets if not each.until_ms or each.until_ms > now_ms)
