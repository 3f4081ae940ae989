"""`python -m bench`: run the workloads, print a table, and write the figures as JSON."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench import harness
from bench.budget import Budget
from bench.machine import machine
from bench.report import CannotMerge, Report, check_mergeable, merged
from bench.table import show
from bench.versions import commit, missing_peers, settings, today, versions

if TYPE_CHECKING:
    from bench.results import Measurement

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
"""Exit codes."""

IN_MEMORY = ("tmpfs", "ramfs")
"""File systems on which no durability can be measured."""


def main() -> int:
    options = _options()
    from bench.workloads import ALONG, WORKLOADS

    budget = Budget(options.runs or (1 if options.quick else 5), is_quick=options.quick)
    try:
        names = harness.chosen(list(WORKLOADS), options.only, ALONG)
        old = Report.load(options.json) if options.merge and options.json.exists() else None
        empty = Report(options.quick, today(), machine(), versions(), settings())
        if old is not None:
            check_mergeable(old, empty)
    except (harness.Unknown, CannotMerge, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return MISUSED
    return _measured(WORKLOADS, names, budget, empty, old, options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round of each, in about ten minutes")
    parser.add_argument("--runs", type=int, metavar="N", help="rounds of each (5; with --quick 1)")
    parser.add_argument(
        "--only", default="", metavar="A,B", help="only workloads whose name has one of these words"
    )
    parser.add_argument(
        "--merge", action="store_true", help="leave what else the file has: replace only what is measured now"
    )
    parser.add_argument(
        "--json", default="bench/results/latest.json", type=Path, metavar="PATH", help="where the figures go"
    )
    options = parser.parse_args()
    if options.runs is not None and options.runs < 1:
        parser.error("--runs is 1 or more")
    return options


def _measured(
    workloads: dict[str, harness.Workload],
    names: list[str],
    budget: Budget,
    report: Report,
    old: Report | None,
    path: Path,
) -> int:
    """Run them; the file is written after each, so that nothing measured is lost."""
    began, now, is_over = time.monotonic(), report, False
    if report.machine.get("file_system") in IN_MEMORY:
        print(
            f"bench: temporary files are kept in memory here ({report.machine['file_system']}), so "
            "that nothing is "
            "synced; name a directory on a disk: TMPDIR=/path make bench",
            file=sys.stderr,
        )
    for peer in missing_peers(report.versions):
        print(f"bench: without {peer}; its rows stay empty", file=sys.stderr)
    source = {"date": report.date, "commit": commit()}
    print(f"{len(names)} workloads, {budget.runs} round{'s' * (budget.runs > 1)} each", flush=True)

    def begins(name: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {name} … ", end="", flush=True)

    try:
        for name, seconds, rows in harness.measure(workloads, names, budget, begins):
            fresh = [replace(row, **source) for row in rows]
            elapsed = {**now.elapsed_s, name: round(seconds, 1)}
            now = replace(now, elapsed_s=elapsed, measurements=[*now.measurements, *fresh])
            _merged(old, now, list(workloads)).save(path)
            print(f"{_summary(rows)} in {seconds:.1f} s", flush=True)
        is_over = True
    except KeyboardInterrupt:
        print("\ninterrupted; what was measured is kept", file=sys.stderr)
    if now.measurements:
        show(now.measurements, _title(report, budget))
        print(f"figures written to {path}; {time.monotonic() - began:.0f} s in all")
    if not is_over:
        return INTERRUPTED
    return FAILED if any(row.failed for row in now.measurements) else 0


def _merged(old: Report | None, now: Report, order: list[str]) -> Report:
    return merged(old, now, order) if old is not None else now


def _summary(rows: list[Measurement]) -> str:
    missed = sum(row.verdict == "MISSED" for row in rows)
    failed = sum(row.failed for row in rows)
    words = [f"{len(rows)} row{'s' * (len(rows) != 1)}"]
    words += [f"{failed} FAILED"] * bool(failed) + [f"{missed} below target"] * bool(missed)
    return ", ".join(words)


def _title(report: Report, budget: Budget) -> str:
    kind = "one short round: sizes, not figures to quote" if budget.is_quick else f"medians of {budget.runs}"
    return f"Sparrow and its peers, {kind}; brokers and clients share {report.machine['cores']} cores"


if __name__ == "__main__":
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # the servers that were started are to be ended
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before the first workload
        sys.exit(INTERRUPTED)
