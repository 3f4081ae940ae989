"""Sessions that depend on a login, and end with it.

A frontend registers its connection, or its request, here for as long as it lasts (`Guard`). Code
that changes what logins are checked against calls `Sessions.look`: a session ends when its user was
deleted, its password changed, its token removed, or its certificate revoked. Nothing is polled: a
change ends the sessions a moment later, thousands of them in slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from sparrow.broker.access.login import Login, LoginKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.broker.access.authz import Principal

log = logging.getLogger("sparrow.access")

SLICE: Final = 256
"""Sessions that are checked in one iteration of the loop."""
GRACE_S: Final = 0.1
"""The delay before sessions end, so that a client that changes its own password gets the
response.
"""


class Sessions:
    """All sessions of a broker. Loop thread only."""

    def __init__(self, on_end: Callable[[Principal, str], None] = lambda _principal, _why: None) -> None:
        self._judges: dict[LoginKind, Callable[[Login], str]] = {}
        self._open: dict[LoginKind, dict[str, set[_OpenSession]]] = {kind: {} for kind in LoginKind}
        self._waiting: deque[_OpenSession] = deque()
        self.ended = 0
        """The number of sessions that were ended because of their logins, since the start."""
        self._on_end = on_end
        """Called with the principal of each ended session, and why."""

    def judge(self, kind: LoginKind, why_over: Callable[[Login], str]) -> None:
        """Use `why_over` for logins of a kind: it returns why one is no longer valid, or "" while
        it is.
        """
        self._judges[kind] = why_over

    def count(self, kind: LoginKind) -> int:
        """Return the number of sessions that depend on logins of a kind."""
        return sum(map(len, self._open[kind].values()))

    def look(self, kind: LoginKind, names: Iterable[str] | None = None) -> None:
        """Check sessions again: those of some names, or all of a kind. Those whose login is no
        longer valid end soon.
        """
        by_name = self._open[kind]
        for name in list(by_name) if names is None else names:
            self._waiting.extend(by_name.get(name, ()))
        if self._waiting:
            asyncio.get_running_loop().call_later(GRACE_S, self._look_on)

    def _look_on(self) -> None:
        for _ in range(min(SLICE, len(self._waiting))):
            each = self._waiting.popleft()
            if each.is_open:
                self._check(each)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._look_on)

    def _check(self, session: _OpenSession) -> None:
        why = self._why_over(session.login)
        if not why:
            return
        self._remove(session)
        self.ended += 1
        _log_end(session.principal, why)
        self._on_end(session.principal, why)
        try:
            session.end(why)
        except Exception:
            log.exception("a session of %s could not be ended", session.principal)

    def _why_over(self, login: Login) -> str:
        judge = self._judges.get(login.kind)
        return "" if judge is None else judge(login)

    def _add(self, session: _OpenSession) -> None:
        self._open[session.login.kind].setdefault(session.login.name, set()).add(session)
        if self._why_over(session.login):  # it ended while the login was under way
            asyncio.get_running_loop().call_soon(self._check_open, session)

    def _check_open(self, session: _OpenSession) -> None:
        if session.is_open:
            self._check(session)

    def _remove(self, session: _OpenSession) -> None:
        session.is_open = False
        named = self._open[session.login.kind]
        others = named.get(session.login.name)
        if others is not None:
            others.discard(session)
            if not others:
                del named[session.login.name]


class Guard:
    """The logins that one connection or request depends on: at most a certificate and one other.

    Args:
        sessions: those of the broker.
        end: called at most once for each login, with why it is over.
    """

    __slots__ = ("_end", "_open", "_sessions")

    def __init__(self, sessions: Sessions, end: Callable[[str], None]) -> None:
        self._sessions = sessions
        self._end = end
        self._open: list[_OpenSession] = []

    def hold(self, principal: Principal | None) -> None:
        """Let the session depend on the login of this principal; a principal without a login
        changes nothing.
        """
        login = None if principal is None else principal.login
        if principal is None or login is None:
            return
        is_certificate = login.kind is LoginKind.CERTIFICATE
        for each in [e for e in self._open if (e.login.kind is LoginKind.CERTIFICATE) == is_certificate]:
            self._open.remove(each)
            self._sessions._remove(each)  # noqa: SLF001 - two halves of one thing
        session = _OpenSession(principal, login, self._end)
        self._open.append(session)
        self._sessions._add(session)  # noqa: SLF001

    def close(self) -> None:
        """End the session. Again: no effect."""
        for each in self._open:
            self._sessions._remove(each)  # noqa: SLF001
        self._open.clear()
        # drops the reference, so that the session is freed at once, without the garbage collector
        self._end = _nothing


class _OpenSession:
    __slots__ = ("end", "is_open", "login", "principal")

    def __init__(self, principal: Principal, login: Login, end: Callable[[str], None]) -> None:
        self.principal = principal
        self.login = login
        self.end = end
        self.is_open = True


def _nothing(_: str) -> None:
    """Do nothing: the session is over already."""


def _log_end(principal: Principal, why: str) -> None:
    log.info("a session of %s from %s ends: %s", principal, principal.host or "?", why)
