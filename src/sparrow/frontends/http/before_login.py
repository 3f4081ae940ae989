"""The memory that an HTTP connection may use before its login.

Usually little arrives before the login: heads, and the first frames of a WebSocket. A part of a
body that arrives with its head, and frames that follow a hello at once, may be larger. They share a
budget with those of all other connections before their login, and are refused when it is full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrow.frontends.transport.receive_budget import ReceiveBudget

MAX_BYTES: Final = 16 << 10
"""Bytes of one connection that need no reservation; also the largest message of a WebSocket before
its login.
"""
BUDGET_BYTES: Final = 64 << 20
"""Bytes of all connections before their logins together."""
NO_ROOM: Final = (
    "the memory for clients that have not logged in yet is full; try again later, and log in before "
    "you send more than 16 KiB"
)


class BeforeLogin:
    """The memory of one connection before its login. Loop thread only.

    Args:
        budget: shared by all connections that have not logged in.
    """

    __slots__ = ("_budget", "_kept_bytes", "_reserved_bytes")

    def __init__(self, budget: ReceiveBudget) -> None:
        self._budget = budget
        self._kept_bytes = self._reserved_bytes = 0

    def hold(self, size_bytes: int) -> bool:
        """Count bytes that are kept until the login. Return False if there is no room for them."""
        self._kept_bytes += size_bytes
        missing_bytes = self._kept_bytes - MAX_BYTES - self._reserved_bytes
        if missing_bytes <= 0:
            return True
        if not self._budget.reserve(missing_bytes, self._granted):
            self._budget.withdraw(self._granted)
            return False
        self._reserved_bytes += missing_bytes
        return True

    def release(self) -> None:
        """Release the memory."""
        if self._reserved_bytes:
            self._budget.release(self._reserved_bytes)
        self._kept_bytes = self._reserved_bytes = 0

    def _granted(self) -> None:
        """Do nothing: a reservation that is not granted at once is withdrawn."""
