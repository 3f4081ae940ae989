"""What all parts of `client.admin` share: to call a verb of the protocol, and to check the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from sparrow.base.errors import ProtocolError

if TYPE_CHECKING:
    from sparrow.client.connection import Connection

T = TypeVar("T")


class Verbs:
    """Base of the parts of `client.admin`. Loop thread only."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _read(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Call a verb that changes nothing: it is repeated over a lost connection."""
        return await self._connection.call(verb, arguments, is_read=True)

    async def _change(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Call a verb that changes something. ConnectionLost: whether it did is not known."""
        return await self._connection.call(verb, arguments, is_read=False)


def result_as(kind: type[T], answer: Any) -> T:
    """An answer of the broker as a value of `results.py`.

    Raises:
        ProtocolError: it is not as agreed.
    """
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise ProtocolError(
            f"the broker's answer is not as agreed: {error}; is it of another version?"
        ) from None
