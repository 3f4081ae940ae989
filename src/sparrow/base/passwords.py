"""The rule for passwords where they are known in clear: at the client, the command line, HTTP and
the configuration.
"""

from __future__ import annotations

from typing import Final

from sparrow.base.errors import UnacceptableCredential

MIN_CHARACTERS: Final = 8
"""NIST SP 800-63B, section 5.1.1.1: at least eight characters."""


def check_password(password: str) -> None:
    """Raise UnacceptableCredential if a new password is shorter than `MIN_CHARACTERS`."""
    if len(password) < MIN_CHARACTERS:
        raise UnacceptableCredential(
            f"the password has {len(password)} characters; at least {MIN_CHARACTERS} are needed, "
            "choose a longer one"
        )
