"""The native door: `docs/protocol.md` on one side, the broker's verbs on the other."""

from sparrow.frontends.native.frontend import NativeFrontend
from sparrow.frontends.native.limits import NativeLimits
from sparrow.frontends.native.session import Authenticator

__all__ = ["Authenticator", "NativeFrontend", "NativeLimits"]
