"""The native frontend: translates `docs/protocol.md` to calls of the broker."""

from sparrow.frontends.native.context import Authenticator
from sparrow.frontends.native.frontend import NativeFrontend
from sparrow.frontends.native.limits import NativeLimits

__all__ = ["Authenticator", "NativeFrontend", "NativeLimits"]
