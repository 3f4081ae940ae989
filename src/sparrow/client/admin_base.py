"""The base of the parts of `client.admin`: calling an operation of the protocol, and checking its
result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from sparrow.base.errors import ProtocolError

if TYPE_CHECKING:
    from sparrow.client.session import Session

T = TypeVar("T")


class AdminBase:
    """Base of the parts of `client.admin`. Loop thread only."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._session.address}, {self._session.state}>"

    async def _read(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Call an operation that may be repeated over a lost connection, because it changes
        nothing, or nothing when repeated.
        """
        return await self._session.call(verb, arguments, is_read=True)

    async def _change(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Call an operation that changes something. After ConnectionLost it is not known whether it
        took effect.
        """
        return await self._session.call(verb, arguments, is_read=False)


def result_as(kind: type[T], reply: Any) -> T:
    """Return a response of the broker as a value of `results.py`.

    Raises:
        ProtocolError: it does not have the fields of that class.
    """
    try:
        return msgspec.convert(reply, kind)
    except msgspec.ValidationError as error:
        raise ProtocolError(
            f"the broker's response is not as expected: {error}; it may be of another version"
        ) from None
