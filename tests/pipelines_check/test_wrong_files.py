"""Each wrong file is told by line, part and what to do, and nothing else is said of it.

The sentences stand in `sentences.txt`, a section for each file of `wrong.py`; DIR is the directory of the file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines_check.files import clean, sentences
from tests.pipelines_check.wrong import CASES

EXPECTED = {
    section.partition("\n")[0]: section.partition("\n")[2].splitlines()
    for section in (Path(__file__).parent / "sentences.txt").read_text().split("## ")[1:]
}


def test_every_wrong_file_has_its_sentences():
    assert list(EXPECTED) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_wrong_file_is_told_exactly(name, home):
    (home / "p.yml").write_text(CASES[name])
    expected = [line.strip().replace("DIR", str(home)) for line in EXPECTED[name]]
    assert sentences("p.yml") == expected


def test_the_file_that_the_wrong_ones_are_made_from_is_right(home):
    (home / "p.yml").write_text(clean())
    assert sentences("p.yml") == []


def test_all_faults_are_told_at_once_in_the_order_of_the_file(home):
    text = clean(
        source="{flow: raw}",
        to="{topic: clean, key: idd}",
        more={"mode": "complete"},
        steps=("sql: SELECT nope FROM input", "watermark: {column: at, delay: 1 h}"),
        expect=("{name: a, check: id >}",),
        top=("spark: {executor.memory: 1g}",),
    )
    (home / "p.yml").write_text(text)
    lines = [int(each.partition(":")[0]) for each in sentences("p.yml")]
    assert lines == sorted(lines)
    assert set(lines) == {4, 5, 7, 9, 10, 12, 13}


def test_a_file_that_is_not_there_says_what_was_looked_for(home):
    (sentence,) = sentences("none.yml")
    assert sentence == (
        "the pipeline's file FILE cannot be read: No such file or directory; give the path of a YAML file that describes a pipeline"
    )


def test_a_place_in_a_list_of_flows_is_its_line(home):
    (home / "p.yml").write_text(
        "name: a\nflows:\n  - {name: one, from: x, to: console}\n  - name: two\n    from: y\n    to:\n      topic: z\n      key: id\n"
        "    decode:\n      json:\n        schema: a int\n    steps:\n      - watermark:\n          column: b\n          delay: 1 s\n"
    )
    assert sentences("p.yml") == [
        "8: flows[1].to.key: there is no column 'id' here; there are a",
        "14: flows[1].steps[0].watermark.column: there is no column 'b' here; there are a",
    ]


def test_yaml_reads_the_on_of_a_join_as_true_and_it_is_understood(home):
    table = 'tables: {people: {csv: /dev/null, schema: "id bigint"}}'
    (home / "p.yml").write_text(
        clean(steps=("join:", "    table: people", "    on: idd"), top=(table,)).replace(
            "      -     ", "          "
        )
    )
    assert sentences("p.yml") == [
        "10: flows.clean.steps[0].join.on: there is no column 'idd' here; did you mean 'id'?",
        "10: flows.clean.steps[0].join.on: in table 'people' there is no column 'idd' here; did you mean 'id'?",
    ]


def test_secrets_of_the_file_are_not_told(home):
    (home / "p.yml").write_text(clean(top=("broker: {url: 'http://ann:secret@h'}",)))
    assert "secret@" not in "".join(sentences("p.yml"))
    assert sentences("p.yml") != []
