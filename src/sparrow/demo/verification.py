"""Comparison of what the workers wrote with the source, read again. Nothing is taken from the
demonstration's own memory.

The topic of handled commits has one partition, and a worker writes there before it acknowledges. So
a child that was delivered after its parents were acknowledged is behind the first lines of all of
them, whatever happened to the workers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

import sparrow.sync
from sparrow.base.errors import TimedOut
from sparrow.demo.crew import Killed
from sparrow.demo.report import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sparrow.client.results import QueueStatistics
    from sparrow.demo.crew import Worked

_SHOWN = 3
_READ_TIMEOUT_S = 30.0


class HandledLine(msgspec.Struct, frozen=True):
    """The line that a worker wrote of a job. `attempt` counts from 1."""

    hash: str
    worker: str
    attempt: int


@dataclass(slots=True)
class Cases:
    """A number of cases, and the first of them."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, case: str) -> None:
        """Add a case."""
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append(case)

    def __str__(self) -> str:
        return f"{self.count:,}: {', '.join(self.first)}{' …' if self.count > len(self.first) else ''}"


@dataclass(slots=True)
class Findings:
    """Result of the comparison. The lists have the first cases."""

    messages: int = 0
    links: int = 0
    """References from a message to a parent."""
    longest_chain: int = 0
    repeats: int = 0
    """Lines beyond the first of a message."""
    by_worker: Counter[str] = field(default_factory=Counter)
    again: dict[str, set[str]] = field(default_factory=dict)
    """Messages that were handled in a second or later delivery, with the workers."""
    missing: Cases = field(default_factory=Cases)
    unknown: Cases = field(default_factory=Cases)
    too_early: Cases = field(default_factory=Cases)
    """Handled before a parent."""


def compare(handled: Iterable[HandledLine], truth: Iterable[tuple[str, Sequence[str]]]) -> Findings:
    """Compare lines, in their order, with every id and its parents, parents first."""
    found = Findings()
    first_at: dict[str, int] = {}
    for at, line in enumerate(handled):
        found.by_worker[line.worker] += 1
        if line.attempt > 1:
            found.again.setdefault(line.hash, set()).add(line.worker)
        if first_at.setdefault(line.hash, at) != at:
            found.repeats += 1
    chain: dict[str, int] = {}
    for id_, parents in truth:
        found.messages += 1
        found.links += len(parents)
        chain[id_] = 1 + max((chain.get(each, 0) for each in parents), default=0)
        if id_ not in first_at:
            found.missing.add(id_)
            continue
        own = first_at[id_]
        for parent in parents:
            if first_at.get(parent, own) >= own:
                found.too_early.add(f"{id_} before {parent}")
    for id_ in first_at.keys() - chain.keys():
        found.unknown.add(id_)
    found.longest_chain = max(chain.values(), default=0)
    return found


def read_lines(url: str, topic: str, progress: Callable[[int, int], None]) -> Iterator[HandledLine]:
    """Yield all lines of a topic of one partition, in their order.

    Raises:
        TimedOut: lines that should be there did not come.
    """
    with sparrow.sync.connect(url, client_name="demo") as client:
        end = client.admin.offsets(topic, "end")[0].offset
        position = 0
        with client.subscribe(topic, start="beginning") as subscription:
            while position < end:
                records = subscription.pull(10_000, wait_s=_READ_TIMEOUT_S)
                if not records:
                    raise TimedOut(f"topic {topic!r} ends at {end}, but nothing came from {position} on")
                for record in records:
                    yield msgspec.json.decode(record.value or b"", type=HandledLine)
                position = records[-1].offset + 1
                progress(position, end)


def checks(found: Findings, worked: Worked, queue: QueueStatistics) -> list[Check]:
    """Return the checks of what was handled."""
    unfinished = (
        f"{queue.unfinished:,} unfinished, {queue.dead:,} dead, {queue.dead_lettered:,} dead letters in all"
    )
    is_empty = queue.unfinished == queue.dead == queue.dead_lettered == 0
    return [
        *_handled_checks(found),
        *_kill_checks(found, worked),
        Check("the queue is empty, and has no dead letters", is_empty, "" if is_empty else unfinished),
    ]


def _handled_checks(found: Findings) -> Iterator[Check]:
    """Yield the checks that all commits were handled, only they, and in their order."""
    missing, unknown, too_early = found.missing, found.unknown, found.too_early
    handled = _bad("not handled", missing) or f"{found.messages:,}"
    yield Check("every commit was handled", not missing.count, handled)
    yield Check("nothing was handled that was not published", not unknown.count, _bad("unknown", unknown))
    if found.links:
        order = _bad("too early", too_early) or f"{found.links:,} links"
        yield Check("no commit was handled before its parents", not too_early.count, order)


def _kill_checks(found: Findings, worked: Worked) -> Iterator[Check]:
    """Yield the checks that a worker died with jobs, that these were delivered again, and nothing
    else was.
    """
    killed = worked.killed or Killed("none", 0, [], 0, 0)
    holds = set(killed.holds)
    yield Check(
        "a worker was killed (-9) while it held jobs",
        killed.leased == len(killed.holds) > 0,
        f"{killed.name} held {len(killed.holds)}, the broker says {killed.leased}"
        if worked.killed
        else "none was killed",
    )
    again = {id_ for id_ in holds if found.again.get(id_, set()) - {killed.name}}
    yield Check(
        "its jobs came again, to others", bool(holds) and again == holds, f"{len(again)} of {len(holds)}"
    )
    yield Check(
        "nothing else was handled twice",
        killed.handled <= found.repeats <= killed.handled + worked.lost,
        f"{found.repeats} twice; it had handled {killed.handled} that it could not acknowledge"
        + (f", and {worked.lost} leases ended before their acknowledgement" if worked.lost else ""),
    )


def _bad(what: str, cases: Cases) -> str:
    return f"{what}: {cases}" if cases.count else ""
