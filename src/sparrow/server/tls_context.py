"""A TLS context whose content can be replaced while a server listens with it, and that reports
refused client certificates.

`create_server` keeps the context that it was given; both event loops call its `wrap_bio` at each
connection. So new connections get the current context, and established ones keep theirs. A context
cannot be changed in place: authorities can be added to it but not removed, and a client could
resume a session that the old rules allowed. A new context has new keys for its tickets.

A handshake that fails never reaches a listener's protocol: the event loop closes the connection.
`ReportingTls` sees it where OpenSSL reports it. It does not know the connection, so a refused
certificate has no address.
"""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

_NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
"""OpenSSL's reason for a client that presents no certificate where one is required."""


class ReportingTls(ssl.SSLObject):
    """The server side of one TLS connection; reports why a client's certificate is refused."""

    refused: Callable[[str], None] | None = None

    def do_handshake(self) -> None:
        """Do as `ssl.SSLObject.do_handshake`, and report refused certificates."""
        try:
            super().do_handshake()
        except ssl.SSLCertVerificationError as error:
            self._report(error.verify_message)
            raise
        except ssl.SSLError as error:
            if error.reason == _NO_CERTIFICATE:
                self._report("the client showed no certificate")
            raise

    def _report(self, reason: str) -> None:
        if self.refused is not None:
            self.refused(reason)


class ReplaceableContext(ssl.SSLContext):
    """A context that passes each new connection to `current`."""

    current: ssl.SSLContext

    def __new__(cls, current: ssl.SSLContext) -> Self:
        made = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        made.current = current
        return made

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Do as `ssl.SSLContext.wrap_bio` of the current context."""
        return self.current.wrap_bio(*args, **kwargs)


class ListenerContext(ssl.SSLContext):
    """The context of one listener: it wraps with a shared context, and reports refused client
    certificates.

    Args:
        shared: the context of all listeners.
        refused: called with the listener's name and the reason.
    """

    _shared: ReplaceableContext
    _refused: Callable[[str], None]

    def __new__(cls, shared: ReplaceableContext, listener: str, refused: Callable[[str, str], None]) -> Self:
        made = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        made._shared = shared
        made._refused = partial(refused, listener)
        return made

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Do as `ssl.SSLContext.wrap_bio` of the shared context."""
        tls = self._shared.wrap_bio(*args, **kwargs)
        if isinstance(tls, ReportingTls):
            tls.refused = self._refused
        return tls
