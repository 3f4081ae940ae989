"""Wrong files, by their fault."""

from __future__ import annotations

from tests.pipelines_check.files import clean

TABLES = ("tables:", '  people: {csv: /dev/null, schema: "id bigint, country string"}')
CASES: dict[str, str] = {
    # ── the file ──
    "an empty file": "",
    "no mapping": "- a\n- b\n",
    "no YAML": "name: orders\nflows: {a: [\n",
    "a key twice": "name: a\nname: b\n",
    "an unknown section": clean(top=("flow: {}",)),
    "a likely wrong section": clean(top=("sources: {}",)),
    "no name": "flows: {a: {from: x, to: console}}\n",
    "no flows": "name: orders\n",
    "flows that are a text": "name: orders\nflows: clean\n",
    "an empty mapping of flows": "name: orders\nflows: {}\n",
    "a wrong name": clean().replace("name: orders", "name: my orders"),
    "a name of a flow that YAML reads as true": "name: a\nflows:\n  - {name: on, from: x, to: console}\n",
    "a password in the file": clean(top=("broker: {url: 'sparrow://h', password: x}",)),
    "a broker that is no URL": clean(top=("broker: kafka://h:9092",)),
    "files of the broker that are not there": clean(top=("broker: {url: 'sparrows://h', ca_file: ca.pem}",)),
    "settings of Spark that are none": clean(top=("spark: {executor.memory: 1g}",)),
    "a trigger that is none": clean(top=("trigger: sometimes",)),
    "a trigger that is misspelt": clean(top=("trigger: oncee",)),
    "a trigger of a flow that is misspelt": clean(more={"trigger": "evry"}),
    "a trigger without its time": clean(top=("trigger: {every: }",)),
    "a trigger of a wrong time": clean(top=("trigger: {every: 5 fortnights}",)),
    "a checkpoint that is a file": clean(top=("checkpoints: /dev/null",)),
    # ── flows ──
    "an unknown setting of a flow": clean(more={"modes": "append"}),
    "a likely wrong setting of a flow": clean(more={"sql": "SELECT 1"}),
    "words that are misspelt": clean(
        source="{topics: orders, start: beginnning, headers: ture}",
        more={"mode": "apend"},
        steps=("join: {table: people, on: id, how: innr}",),
        expect=("{name: a, check: id > 0, otherwise: dropp}",),
        top=TABLES,
    ),
    "a sink and a step that are misspelt": clean(to="consol", steps=("deduplicte",)),
    "a day that is none, and a key twice": clean(
        source="{topics: orders, start: {timestamp: 2026-02-30}}",
        more={"mode": "append", "mode ": "append", "modde": "append"},
        steps=("sql: SELECT nope FROM input",),
    ),
    "a flow without source and sink": "name: a\nflows:\n  clean: {decode: text}\n",
    "a name that belongs to dead letters": clean(top=("  clean.dead: {from: x, to: console}",)),
    "a wrong mode": clean(more={"mode": "overwrite"}),
    # ── from ──
    "a topic that is none": clean(source="my orders"),
    "two kinds of sources": clean(source="{topics: [a], pattern: b}"),
    "no topic": clean(source="{topics: []}"),
    "a source of nothing": clean(source="{start: end}"),
    "topic for topics": clean(source="{topic: a}"),
    "a pattern that is none": clean(source="{pattern: 'a('}"),
    "a start that is none": clean(source="{topics: a, start: now}"),
    "a start at a time that is none": clean(source="{topics: a, start: {timestamp: noon}}"),
    "a number that is none": clean(source="{topics: a, max_rows_per_trigger: many}"),
    "wrong options of the source": clean(
        source="{topics: a, options: {failOnDataLos: 'false', startingOffsets: earliest, minPartitions: few}}"
    ),
    "a flow that is not there": clean(source="{flow: raw}", top=("  row: {from: x, to: {topic: y}}",)),
    "a flow that cannot be read": clean(source="{flow: raw}", top=("  raw: {from: x, to: console}",)),
    "rows to decode": clean(source="{flow: raw}", top=("  raw: {from: x, to: {parquet: ./raw}}",)),
    "a flow that reads itself": clean(source="{flow: clean}"),
    "a flow that reads its own topic": clean(source="{pattern: 'c.*'}"),
    "a circle of flows": clean(
        source="b",
        to="{topic: c}",
        top=("  two: {from: c, to: {topic: d}}", "  three: {from: {flow: two}, to: {topic: b}}"),
    ),
    # ── decode ──
    "a decoder that is none": clean(decode="jsn"),
    "two decoders": clean(decode="{json: {sample: 1}, text: }"),
    "JSON without a schema": clean(decode="json"),
    "JSON with too much": clean(decode='{json: {schema: "a int", sample: 3}}'),
    "a schema with a wrong type": clean(decode='{json: {schema: "id bigit"}}'),
    "a schema without a type": clean(decode='{json: {schema: "id, b int"}}'),
    "a schema with a column twice": clean(decode='{csv: {schema: "id int, ID int"}}'),
    "a schema that has a reserved column": clean(decode='{json: {schema: "_offset bigint"}}'),
    "a schema that does not end": clean(decode='{csv: "a array<int"}'),
    "a pattern without groups": clean(decode="{regex: '.*'}"),
    "a pattern that does not compile": clean(decode="{regex: '(?P<a>'}"),
    "a type for no group": clean(decode="{regex: {pattern: '(?P<level>.*)', types: {levle: int}}}"),
    "a type of a group that is none": clean(
        decode="{regex: {pattern: '(?P<level>.*)', types: {level: number}}}"
    ),
    "a schema's file that is not there": clean(decode="{avro: {schema_file: a.avsc}}"),
    "an Avro schema that is none": clean(decode="{avro: {schema_file: bad.avsc}}"),
    "an Avro schema with an unknown type": clean(decode="{avro: unknown.avsc}"),
    "a descriptor set that is none": clean(decode="{protobuf: {descriptor_file: bad.avsc, message: A}}"),
    "a delimiter that is none": clean(decode="{csv: {schema: 'a int', delimiter: ''}}"),
    "a key beside a column of that name": clean(decode='{json: {schema: "key int"}}', more={"key": "text"}),
    # ── steps ──
    "a step that is none": clean(steps=("sqll: SELECT 1",)),
    "a likely wrong step": clean(steps=("filter: amount > 0",)),
    "two steps in one": clean(steps=("{sql: SELECT * FROM input, python: 'a:b'}",)),
    "a step that is a text": clean(steps=("SELECT 1",)),
    "SQL that is none": clean(steps=("sql: SELECT (id FROM input",)),
    "SQL that does not end": clean(steps=("sql: SELECT 'a FROM input",)),
    "SQL that is no SELECT": clean(steps=("sql: INSERT INTO x SELECT * FROM input",)),
    "two statements": clean(steps=("sql: SELECT 1; SELECT 2",)),
    "SQL without columns": clean(steps=("sql: SELECT FROM input",)),
    "SQL that reads nothing": clean(steps=("sql: SELECT 1 AS one",)),
    "SQL over an unknown table": clean(steps=("sql: SELECT * FROM inptu",)),
    "SQL over a table only": clean(steps=("sql: SELECT * FROM people",), top=TABLES),
    "SQL with unknown columns": clean(steps=("sql: SELECT id, amuont, place.city, zip FROM input",)),
    "SQL with an unknown column after a step": clean(
        steps=("sql: SELECT id, amount AS total FROM input", "sql: SELECT amount FROM input")
    ),
    "an unknown column of a table": clean(
        steps=("sql: SELECT i.id, p.land FROM input i JOIN people p ON i.id = p.id",), top=TABLES
    ),
    "numbered rows": clean(
        steps=("sql: SELECT *, row_number() OVER (PARTITION BY id ORDER BY at) AS n FROM input",)
    ),
    "distinct values": clean(
        steps=(
            "watermark: {column: at, delay: 1 h}",
            "sql: SELECT at, count(DISTINCT id) AS n FROM input GROUP BY at",
        )
    ),
    "an order": clean(steps=("sql: SELECT * FROM input ORDER BY id",)),
    "an aggregate without a watermark": clean(
        steps=("sql: SELECT name, count(*) AS n FROM input GROUP BY name",)
    ),
    "a watermark on nothing": clean(steps=("watermark: {column: time, delay: 1 h}",)),
    "a watermark on a number": clean(steps=("watermark: {column: id, delay: 1 h}",)),
    "a watermark of a wrong time": clean(steps=("watermark: {column: at, delay: soon}",)),
    "deduplication by nothing": clean(steps=("deduplicate: {by: [uuid]}",)),
    "deduplication of rows by a message's id": clean(
        to="{parquet: ./out}",
        top=("  other: {from: {flow: clean}, steps: [deduplicate: ], to: console}",),
    ),
    "deduplication by an id that was lost": clean(
        source="{topics: orders, headers: true}", steps=("sql: SELECT id FROM input", "deduplicate: {}")
    ),
    "a window with everything wrong": clean(
        steps=(
            "watermark: {column: at, delay: 1 h}",
            (
                "window: {column: name2, length: 5 min, by: [city], select: {n: amount, m: "
                "'max(amuont)', n2: 'sum('}}"
            ),
        )
    ),
    "a window without its parts": clean(steps=("window: {column: at, size: 5 min}",)),
    "a window that leaps": clean(
        steps=("window: {column: at, length: 5 min, slide: 6 min, select: {n: count(*)}}",),
        more={"mode": "update"},
    ),
    "a window over another column than the watermark": clean(
        steps=(
            "watermark: {column: at, delay: 1 h}",
            "window: {column: _timestamp, length: 5 min, select: {n: count(*)}}",
        )
    ),
    "a column that a window did not keep": clean(
        steps=(
            "watermark: {column: at, delay: 1 h}",
            "window: {column: at, length: 5 min, select: {n: count(*)}}",
            "sql: SELECT id, n FROM input",
        )
    ),
    "two aggregates in mode update": clean(
        steps=(
            "window: {column: at, length: 5 min, select: {n: count(*)}}",
            "window: {column: window_start, length: 5 min, select: {m: max(n)}}",
        ),
        more={"mode": "update"},
    ),
    "a join with nothing": clean(steps=("join: {table: peple, on: id}",), top=TABLES),
    "a join on what is not there": clean(steps=("join: {table: people, on: [id, name, land]}",), top=TABLES),
    "a join that a stream cannot do": clean(steps=("join: {table: people, on: id, how: full}",), top=TABLES),
    "a function that is named wrongly": clean(steps=("python: enrich",)),
    "a module that is not there": clean(steps=("python: no_shop.steps:enrich",)),
    "a function that is not there": clean(steps=("python: ./steps.py:enrch",)),
    "a file that is no Python": clean(steps=("python: bad.avsc.py:enrich",)),
    # ── expectations ──
    "an expectation without its parts": clean(expect=("{name: positive}",)),
    "an expectation that is no SQL": clean(expect=("{name: positive, check: amount >, otherwise: drop}",)),
    "an expectation that is a value": clean(expect=("{name: positive, check: amount, otherwise: drop}",)),
    "an expectation that is arithmetic": clean(
        expect=("{name: positive, check: amount - 1, otherwise: drop}",)
    ),
    "an expectation on nothing": clean(expect=("{name: positive, check: amuont > 0, otherwise: drop}",)),
    "an expectation on several rows": clean(expect=("{name: few, check: count(*) < 9, otherwise: stop}",)),
    "an expectation with a query": clean(
        expect=("{name: a, check: id IN (SELECT id FROM people), otherwise: stop}",)
    ),
    "an expectation with two conditions": clean(
        expect=("{name: a, check: 'id > 0, id < 9', otherwise: stop}",)
    ),
    "an expectation twice": clean(
        expect=("{name: a, check: id > 0, otherwise: drop}", "{name: a, check: id > 1, otherwise: drop}")
    ),
    "an expectation that does what none does": clean(expect=("{name: a, check: id > 0, otherwise: ignore}",)),
    "dead letters without a topic": clean(expect=("{name: a, check: id > 0}",)),
    "dead letters into the sink": clean(more={"dead_letters": "clean"}),
    "dead letters into the source": clean(more={"dead_letters": "orders"}),
    # ── to ──
    "a sink that is none": clean(to="{topc: clean}"),
    "a likely wrong sink": clean(to="{kafka: clean}"),
    "columns that the sink does not get": clean(
        to="{topic: clean, key: idd, value: body, headers: {region: land}, partition: name, "
        "timestamp: amount}"
    ),
    "wrong options of the sink": clean(
        to="{topic: clean, options: {topic: x, compression: zip, batchSize: 3}}"
    ),
    "a partition by nothing": clean(to="{parquet: ./out, partition_by: [day]}"),
    "a partition by everything": clean(
        to="{parquet: ./out, partition_by: [id]}", decode='{json: {schema: "id int"}}'
    ),
    "a partition by a column that the sink does not get": clean(to="{delta: ./out, partition_by: [_topic]}"),
    "a sink that is a file": clean(to="{parquet: steps.py}"),
    "two flows into one table": clean(
        to="{parquet: ./out}", top=("  other: {from: x, to: {parquet: ./here/../out/}}",)
    ),
    "a table among the checkpoints": clean(to="{delta: ./checkpoints/out}"),
    "an update of files": clean(
        to="{parquet: ./out}",
        steps=("window: {column: at, length: 5 min, select: {n: count(*)}}",),
        more={"mode": "update"},
    ),
    "an update of a table of Delta Lake": clean(
        to="{delta: ./out}",
        steps=("sql: SELECT id, count(*) AS n FROM input GROUP BY id",),
        more={"mode": "update"},
    ),
    "all results of no aggregate": clean(to="console", more={"mode": "complete"}),
    "a table of no namespace": clean(to="{iceberg: orders}"),
    "a URL of no database": clean(to="{jdbc: {url: 'postgresql://h', table: t, pasword_file: x}}"),
    "a password of a database in the file": clean(to="{jdbc: {url: 'jdbc:x', table: t, password: x}}"),
    "settings beside those of the console": clean(to="{console: {}, rows: 3}"),
    # ── tables ──
    "a table that is none": clean(top=("tables: {people: {excel: ./x}}",)),
    "tables in a list": clean(top=("tables: [people]",)),
    "a table that is not there": clean(top=("tables: {people: {parquet: ./people}}",)),
    "a table with a wrong schema": clean(top=("tables: {people: {csv: /dev/null, schema: 'id'}}",)),
    "a table of a wrong name": clean(top=("tables: {input: {csv: /dev/null}, my-table: {csv: /dev/null}}",)),
    "two tables of one name": clean(top=("tables: {a: {csv: /dev/null}, A: {csv: /dev/null}}",)),
    "a directory that is no Delta table": clean(top=("tables: {people: {delta: .}}",)),
}
