"""Each wrong file is reported by line, part and advice, and by nothing else.

The sentences are in `sentences.txt`, a section for each file of `wrong.py`; DIR is the directory of
the file.
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
def test_wrong_file_is_reported_exactly(name, home):
    (home / "p.yml").write_text(CASES[name])
    expected = [line.strip().replace("DIR", str(home)) for line in EXPECTED[name]]
    assert sentences("p.yml") == expected


OTHER = (
    "  zz:",
    "    from: {topics: [zz-in], strat: end}",
    "    decode: {json: {schema: 'a int'}}",
    "    to: {topic: zz-out, key: b}",
    "    mode: apend",
)
OF_OTHER = [
    "4: flows.zz.from.strat: a source has no setting 'strat'; did you mean 'start'?",
    "6: flows.zz.to.key: there is no column 'b' here; there are a",
    "7: flows.zz.mode cannot be 'apend'; it takes one of append, update, complete; did you mean 'append'?",
]
OF_CLEAN = [name for name, text in CASES.items() if "flows:\n  clean:\n" in text]


@pytest.mark.parametrize("name", OF_CLEAN)
def test_no_fault_hides_another(name, home):
    """The settings of a flow and the columns of its sink are checked whatever is wrong elsewhere in
    the file.
    """
    (home / "p.yml").write_text(CASES[name].replace("flows:\n", "\n".join(("flows:", *OTHER)) + "\n", 1))
    expected = [_moved(line.strip().replace("DIR", str(home)), len(OTHER)) for line in EXPECTED[name]]
    assert sorted(sentences("p.yml")) == sorted([*expected, *OF_OTHER])


def _moved(sentence, by):
    """Return a sentence for a file with this many lines inserted after the second."""
    line, _, text = sentence.partition(":")
    return f"{int(line) + (by if int(line) > 2 else 0)}:{text}"


def test_a_part_that_cannot_be_read_does_not_hide_the_parts_around_it(home):
    text = clean(
        source="{topic: orders}",
        to="{topic: clean, key: idd, hedders: {a: id}}",
        more={"dead_leters": "clean.dead", "trigger": "oncee"},
        steps=("watermark: {column: time, delay: soon}", "sqll: SELECT 1", "sql: SELECT nope FROM inptu"),
        expect=("{name: a, check: idd > 0}", "{name: a, check: 5, otherwise: dropp}"),
        top=("broker: kafka://h", "trigger: oncee", "tables: {p: {csv: /none, shema: a int}}"),
    )
    (home / "p.yml").write_text(text)
    assert sentences("p.yml") == [
        "4: flows.clean.from.topic: say 'topics', which may be one or a list",
        "5: flows.clean.to.hedders: the sink topic has no setting 'hedders'; did you mean 'headers'?",
        "7: flows.clean.dead_leters: a flow has no setting 'dead_leters'; did you mean 'dead_letters'?",
        "8: flows.clean.trigger: there is no trigger 'oncee'; did you mean 'once'?",
        (
            "10: flows.clean.steps[0].watermark.delay cannot be 'soon'; it takes a duration such "
            'as "500 ms",'
            ' "90 seconds", "10 minutes" or "1h30m"'
        ),
        (
            "10: flows.clean.steps[0].watermark.column: there is no column 'time' here; there are "
            "id, amount, at, name,"
            " tags, place"
        ),
        "11: flows.clean.steps[1].sqll: there is no step 'sqll'; did you mean 'sql'?",
        "12: flows.clean.steps[2].sql: there is no table 'inptu'; did you mean 'input'?",
        (
            "15: flows.clean.expect[1].otherwise cannot be 'dropp'; it takes one of dead_letter, "
            "drop, stop; did you mean"
            " 'drop'?"
        ),
        "15: flows.clean.expect[1].name: an expectation of the name 'a' occurs twice",
        "15: flows.clean.expect[1].check: is a value, and no condition; compare it with something",
        (
            "16: broker: url: the broker's URL 'kafka://h' cannot be used: its scheme is 'kafka', "
            "which is for clients of"
            " Kafka; clients and the command line speak the native protocol; it should look like"
            " sparrow://127.0.0.1:9094"
        ),
        "17: trigger: there is no trigger 'oncee'; did you mean 'once'?",
        "18: tables.p.shema: a table of csv has no setting 'shema'; did you mean 'schema'?",
        "18: tables.p.csv: there is no file or directory /none",
    ]


def test_each_wrong_type_and_each_missing_column_is_reported(home):
    (home / "p.yml").write_text(
        clean(
            decode="{json: {schema: 'id bigit, b arry<int>, c, d dubble, id int'}}",
            expect=("{name: a, check: x > 0, otherwise: drop}",),
        )
    )
    assert sentences("p.yml") == [
        (
            "6: flows.clean.decode.json.schema: is no schema: there is no type 'bigit'; did you "
            "mean 'bigint'?; there is no"
            " type 'arry'; did you mean 'array'?; the column 'c' has no type; there is no type "
            "'dubble'; did you mean"
            " 'double'?; the column 'id' occurs twice; to Spark, case makes no difference"
        )
    ]
    (home / "p.yml").write_text(
        clean(
            decode="{regex: {pattern: '(?P<a>.)(?P<b>.)', types: {a: itn, b: doble}}}",
            expect=("{name: a, check: x > y, otherwise: drop}",),
        )
    )
    assert [each for each in sentences("p.yml") if "types" in each] == [
        (
            "6: flows.clean.decode.regex.types: 'itn' is no type for 'a': there is no type 'itn'; "
            "did you mean 'int'?;"
            " 'doble' is no type for 'b': there is no type 'doble'; did you mean 'double'?"
        )
    ]
    (home / "p.yml").write_text(clean(expect=("{name: a, check: x1 > y1, otherwise: drop}",)))
    (sentence,) = sentences("p.yml")
    assert "no column 'x1'" in sentence
    assert "no column 'y1'" in sentence


def test_the_file_that_the_wrong_ones_are_made_from_is_right(home):
    (home / "p.yml").write_text(clean())
    assert sentences("p.yml") == []


def test_all_faults_are_reported_at_once_in_the_order_of_the_file(home):
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
        "the pipeline's file FILE cannot be read: No such file or directory; give the path of a "
        "YAML file that describes a pipeline"
    )


def test_an_index_in_a_list_of_flows_is_its_line(home):
    (home / "p.yml").write_text(
        "name: a\nflows:\n  - {name: one, from: x, to: console}\n  - name: two\n    from: y\n    "
        "to:\n      topic: z\n      key: id\n"
        "    decode:\n      json:\n        schema: a int\n    steps:\n      - watermark:\n         "
        " column: b\n          delay: 1 s\n"
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
        (
            "10: flows.clean.steps[0].join.on: in table 'people' there is no column 'idd' here; did "
            "you mean 'id'?"
        ),
    ]


def test_secrets_of_the_file_are_not_reported(home):
    (home / "p.yml").write_text(clean(top=("broker: {url: 'http://ann:secret@h'}",)))
    assert "secret@" not in "".join(sentences("p.yml"))
    assert sentences("p.yml") != []
