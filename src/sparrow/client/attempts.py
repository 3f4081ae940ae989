"""Log texts of a worker for failed attempts: the number of the attempt, and what happens next.

The number of attempts and the delays are the queue's policy, which the worker reads when it starts.
`Attempts` contains that policy.
"""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

from sparrow.base.queue_policy import backoff_after
from sparrow.base.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.client.job import LeasedRecord


class Outlook(NamedTuple):
    """The future of a job whose attempt failed."""

    text: str
    """For people: "attempt 2 of 5, again in 10s"."""
    is_last: bool
    """True if the job is not delivered again."""
    needs_traceback: bool
    """True if no later log line would have it."""
    fields: dict[str, object]


class Attempts:
    """The part of a queue's policy that sets the number of attempts and the delays."""

    def __init__(self, queue: str, policy: Mapping[str, Any]) -> None:
        """Create from a `policy` as in descriptions of queues; empty if it is not known."""
        self._queue = queue
        self._policy = policy
        self._limit: int | None = policy.get("delivery_limit")

    def failed(self, job: LeasedRecord, delay_s: float | None) -> Outlook:
        """Return the outlook of a job after a failed attempt.

        Args:
            delay_s: the delay that the worker asks for; None: the queue's backoff.
        """
        count, limit = job.delivery_count, self._limit
        if limit and count >= limit:
            return self._over(f"attempt {count} of {limit}", {"attempt": count, "attempts": limit})
        fields: dict[str, object] = {"attempt": count, "attempts": limit or None}
        which = f"attempt {count} of {limit}" if limit else f"attempt {count}"
        when, fields["delay_s"] = self._delay(count, delay_s)
        # Without a limit there is no last attempt: the first one has the traceback. Without a
        # policy each has it.
        return Outlook(f"{which}, {when}", False, limit is None or (limit == 0 and count == 1), fields)

    def rejected(self, job: LeasedRecord) -> Outlook:
        """Return the outlook of a rejected job."""
        count, limit = job.delivery_count, self._limit
        which = f"attempt {count} of {limit}" if limit else f"attempt {count}"
        return self._over(which, {"attempt": count, "attempts": limit or None})

    @property
    def dead_letters(self) -> str | None:
        """The dead-letter topic of the queue, or None."""
        topic: str | None = self._policy.get("dead_letter_topic", "")
        return f"{self._queue}.dead" if topic == "" else topic

    def _over(self, which: str, fields: dict[str, object]) -> Outlook:
        topic = self.dead_letters
        if topic is None:
            return Outlook(f"{which}, it is dropped: the queue has no dead letters", True, True, fields)
        return Outlook(
            f"{which}, it goes to the dead letters {topic!r}", True, True, {**fields, "dead_letters": topic}
        )

    def _delay(self, deliveries: int, delay_s: float | None) -> tuple[str, float | None]:
        if delay_s is not None:
            return _in(round(delay_s * 1000)), delay_s
        if "backoff_ms" not in self._policy:
            return "again after the queue's backoff", None
        policy = self._policy
        delay_ms = backoff_after(
            policy["backoff"], policy["backoff_ms"], policy["backoff_max_ms"], deliveries
        )
        spread_ms = round(delay_ms * policy["backoff_jitter"])
        if not spread_ms:
            return _in(delay_ms), delay_ms / 1000
        low, high = format_duration(delay_ms - spread_ms), format_duration(delay_ms + spread_ms)
        return f"again in {low} to {high}", delay_ms / 1000


def _in(delay_ms: int) -> str:
    return f"again in {format_duration(delay_ms)}" if delay_ms else "again at once"


def location_of(error: BaseException) -> str:
    """Return the place at which the error was raised, "tasks.py:12 in send"; "" if that is not
    known.
    """
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{os.path.basename(frames[0].filename)}:{frames[0].lineno} in {frames[0].name}" if frames else ""
