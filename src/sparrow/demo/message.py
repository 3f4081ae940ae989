"""Messages that go into the broker: the seam between the inputs (a git history, the sample) and the
stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """One commit."""

    id: str
    """Unique within its source."""
    value: bytes
    """A JSON object."""
    key: bytes | None = None
    parents: tuple[str, ...] = ()
    """Ids of the messages that must be handled before this one."""


class CommitSource(Protocol):
    """An input. It holds nothing that grows with its length."""

    @property
    def title(self) -> str:
        """Return its title, to be shown after a number: "commits of /home/ann/project"."""

    @property
    def note(self) -> str:
        """Return why it is not what was asked for, and other remarks; "" if there are none."""

    def count(self) -> int:
        """Return the number of messages."""

    def messages(self) -> Iterator[CommitMessage]:
        """Yield all messages; children before their parents."""

    def truth(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield every id with its parents, read again from the source; parents before their
        children.
        """
