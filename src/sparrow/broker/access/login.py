"""The login that proved a principal and that its sessions depend on."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class LoginKind(Enum):
    """Kinds of logins."""

    PASSWORD = "password"  # noqa: S105 - a word
    TOKEN = "token"  # noqa: S105
    CERTIFICATE = "certificate"


class Login(Struct, frozen=True):
    """The proof of a principal. `proof` is what the login was checked against; its type depends on
    the kind.
    """

    kind: LoginKind
    name: str
    proof: object

    def __repr__(self) -> str:
        return f"Login({self.kind.value}, {self.name!r})"
