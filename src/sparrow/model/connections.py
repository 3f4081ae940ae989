"""Open connections."""

from __future__ import annotations

from sparrow.model.result import Result


class ConnectionDescription(Result, frozen=True):
    """One connection of a client. Counts are since it was made."""

    number: int
    listener: str
    address: str
    """IP address of the client."""
    principal: str
    """Such as "User:alice"; "": not known, or the requests of the connection log in one by one."""
    client: str
    """The name that the client gave itself."""
    open_ms: int
    """Age of the connection."""
    received_bytes: int
