"""Logins of browsers: a cookie with a random number, which stands for the principal that logged in.

The cookie cannot be read by scripts (`HttpOnly`), is sent by pages of this origin alone
(`SameSite=Strict`), and over TLS never in clear (`Secure`). Cookies are shared by all ports of a
host, so its name has the port. Only a hash of the number is kept. A session ends by `DELETE`, when
it was not used for `IDLE_S`, after `LONGEST_S`, with the login that it is based on, and with the
broker.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from sparrow.broker.access.sessions import Guard
from sparrow.frontends.http.identity import with_host

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.access.sessions import Sessions

COOKIE: Final = "sparrow-session"
IDLE_S: Final = 12 * 3600.0
LONGEST_S: Final = 7 * 86_400.0
MAX_SESSIONS: Final = 10_000
"""The one that was not used for longest ends for one more."""


class _WebSession:
    __slots__ = ("begun_at", "guard", "principal", "used_at")

    def __init__(self, principal: Principal, now: float, guard: Guard) -> None:
        self.principal = principal
        self.begun_at = self.used_at = now
        self.guard = guard


class WebSessions:
    """The sessions of browsers at one listener. Loop thread only."""

    def __init__(self, clock: Clock, sessions: Sessions) -> None:
        self._clock = clock
        self._sessions = sessions
        self._open: OrderedDict[bytes, _WebSession] = OrderedDict()
        """By hash of the number; least recently used first."""

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, principal: Principal) -> str:
        """Begin a session of a principal that has just logged in. Return the text of its cookie."""
        import secrets  # for the first login; the start does without it

        self._forget_old()
        text = secrets.token_urlsafe(32)
        key = _key(text)
        guard = Guard(self._sessions, lambda _: self._end(key))
        self._open[key] = _WebSession(principal, self._clock.monotonic(), guard)
        guard.hold(principal)
        if len(self._open) > MAX_SESSIONS:
            self._end(next(iter(self._open)))
        return text

    def find(self, text: str, host: str) -> Principal | None:
        """Return the principal of a session, with the address of the client; None if it is over."""
        key, now = _key(text), self._clock.monotonic()
        found = self._open.get(key)
        if found is None:
            return None
        if now - found.used_at > IDLE_S or now - found.begun_at > LONGEST_S:
            self._end(key)
            return None
        found.used_at = now
        self._open.move_to_end(key)
        return with_host(found.principal, host)

    def end(self, text: str) -> None:
        """End a session. One that is over: no effect."""
        self._end(_key(text))

    def _end(self, key: bytes) -> None:
        found = self._open.pop(key, None)
        if found is not None:
            found.guard.close()

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - IDLE_S
        while self._open:
            key, session = next(iter(self._open.items()))
            if session.used_at > oldest:
                return
            self._end(key)


def cookie_name(host: bytes) -> str:
    """Return the name of the cookie at the address that a Host header names."""
    port = host.rpartition(b":")[2]
    return f"{COOKIE}-{port.decode()}" if port.isdigit() else COOKIE


def cookie_of(header: bytes, name: str) -> str:
    """Return the value of a cookie in a Cookie header; "" without it."""
    for each in header.decode("latin-1").split(";"):
        found, _, value = each.strip().partition("=")
        if found == name:
            return value
    return ""


def set_cookie(name: str, text: str, *, is_secure: bool, max_age_s: int | None = None) -> bytes:
    """Return a Set-Cookie header. `max_age_s` 0 removes the cookie; None: it goes with the
    browser.
    """
    age = "" if max_age_s is None else f"; Max-Age={max_age_s}"
    secure = "; Secure" if is_secure else ""
    return f"{name}={text}; Path=/; HttpOnly; SameSite=Strict{secure}{age}".encode()


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
