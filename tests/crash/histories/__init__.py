"""Histories of what clients saw, and the checks of the promises of docs/guarantees.md against them.

A load notes what happens to it as it happens (`events.py`); when all is over, pure functions read
the notes, and what the broker has at the end. Each function is one promise; it returns a sentence
for each breach, and nothing where the promise was kept. They are stated so that every breach is
one: where a client cannot know (it heard no answer), both outcomes are right.

`logs.py` has the promises of logs, `queues.py` those of queues, `groups.py` of groups,
`transactions.py` of transactions and sinks, `copies.py` of copies from topic to topic.
"""

from __future__ import annotations

from tests.crash.histories.events import Event, Found, History, Kind

__all__ = ["Event", "Found", "History", "Kind", "kept"]

_SHOWN = 40


def kept(*breaches: list[str]) -> None:
    """Check all promises. Raise AssertionError with the first breaches of each, if there are
    any.
    """
    shown = [sentence for each in breaches for sentence in each[:_SHOWN]]
    count = sum(map(len, breaches))
    if count:
        raise AssertionError(f"{count} breaches of what was promised:\n  " + "\n  ".join(shown))
