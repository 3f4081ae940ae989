"""What goes into the broker, whatever it is made of: the seam between the inputs (a git history, the sample, a file) and the stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Message:
    """One commit, or one line."""

    id: str
    """Unique within its source."""
    value: bytes
    """A JSON object."""
    key: bytes | None = None
    parents: tuple[str, ...] = ()
    """Ids of the messages that must be handled before this one."""


class Source(Protocol):
    """An input. Nothing is held that grows with its length."""

    @property
    def kind(self) -> str:
        """ "commits" or "lines"; also the name of the topic."""

    @property
    def title(self) -> str:
        """For people, behind a number: "commits of /home/ann/project"."""

    @property
    def note(self) -> str:
        """Why it is not what was asked for, and what else is to be said of it; "" if there is nothing."""

    @property
    def is_parented(self) -> bool:
        """Whether messages have parents."""

    def count(self) -> int:
        """How many messages there are."""

    def messages(self) -> Iterator[Message]:
        """All of them; children before their parents."""

    def truth(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Every id with its parents, read anew; parents before their children."""
