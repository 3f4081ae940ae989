"""The base of everything that the broker describes and the client returns."""

from __future__ import annotations

import msgspec


class Result(msgspec.Struct, frozen=True):
    """Base of the results; fields that a newer broker adds are ignored."""
