"""`python -m bench.document RESULTS`: put results into `docs/benchmarks.md`, between its markers,
with the chart and the JSON beside it.

`<!-- figures: begin NAME -->` … `<!-- figures: end -->`: NAME is `machine`, `targets` or a section
of `bench.contents`. What stands outside the markers is written by people.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from bench.contents import SECTIONS
from bench.report import Report
from bench.results import OURS, RATIO, Measurement
from bench.table import written

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "benchmarks.md"
_BLOCK = re.compile(r"(<!-- figures: begin ([\w-]+) -->\n).*?(<!-- figures: end -->)", re.DOTALL)


class UnknownSection(Exception):
    """A marker names what there is not."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.document", description=__doc__)
    parser.add_argument("results", type=Path, help="what `python -m bench` wrote")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    options = parser.parse_args()
    from bench.chart import draw

    try:
        report = Report.load(options.results)
        text = filled(options.document.read_text(), report)
    except (OSError, ValueError, UnknownSection) as error:
        print(f"bench.document: {error}", file=sys.stderr)
        return 1
    options.document.write_text(text)
    report.save(options.document.with_suffix(".json"))
    draw(report.measurements, options.document.with_suffix(".svg"))
    print(f"{options.document}, with .json and .svg beside it")
    return 0


def filled(document: str, report: Report) -> str:
    """The document with the report's figures between its markers.

    Raises:
        UnknownSection: a marker's name.
    """

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}\n{_section(found[2], report)}\n\n{found[3]}"

    return _BLOCK.sub(block, document)


def _section(name: str, report: Report) -> str:
    if name in _WHOLE:
        return _WHOLE[name](report)
    if name not in SECTIONS:
        known = ", ".join([*_WHOLE, *SECTIONS])
        raise UnknownSection(f"the document has a marker {name!r}; there are {known}")
    groups = SECTIONS[name]
    rows = [[each for each in report.measurements if each.group == group] for group in groups]
    return "\n\n".join(filter(None, map(_of_workload, rows))) or "Not measured."


def _of_workload(rows: Sequence[Measurement]) -> str:
    """Return the rows of a workload: a table of those beside others, a list of those of Sparrow
    alone."""
    beside = {each.figure for each in rows if each.broker != OURS and each.unit != RATIO}
    compared = [each for each in rows if each.figure in beside]
    alone = [each for each in rows if each.figure not in beside]
    return "\n\n".join(filter(None, (_side_by_side(compared), _list(alone))))


def _side_by_side(rows: Sequence[Measurement]) -> str:
    """Return a line for each contender and a column for each figure, with Sparrow's ratio."""
    ratios = {(each.figure, each.client): each for each in rows if each.unit == RATIO}
    rows = [each for each in rows if each.unit != RATIO]
    if not rows:
        return ""
    figures = list(dict.fromkeys(each.figure for each in rows))
    units = {each.figure: each.unit for each in rows}
    common, rests = _shortened(figures)
    heads = [
        f"{rest}, {units[figure]}".removeprefix(", ") for figure, rest in zip(figures, rests, strict=True)
    ]
    lines = []
    for who in dict.fromkeys((each.broker, each.client) for each in rows):
        own = {each.figure: each for each in rows if (each.broker, each.client) == who}
        cells = [_compared(own.get(figure), ratios) for figure in figures]
        lines.append([_who(*who), *cells, _said("durability", own.values()), _said("note", own.values())])
    table = _table([["", *heads, "durability", ""], *lines], right=range(1, 1 + len(heads)))
    return f"**{common}**\n\n{table}" if common else table


def _shortened(figures: Sequence[str]) -> tuple[str, list[str]]:
    """Return the common beginning of the figures' names, in whole words, or ""; and the rest of
    each.
    """
    if len(figures) == 1:
        return figures[0], [""]
    names = [figure.split() for figure in figures]
    common = [words[0] for words in takewhile(lambda words: len(set(words)) == 1, zip(*names, strict=False))]
    return " ".join(common).rstrip(",:"), [" ".join(words[len(common) :]) for words in names]


