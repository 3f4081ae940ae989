"""Replies to clients that connected to the wrong port: in their own protocol if it has a way to say
it, and in the log.

Each listener logs at most one line per `LOG_INTERVAL_S`, as otherwise any client could fill the
log.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from sparrow.protocol.detection import FIRST_BYTES, WireProtocol, protocol_of_client, refusal_in

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_INTERVAL_S: Final = 10.0
_NAMES: Final[Mapping[WireProtocol, str]] = {
    WireProtocol.NATIVE: "native",
    WireProtocol.KAFKA: "Kafka",
    WireProtocol.HTTP: "HTTP",
    WireProtocol.TLS: "TLS",
}
_log = logging.getLogger("sparrow.ports")


class WrongPortReplies:
    """The replies of one listener to clients of other protocols. Loop thread only.

    Args:
        own: the protocol of this listener; None: it replies to nobody.
        ports: the ports of all listeners of this broker by protocol; it may be filled in later.
    """

    def __init__(self, own: WireProtocol | None, ports: Mapping[str, int]) -> None:
        self._own = own
        self._ports = ports
        self._logged_at = -LOG_INTERVAL_S

    def reply(self, data: bytes | memoryview, peer: str) -> tuple[str, bytes] | None:
        """Return the text for a client of another protocol, and the bytes to send before closing:
        in its protocol, or else in the listener's own; None if `data`, its first bytes, look like
        the listener's protocol.
        """
        own, protocol = self._own, protocol_of_client(bytes(data[:FIRST_BYTES]))
        if own is None or protocol is None or protocol is own:
            return None
        text = self._text(own, protocol)
        self._note(protocol, text, peer)
        return text, refusal_in(protocol, text) or refusal_in(own, text)

    def _text(self, own: WireProtocol, protocol: WireProtocol) -> str:
        here = f"this is the {_NAMES[own]} port of a Sparrow broker"
        if protocol is WireProtocol.TLS:
            return f"{here}, and it is served without TLS"
        others = sorted(
            _NAMES.keys() - {own, WireProtocol.TLS}, key=lambda each: (each is not protocol, each.value)
        )
        known = [each for each in others if each.value in self._ports]
        ports = ", ".join(f"the {_NAMES[each]} port is {self._ports[each.value]}" for each in known)
        return f"{here}; {ports}" if ports else f"{here}, not its {_NAMES[protocol]} port"

    def _note(self, protocol: WireProtocol, text: str, peer: str) -> None:
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            _log.warning(
                "a client of %s speaks %s, which this port does not: %s",
                peer or "an unknown address",
                _NAMES[protocol],
                text,
            )
