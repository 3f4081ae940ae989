"""An endpoint of a queue: its URL, how records are POSTed to it, and what happens after failures.
Pure.

The settings are declared once, as fields of `EndpointSettings`: every frontend and the
configuration file take these names, words, ranges and defaults (`base/named_settings.py`), and
`docs/webhooks.md` lists them. A URL is checked as it is written; its address is judged at each
connection (`addresses.py`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import Fault, Misfit, shown
from sparrow.base.named_settings import SettingTable, setting
from sparrow.base.settings import Kind, choice, decimal, integer
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


# ── the URL ───────────────────────────────────────────────────────────────────────────────────────

_HOST = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")


def _fault(text: str) -> Misfit:
    """Return the error of a value; the text follows the name of the setting."""
    return Misfit([Fault((), text)])


def _read_url(given: object) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= _MAX_URL:
        raise _fault(f" must be text of 1 to {_MAX_URL} characters, such as https://example.org/hook")
    if not given.isascii() or any(letter <= " " or letter in '\x7f\\"<>^`{|}' for letter in given):
        raise _fault(
            " has a space, a control character or another letter that URLs do not have; write those as"
            " %20 and so on, and names of hosts in their ASCII form"
        )
    try:
        _check_url(urlsplit(given))
    except Misfit:
        raise
    except ValueError as error:
        raise _fault(f" is no URL: {error}") from None
    return given


def _check_url(parts: SplitResult) -> None:
    if parts.scheme not in ("http", "https"):
        raise _fault(f" begins with {parts.scheme or 'nothing'!r}; it must be http:// or https://")
    if "@" in parts.netloc:
        raise _fault(
            " has a user or password in it, which logs and listings would show; send it in "
            "a header of the webhook"
            " (setting headers)"
        )
    if parts.fragment:
        raise _fault(" has a fragment (#…), which is never sent; leave it out")
    if parts.port == 0:
        raise _fault(" has port 0")
    if "[" in parts.netloc and maybe_address(parts.hostname or "") is None:
        raise _fault(f" has {parts.netloc[:80]!r} for a host; an address in brackets is an IPv6 address")
    _check_host(parts.hostname or "")


def _check_host(host: str) -> None:
    if not host:
        raise _fault(" has no host")
    if maybe_address(host) is not None:
        return
    if len(host) > 253 or not _HOST.fullmatch(host):
        raise _fault(f" has {host[:80]!r} for a host, which is neither a name nor an address")
    if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        # Resolvers take 2130706433, 0x7f.1 and 0177.0.0.1 for addresses: they are ones in disguise.
        raise _fault(f" has {host!r} for a host; write an IPv4 address as four decimal numbers")


# ── other settings ────────────────────────────────────────────────────────────────────────────────


def _duration(low_ms: int, high_ms: int) -> Kind[int]:
    """Return the kind of a duration: a text with a unit, or a number of milliseconds."""
    number = integer(low_ms, high_ms)

    def read(given: object) -> int:
        is_plain = not isinstance(given, str) or given.isdecimal()
        duration_ms = given if is_plain else parse_duration_ms(str(given))
        try:
            return number.read(duration_ms)
        except ValueError as error:
            raise _fault(f" is {shown(duration_ms)}; it is {error}") from None

    return Kind("duration", read)


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


def _read_headers(given: object) -> Headers:
    value = given
    if isinstance(value, list | tuple) and all(
        isinstance(each, list | tuple) and len(each) == 2 and isinstance(each[0], str) for each in value
    ):
        value = dict(value)
    if not isinstance(value, Mapping) or len(value) > _MAX_HEADERS:
        raise _fault(f" must be at most {_MAX_HEADERS} names with their values")
    return tuple(_header(header, text) for header, text in value.items())


def _header(header: object, text: object) -> tuple[str, str]:
    if not isinstance(header, str) or not _TOKEN.fullmatch(header):
        raise _fault(f": {shown(header)} is no name of an HTTP header")
    if header.lower() in _RESERVED or header.lower().startswith(_RESERVED_PREFIXES):
        raise _fault(f": {header!r} is set by the broker itself; leave it out")
    if (
        not isinstance(text, str)
        or len(text) > _MAX_HEADER
        or text != text.strip()
        or not all(" " <= letter <= "~" for letter in text)
    ):
        raise _fault(f": the value of {header!r} must be at most {_MAX_HEADER} printable ASCII characters")
    return header, text


# ── the settings ──────────────────────────────────────────────────────────────────────────────────

_DEFAULT_BACKOFF_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Times in milliseconds. See `docs/webhooks.md` for what each does."""

    url: str = setting(Kind("url", _read_url))
    format: str = setting(choice(*FORMATS), RAW)
    accept: str = setting(choice("", *ACCEPTS), "")
    """"": by the format, as `accepts` says."""
    headers: Headers = setting(Kind("headers", _read_headers), ())
    concurrency: int = setting(integer(1, MAX_CONCURRENCY), 8)
    rate: float = setting(decimal(0, 1_000_000), 0.0)
    timeout_ms: int = setting(_duration(100, 600_000), 10_000, word="timeout")
    backoff_ms: int | None = setting(_duration(0, _DAY_MS), None, word="backoff_delay")
    """None: the queue's policy decides, or the endpoint's default if that has no backoff."""
    backoff_max_ms: int = setting(_duration(0, 30 * _DAY_MS), 600_000, word="backoff_max")
    backoff_jitter: float = setting(decimal(0, 1), 0.2, word="jitter")
    pause_after: int = setting(integer(1, 1_000_000), 10)

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
        return replace(self, **TABLE.read(settings))


SETTINGS: Final = (*(field.name for field in fields(EndpointSettings)), "secrets")
"""The names of all settings; `secrets` is kept apart from the others, as secrets are not shown
again.
"""
TABLE: Final = SettingTable(
    "a webhook", EndpointSettings, listed=SETTINGS, none_is_default=True, names_all=False
)
DEFAULTS: Final = {name: each.default for name, each in TABLE.by_name.items() if name != "url"}
WORDS: Final = {word: each.name for word, each in TABLE.by_word.items() if word != each.name}
"""Settings by the words that people write, as those of a queue's policy; both are understood
wherever settings are read.
"""


def new_settings(settings: Mapping[str, object]) -> EndpointSettings:
    """Return the settings of a new endpoint.

    Raises:
        InvalidConfig: as `EndpointSettings.changed`, or there is no URL.
    """
    checked = TABLE.read(settings)
    if "url" not in checked:
        raise InvalidConfig("a webhook needs a url, such as https://example.org/hook")
    return EndpointSettings(**checked)


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────


class Secret(Struct, frozen=True):
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


EndpointKey = tuple[str, str]
"""(queue, name)."""


class Endpoint(Struct, frozen=True):
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
    def key(self) -> EndpointKey:
        return self.queue, self.name

    def live_secrets(self, now_ms: int) -> tuple[Secret, ...]:
        """Return the secrets that sign now."""
        return tuple(each for each in self.secrets if not each.until_ms or each.until_ms > now_ms)