def _list(rows: Sequence[Measurement]) -> str:
    if not rows:
        return ""
    lines = [[each.name, _spread(each), each.unit, each.durability, each.note] for each in rows]
    return _table([["", "median (lowest to highest)", "unit", "durability", ""], *lines], right=[1])


def _compared(m: Measurement | None, ratios: Mapping[tuple[str, str], Measurement]) -> str:
    ratio = ratios.get((m.figure, m.client)) if m is not None and m.broker == OURS else None
    return f"{_spread(m)}; **{written(ratio.median)} x**" if ratio is not None and ratio.runs else _spread(m)


def _spread(m: Measurement | None) -> str:
    """The median, and from where to where the runs went."""
    if m is None or not m.runs:
        return "-"
    if len(m.runs) == 1:
        return written(m.median)
    return f"{written(m.median)} ({written(min(m.runs))} to {written(max(m.runs))})"


def _who(broker: str, client: str) -> str:
    name = "**Sparrow**" if broker == OURS else broker
    return f"{name}, {client}" if client else name


def _said(what: str, rows: Iterable[Measurement]) -> str:
    """Durability or note of the rows; once, if they say the same."""
    texts = [getattr(each, what) for each in rows]
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _table(lines: Sequence[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Markdown; columns that are empty all the way are left out."""
    head, *body = lines
    used = [n for n in range(len(head)) if n == 0 or any(line[n] for line in body)]
    to_right = set(right)
    rule = ["---:" if n in to_right else "---" for n in range(len(head))]
    return "\n".join(
        "| " + " | ".join(line[n].replace("|", "\\|") for n in used) + " |" for line in (head, rule, *body)
    )


def _machine(report: Report) -> str:
    """Where, when and with what."""
    machine = report.machine
    kind = "One short round of each (`make bench-quick`): not figures to quote." if report.quick else ""
    when = sorted({each.commit for each in report.measurements if each.commit})
    lines = [
        ["measured", f"{report.date}, commit {', '.join(when) or 'unknown'}"],
        ["rounds", _rounds(report)],
        ["processor", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB of memory"],
        ["system", machine["system"]],
        [
            "disk",
            (
                f"{machine['file_system']} on {machine['disk']}; one fdatasync: "
                f"{machine['fdatasync_p50_ms']:g} ms"
            ),
        ],
        *([name, version] for name, version in report.versions.items()),
        *([f"settings of {peer}", text] for peer, text in report.settings.items()),
    ]
    return "\n\n".join(filter(None, (kind, _table([["", ""], *lines]))))


def _rounds(report: Report) -> str:
    """The number of rounds; of workloads that had more than others, their names as well."""
    rounds: dict[str, int] = {}
    for each in report.measurements:
        rounds[each.group] = max(rounds.get(each.group, 0), len(each.runs))
    if not rounds:
        return "0"
    usual = Counter(rounds.values()).most_common(1)[0][0]
    named = [
        f"{count} of {', '.join(f'`{group}`' for group, found in rounds.items() if found == count)}"
        for count in sorted({count for count in rounds.values() if count > usual})
    ]
    return "; ".join([f"{usual}", *named])


def _targets(report: Report) -> str:
    """Each figure that has a target, and whether it was met."""
    rows = [each for each in report.measurements if each.target is not None]
    lines = [
        [
            each.name,
            str(each.target),
            written(each.median),
            each.unit,
            each.verdict or "not measured",
            each.note,
        ]
        for each in rows
    ]
    met, measured = sum(each.verdict == "met" for each in rows), sum(bool(each.verdict) for each in rows)
    table = _table([["", "target", "median", "unit", "verdict", ""], *lines], right=[1, 2])
    return f"{met} of {measured} met.\n\n{table}"


_WHOLE: dict[str, Callable[[Report], str]] = {"machine": _machine, "targets": _targets}


if __name__ == "__main__":
    sys.exit(main())
