"""Policy of a queue: one frozen object, made of settings by name.

The settings are declared once, in `base/queue_policy.py`: their names, words, units, limits and
defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from sparrow.base import queue_policy
from sparrow.base.queue_policy import BEGINNING, backoff_after, known, read_settings

SETTINGS: Final = tuple(queue_policy.SETTINGS)
"""Names of all settings."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Settings of a queue. Times are in milliseconds. See `docs/queues.md` for what each setting
    does.
    """

    lease_ms: int = 30_000
    delivery_limit: int = 5
    """Number of the last delivery: a record that is not acknowledged then goes to the dead letters.
    0: no limit.
    """
    backoff: str = "fixed"
    backoff_ms: int = 0
    backoff_max_ms: int = 600_000
    backoff_jitter: float = 0.0
    prefetch: int = 0
    max_leased: int = 100_000
    order: str = "none"
    expiry_ms: int = 0
    dead_letter_topic: str | None = ""
    """ "": `<queue>.dead`. None: what cannot be handled is dropped."""
    start: str = BEGINNING
    parent_wait_ms: int = 600_000
    parent_failed: str = "follow"
    subscribers: tuple[str, ...] = ()
    on_corrupt: str = "skip"
    """At a batch that cannot be read: "skip" makes dead letters of its records, "fail" stops the
    queue.
    """
    isolation: str = "read_committed"
    """Used by share groups, which Kafka lets read records of open transactions."""

    def backoff_after(self, deliveries: int, jitter: float) -> int:
        """Return the delay of a record that came back after so many deliveries.

        Args:
            jitter: a random number from -1 to 1.
        """
        delay = backoff_after(self.backoff, self.backoff_ms, self.backoff_max_ms, deliveries)
        return max(0, round(delay * (1 + self.backoff_jitter * jitter)))

    def dead_letters_of(self, queue: str) -> str | None:
        """Return the dead-letter topic of a queue of this name, or None."""
        return f"{queue}.dead" if self.dead_letter_topic == "" else self.dead_letter_topic

    def settings(self) -> dict[str, object]:
        """Return all settings by name, as `changed` takes them."""
        values: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        values["subscribers"] = list(self.subscribers)
        return values

    def changed(self, settings: Mapping[str, object], unset: Sequence[str] = ()) -> QueuePolicy:
        """Return this policy with other settings, by word or name; those named by `unset` get their
        defaults.

        Raises:
            InvalidConfig: no such setting, or a value that it does not take; names all that is
                wrong.
        """
        values: dict[str, Any] = {name: queue_policy.SETTINGS[name].default for name in names_of(unset)}
        values |= read_settings(settings)
        if "subscribers" in values:
            values["subscribers"] = tuple(values["subscribers"])
        return replace(self, **values)


def names_of(keys: Sequence[str]) -> list[str]:
    """Return the names of settings that are given by word or name. Raise InvalidConfig for unknown
    ones.
    """
    return [known(key).name for key in keys]


def changes_to(policy: QueuePolicy, asked: Mapping[str, object]) -> dict[str, object]:
    """Return those of the settings `asked` for, by word or name, that differ from a policy; by
    name.

    Subscribers that are not asked for stay: other processes may have added them.

    Raises:
        InvalidConfig: no such setting, or a value that it does not take.
    """
    before = policy.settings()
    changes = {name: value for name, value in read_settings(asked).items() if value != before[name]}
    if "subscribers" in changes:
        missing = [each for each in changes.pop("subscribers") if each not in policy.subscribers]
        if missing:
            changes["subscribers"] = [*policy.subscribers, *missing]
    return changes
