"""Comparison of what the workers wrote, and of what the pipeline made, with the source, read again.
Nothing is taken from the demonstration's own memory.

The topic of handled commits has one partition, and a worker writes there before it acknowledges. So
a child that was delivered after its parents were acknowledged is behind the first lines of all of
them, whatever happened to the workers. The results of the pipeline are compared with those of plain
Python from the same commits: the table row by row, and the topic of sums (commits, files changed
and merges by author and week) key by key.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

import sparrow.sync
from sparrow.demo.crew import Killed
from sparrow.demo.report import Check, faulty
from sparrow.pipelines.sparklist import committed_files, read_table

if TYPE_CHECKING:
    from sparrow.client.results import QueueStatistics
    from sparrow.demo.crew import Worked
    from sparrow.demo.history import History, Sample
    from sparrow.demo.surroundings import Progress
    from sparrow.demo.worker import HandledLine

_PULLED: Final = 10_000
_PULL_WAIT_S: Final = 5.0
"""Long, as a busy machine must not look like the end of a topic."""
_EMPTY_PULLS: Final = 3
"""Pulls without a message that mean the end of a topic."""


class Findings(Struct):
    """Result of the comparison."""

    messages: int = 0
    links: int = 0
    """References from a message to a parent."""
    longest_chain: int = 0
    repeats: int = 0
    """Lines beyond the first of a message."""
    by_worker: Counter[str] = field(default_factory=Counter)
    again: dict[str, set[str]] = field(default_factory=dict)
    """Messages that were handled in a second or later delivery, with the workers."""
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    too_early: list[str] = field(default_factory=list)
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
        own = first_at.get(id_)
        if own is None:
            found.missing.append(id_)
        else:
            found.too_early += [f"{id_} before {each}" for each in parents if first_at.get(each, own) >= own]
    found.unknown += first_at.keys() - chain.keys()
    found.longest_chain = max(chain.values(), default=0)
    return found


def read_topic(
    url: str, topic: str, progress: Progress = lambda *_: None, *, markers: int = 0
) -> Iterator[sparrow.Message]:
    """Yield the committed records of a topic of one partition, to its end or until nothing comes.

    Args:
        markers: offsets at the end that no reader gets, as they end a transaction.
    """
    with sparrow.sync.connect(url, client_name="demo") as client:
        end = client.admin.offsets(topic, "end")[0].offset - markers
        position = empty = 0
        with client.subscribe(topic, start="beginning", mode="pull", isolation="read_committed") as messages:
            while position < end and empty < _EMPTY_PULLS:
                records = messages.pull(_PULLED, wait_s=_PULL_WAIT_S)
                empty = 0 if records else empty + 1
                yield from records
                position = records[-1].offset + 1 if records else position
                progress(position, end)


def checks(found: Findings, worked: Worked, queue: QueueStatistics) -> list[Check]:
    """Return the checks of the handled commits."""
    is_empty = queue.unfinished == queue.dead == queue.dead_lettered == 0
    left = f"{queue.unfinished:,} unfinished, {queue.dead:,} dead, {queue.dead_lettered:,} dead letters ever"
    empty = Check("the queue is empty, and has no dead letters", is_empty, "" if is_empty else left)
    return [*_handled_checks(found), *_kill_checks(found, worked), empty]


def _handled_checks(found: Findings) -> Iterator[Check]:
    """Yield the checks that all commits were handled, only they, and in their order."""
    handled = faulty(missing=found.missing) or f"{found.messages:,}"
    yield Check("every commit was handled", not found.missing, handled)
    unknown = faulty(unknown=found.unknown)
    yield Check("nothing was handled that was not published", not found.unknown, unknown)
    if found.links:
        order = faulty(early=found.too_early) or f"{found.links:,} links"
        yield Check("no commit was handled before its parents", not found.too_early, order)


def _kill_checks(found: Findings, worked: Worked) -> Iterator[Check]:
    """Yield the checks that a worker died with jobs, that these were delivered again, and nothing
    else was.
    """
    killed = worked.killed or Killed("none", [], 0)
    held = f"{killed.name} held {len(killed.holds)}, the broker says {killed.leased}"
    yield Check("a worker was killed (-9) while it held jobs", killed.leased == len(killed.holds) > 0, held)
    again = [id_ for id_ in killed.holds if found.again.get(id_, set()) - {killed.name}]
    came = f"{len(again)} of {len(killed.holds)}"
    yield Check("its jobs came again, to others", 0 < len(again) == len(killed.holds), came)
    over = worked.failed_over
    in_flight = 0 if over is None else over.in_flight
    yield Check(
        "nothing else was handled twice",
        killed.handled <= found.repeats <= killed.handled + worked.lost + in_flight,
        f"{found.repeats} twice; it had handled {killed.handled} that it could not acknowledge"
        + (f", at most {in_flight} were in work when the broker died" if in_flight else "")
        + (f", and {worked.lost} leases ended before their acknowledgement" if worked.lost else ""),
    )
    if over is not None:
        yield Check(
            "the broker that owned the data was killed (-9) in the middle, and the other went on",
            0 < over.acknowledged < found.messages,
            f"after {over.acknowledged:,} of {found.messages:,} jobs; it served after {over.seconds:.1f} s",
        )


# ── what the pipeline made ────────────────────────────────────────────────────────────────────────

Row = tuple[Any, ...]
Sums = dict[tuple[str, str], list[int]]
"""Commits, files and merges by author and week."""
COLUMNS: Final = ("hash", "author", "week", "files", "parents")
"""Columns of the table that are compared; the first is unique."""


def pipeline_checks(source: History | Sample, table: str, found: Sums) -> list[Check]:
    """Return the checks of the table and the topic.

    Args:
        found: the sums in the topic, by `read_sums`.
    """
    expected: dict[str, Row] = {}
    sums: Sums = {}
    for row in expected_rows(source):
        expected[row[0]] = row
        count(sums, row)
    return [*_table_checks(expected, table), _sums_check(sums, found)]


def expected_rows(source: History | Sample) -> Iterator[Row]:
    """Yield the row that the table must have for each commit of the source."""
    for message in source.messages():
        commit = json.loads(message.value)
        yield commit["hash"], commit["author"], commit["week"], commit["files"], len(commit["parents"])


def count(sums: Sums, row: Row) -> None:
    """Add a row to the commits, files and merges of its author and week."""
    _, author, week, files, parents = row
    found = sums.setdefault((author, week), [0, 0, 0])
    found[0] += 1
    found[1] += files
    found[2] += parents > 1


def read_sums(url: str, topic: str) -> Sums:
    """Return the last committed message of each key."""
    found: Sums = {}
    for record in read_topic(url, topic, markers=1):
        row = json.loads(record.value or b"")
        found[row["author"], row["week"]] = [row["commits"], row["files"], row["merges"]]
    return found


def _faults(expected: Mapping[Any, object], found: Iterable[tuple[Hashable, object]]) -> tuple[str, str]:
    """Return keys that are not there exactly once, and those with another value; "" for none."""
    times: Counter[Hashable] = Counter()
    wrong = []
    for key, value in found:
        times[key] += 1
        if value != expected.get(key, value):
            wrong.append(key)
    wrong_times = faulty(
        missing=[each for each in expected if each not in times],
        twice=[each for each, number in times.items() if number > 1],
        unknown=[each for each in times if each not in expected],
    )
    return wrong_times, faulty(wrong=wrong)


def _table_checks(expected: Mapping[str, Row], table: str) -> Iterator[Check]:
    faults, wrong = _faults(expected, ((row[0], row) for row in read_table(table, COLUMNS)))
    rows = f"{len(expected):,} rows in {len(committed_files(table))} files"
    yield Check("the table has each of the commits exactly once", not faults, faults or rows)
    yield Check("each row says what its message says", not wrong, wrong)


def _sums_check(expected: Sums, found: Sums) -> Check:
    faults = "; ".join(filter(None, _faults(expected, found.items())))
    name = "the topic of the sums has the figures that plain Python counts"
    return Check(name, not faults, faults or f"{len(found):,} keys")
