"""The comparison accepts what is right and nothing else: each way in which a table or a topic can
be wrong is told.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparrow.sync
import sparrow.testing
from sparrow.demo import verification
from sparrow.demo.history import CommitMessage
from tests.demo.test_tables import entry
from tests.repetitions import repetitions

commits = st.lists(
    st.fixed_dictionaries(
        {
            "author": st.sampled_from(["Ada", "Bob", ""]),
            "week": st.sampled_from(["2026-W18", "2026-W19"]),
            "files": st.integers(0, 9),
            "parents": st.lists(st.just("p"), max_size=3),
        }
    ),
    min_size=1,
    max_size=8,
)
HARMS = ["lost", "twice", "unknown", "wrong"]


@dataclass
class History:
    commits: list[dict]
    title: str = "commits of nowhere"

    def messages(self):
        for number, commit in enumerate(self.commits):
            value = {"hash": str(number), "time": "", "subject": "", **commit}
            yield CommitMessage(str(number), json.dumps(value).encode())


def compared(history, rows, sums, folder):
    names = verification.COLUMNS
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    pq.write_table(pa.table(columns), folder / "a.parquet")
    entry(folder, "0", "a.parquet")
    return verification.pipeline_checks(history, str(folder), sums)


def right(history):
    sums = {}
    rows = list(verification.expected_rows(history))
    for row in rows:
        verification.count(sums, row)
    return rows, sums


@settings(max_examples=repetitions(40))
@given(made=commits, harm=st.none() | st.sampled_from(HARMS), data=st.data())
def test_a_table_is_right_if_it_has_each_row_once_and_as_it_was(made, harm, data, tmp_path_factory):
    history = History(made)
    rows, sums = right(history)
    at = data.draw(st.integers(0, len(rows) - 1))
    if harm == "lost":
        rows[at] = rows[at - 1] if len(rows) > 1 else ("another", *rows[at][1:])
    elif harm == "twice":
        rows.append(rows[at])
    elif harm == "unknown":
        rows.append(("another", *rows[at][1:]))
    elif harm == "wrong":
        rows[at] = (*rows[at][:3], rows[at][3] + 1, rows[at][4])
    checks = compared(history, rows, sums, tmp_path_factory.mktemp("table"))
    assert [check.held for check in checks] == [harm in {None, "wrong"}, harm != "wrong", True]
    assert harm is None or any(check.detail for check in checks if not check.held)


@settings(max_examples=repetitions(40))
@given(made=commits, harm=st.none() | st.sampled_from(HARMS), data=st.data())
def test_sums_are_right_if_every_key_has_the_figures_of_plain_python(made, harm, data, tmp_path_factory):
    history = History(made)
    rows, sums = right(history)
    key = data.draw(st.sampled_from(sorted(sums)))
    if harm == "lost":
        del sums[key]
    elif harm == "unknown":
        sums["Cleo", "2026-W18"] = [1, 1, 0]
    elif harm == "wrong":
        sums[key] = [sums[key][0], sums[key][1], sums[key][2] + 1]
    last = compared(history, rows, sums, tmp_path_factory.mktemp("table"))[-1]
    assert last.held == (harm in {None, "twice"})


def test_sums_of_two_weeks_by_hand():
    merge = {"author": "Ada", "week": "2026-W18", "files": 2, "parents": ["a", "b"]}
    _, sums = right(History([merge, {**merge, "parents": []}, {**merge, "author": "Bob"}]))
    assert sums == {("Ada", "2026-W18"): [2, 4, 1], ("Bob", "2026-W18"): [1, 2, 1]}


@pytest.mark.slow
def test_last_message_of_a_key_counts():
    with sparrow.testing.broker() as broker, sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic("sums", partitions=1)
        assert verification.read_sums(broker.url, "sums") == {}
        for author, commits_counted in (("Ada", 1), ("Bob", 1), ("Ada", 2)):
            told = {"author": author, "week": "2026-W18", "commits": commits_counted, "files": 5, "merges": 0}
            client.publish("sums", json.dumps(told).encode(), key=author.encode())
        assert verification.read_sums(broker.url, "sums") == {
            ("Ada", "2026-W18"): [2, 5, 0],
            ("Bob", "2026-W18"): [1, 5, 0],
        }
