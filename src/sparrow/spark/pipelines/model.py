"""What a pipeline is: flows, each from topics through decoding, steps and expectations to a sink.

These classes are the Python API and what a file is read to; they know neither YAML nor Spark. All are frozen and made by keyword:

    Pipeline(
        name="orders",
        flows=[
            Flow(
                name="clean",
                source=Source(topics=["orders"]),
                decode=JsonDecoder(schema="id bigint, amount double"),
                steps=[SqlStep(query="SELECT *, amount * 1.2 AS gross FROM input")],
                sink=TopicSink(topic="clean-orders", key="id"),
            )
        ],
    )

A class holds only what was said of it; what is wrong with it, and with what it refers to, is found by `checks`. `place` is where a node stands in a file, None in
Python. Paths are absolute, or URIs, when they come from a file: those of a file are relative to that file. Durations are milliseconds.

After decoding a row has the decoded columns and those of `META_COLUMNS`; without a decoder it has `value` as bytes. A decoded key is the column `key`: a text for a
`TextDecoder`, else a struct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from sparrow.base.faults import Path
    from sparrow.base.options import Located

META_COLUMNS = ("_key", "_value", "_topic", "_partition", "_offset", "_timestamp")
"""What every decoded row has beside its own columns; key and value as the bytes that they were."""
HEADER_COLUMNS = ("_headers", "_message_id")
"""What it has beside them when the source is read with headers."""
KEY_COLUMN = "key"
VALUE_COLUMN = "value"
INPUT = "input"
"""The name by which a SQL step knows the result of the step before."""
MESSAGE_ID_HEADER = "message-id"
DEAD_SUFFIX = ".dead"

BEGINNING, END = "beginning", "end"
DEAD_LETTER, DROP, STOP = OTHERWISE = ("dead_letter", "drop", "stop")
APPEND, UPDATE, COMPLETE = MODES = ("append", "update", "complete")
JOINS = ("inner", "left", "left_semi", "left_anti")
"""A stream joined with a table that does not change has no others in Spark."""
FILE_FORMATS = ("parquet", "csv", "json", "orc")
JSON_VALUE = "json"
"""`TopicSink.value`: all columns as a JSON object."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands in a file. `str(place)` is "orders.yml:12"."""

    located: Located
    path: Path = ()

    def at(self, *path: str | int) -> str:
        """The place of a part, or of what it is in."""
        return self.located.place_of((*self.path, *path))

    def inside(self, *path: str | int) -> Place:
        """The place of a part, as one of its own."""
        return Place(self.located, (*self.path, *path))

    def has(self, *path: str | int) -> bool:
        """Whether such a part stands there."""
        return (*self.path, *path) in self.located.lines

    def __str__(self) -> str:
        return self.at()


@dataclass(frozen=True, kw_only=True)
class Node:
    """Anything that may stand in a file. `KEY` is the word that tells one kind from its siblings there."""

    KEY: ClassVar[str] = ""

    place: Place | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Lists become tuples; of columns and topics, one that stands alone is a list of one, as in a file."""
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type == "Sequence[str]" and isinstance(value, str):
                object.__setattr__(self, each.name, (value,))
            elif isinstance(value, list):
                object.__setattr__(self, each.name, tuple(value))


@dataclass(frozen=True, kw_only=True)
class Broker(Node):
    """Where the topics are and who asks. What is None comes from the environment (SPARROW_URL, SPARROW_TOKEN, …), or has Sparrow's default."""

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def options(self) -> dict[str, str]:
        """As options of the source and the sink, by their names."""
        told = {
            "url": self.url,
            "token": self.token,
            "tokenFile": self.token_file,
            "user": self.user,
            "password": self.password,
            "passwordFile": self.password_file,
            "caFile": self.ca_file,
            "certificateFile": self.certificate_file,
            "keyFile": self.key_file,
        }
        return {name: value for name, value in told.items() if value is not None}


# ── when ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Once(Node):
    """All that is there now, then end (Spark's AvailableNow)."""

    KEY: ClassVar[str] = "once"


@dataclass(frozen=True, kw_only=True)
class Every(Node):
    """Micro-batches until stopped; 0: the next one begins when the last ended."""

    KEY: ClassVar[str] = "every"

    interval_ms: int = 0


Trigger: TypeAlias = Once | Every


# ── tables for joins ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class FileTable(Node):
    """Files that Spark reads; `format` is one of `FILE_FORMATS`, `options` are those of Spark's reader."""

    name: str
    format: str
    path: str
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeltaTable(Node):
    """A table of Delta Lake. `options` are those of its storage."""

    KEY: ClassVar[str] = "delta"

    name: str
    path: str
    version: int | None = None
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class IcebergTable(Node):
    """A table of an Iceberg catalog. `properties` are those of the catalog; without any, pyiceberg's configuration is asked for it."""

    KEY: ClassVar[str] = "iceberg"

    name: str
    table: str
    catalog: str = "default"
    schema: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class JdbcTable(Node):
    """A table of a database. The driver's JAR is Spark's matter (`spark.jars`, `spark.jars.packages`)."""

    KEY: ClassVar[str] = "jdbc"

    name: str
    url: str
    table: str
    user: str | None = None
    password_file: str | None = None
    driver: str | None = None
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


Table: TypeAlias = FileTable | DeltaTable | IcebergTable | JdbcTable


# ── from ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Source(Node):
    """What a flow reads: one of `topics`, `pattern` (a regular expression of topics) and `flow` (what that flow's sink gets).

    `start` counts for a flow without a checkpoint: `BEGINNING`, `END`, or a timestamp in ms. `options` are further options of the source, by its names.
    """

    topics: Sequence[str] = ()
    pattern: str | None = None
    flow: str | None = None
    start: str | int = BEGINNING
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    headers: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


# ── decode ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class JsonDecoder(Node):
    """A JSON object. The columns are told by `schema` (Spark's DDL), or inferred from the first `sample` messages."""

    KEY: ClassVar[str] = "json"

    schema: str | None = None
    sample: int | None = None


@dataclass(frozen=True, kw_only=True)
class AvroDecoder(Node):
    """A record of Avro. `has_registry_prefix`: five bytes stand before it (a zero and the schema's id), which are skipped."""

    KEY: ClassVar[str] = "avro"

    schema_file: str
    has_registry_prefix: bool = False


@dataclass(frozen=True, kw_only=True)
class ProtobufDecoder(Node):
    """A message of Protocol Buffers, described by a descriptor set (`protoc --descriptor_set_out --include_imports`)."""

    KEY: ClassVar[str] = "protobuf"

    descriptor_file: str
    message: str
    has_registry_prefix: bool = False


@dataclass(frozen=True, kw_only=True)
class CsvDecoder(Node):
    """One line of CSV."""

    KEY: ClassVar[str] = "csv"

    schema: str
    delimiter: str = ","
    quote: str = '"'
    escape: str = "\\"
    null: str = ""


@dataclass(frozen=True, kw_only=True)
class RegexDecoder(Node):
    """A line of text that the whole pattern matches; its named groups are the columns, texts unless `types` says otherwise."""

    KEY: ClassVar[str] = "regex"

    pattern: str
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TextDecoder(Node):
    """UTF-8, as one column: `value` (of a key: `key`)."""

    KEY: ClassVar[str] = "text"


Decoder: TypeAlias = JsonDecoder | AvroDecoder | ProtobufDecoder | CsvDecoder | RegexDecoder | TextDecoder


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class SqlStep(Node):
    """A SELECT of Spark SQL over `input`, the result of the step before, and the tables by their names."""

    KEY: ClassVar[str] = "sql"

    query: str


@dataclass(frozen=True, kw_only=True)
class PythonStep(Node):
    """A function DataFrame → DataFrame: "module:function", "/path/of/file.py:function", or, in Python, itself."""

    KEY: ClassVar[str] = "python"

    function: str | Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class WatermarkStep(Node):
    """How late rows may come by a column of times, before what depends on them is final."""

    KEY: ClassVar[str] = "watermark"

    column: str
    delay_ms: int


@dataclass(frozen=True, kw_only=True)
class DeduplicateStep(Node):
    """The first of rows that are equal in `by`; without `by`, equal in their message id. `within_ms` bounds what is remembered."""

    KEY: ClassVar[str] = "deduplicate"

    by: Sequence[str] = ()
    within_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class WindowStep(Node):
    """Aggregates per window of time and `by`. The result has `window_start`, `window_end`, the columns of `by`, and `select` (name → SQL)."""

    KEY: ClassVar[str] = "window"

    column: str
    length_ms: int
    slide_ms: int | None = None
    by: Sequence[str] = ()
    select: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JoinStep(Node):
    """Columns of a table, where `on` are equal. `how` is one of `JOINS`."""

    KEY: ClassVar[str] = "join"

    table: str
    on: Sequence[str]
    how: str = "inner"


Step: TypeAlias = SqlStep | PythonStep | WatermarkStep | DeduplicateStep | WindowStep | JoinStep


@dataclass(frozen=True, kw_only=True)
class Expectation(Node):
    """A condition that rows behind the last step fulfil; `otherwise` is one of `OTHERWISE`. A row for which it is null fails."""

    name: str
    check: str
    otherwise: str = DEAD_LETTER


# ── to ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class TopicSink(Node):
    """Messages of a topic. `key`, `timestamp` and `partition` are columns; `value` is `JSON_VALUE` or a column; `headers` is header → column."""

    KEY: ClassVar[str] = "topic"

    topic: str
    key: str | None = None
    value: str = JSON_VALUE
    headers: Mapping[str, str] = field(default_factory=dict)
    partition: str | None = None
    timestamp: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of the sink, by its names."""


@dataclass(frozen=True, kw_only=True)
class ParquetSink(Node):
    """Parquet files, by Spark's file sink. `options` are those of its writer."""

    KEY: ClassVar[str] = "parquet"

    path: str
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeltaSink(Node):
    """A table of Delta Lake. `options` are those of its storage."""

    KEY: ClassVar[str] = "delta"

    path: str
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class IcebergSink(Node):
    """A table of an Iceberg catalog, "namespace.table". `properties` are those of the catalog."""

    KEY: ClassVar[str] = "iceberg"

    table: str
    catalog: str = "default"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class JdbcSink(Node):
    """A table of a database; with `key`, rows of the same key replace each other."""

    KEY: ClassVar[str] = "jdbc"

    url: str
    table: str
    key: Sequence[str] = ()
    user: str | None = None
    password_file: str | None = None
    driver: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class ConsoleSink(Node):
    """The first rows of each batch on the terminal."""

    KEY: ClassVar[str] = "console"

    rows: int = 20


Sink: TypeAlias = TopicSink | ParquetSink | DeltaSink | IcebergSink | JdbcSink | ConsoleSink


# ── the whole ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Flow(Node):
    """From a source to a sink. In a file `source` is called `from`, and `sink` `to`. `mode` is one of `MODES`."""

    name: str
    source: Source
    sink: Sink
    decode: Decoder | None = None
    key: Decoder | None = None
    steps: Sequence[Step] = ()
    expect: Sequence[Expectation] = ()
    dead_letters: str | None = None
    mode: str = APPEND
    trigger: Trigger | None = None
    """None: the pipeline's."""

    @property
    def has_headers(self) -> bool:
        """Whether its messages are read with their headers: when it says so, or tells messages apart by their ids, which are headers."""
        return self.source.headers or any(
            isinstance(step, DeduplicateStep) and not step.by for step in self.steps
        )


@dataclass(frozen=True, kw_only=True)
class Pipeline(Node):
    """Flows that belong together. `spark` is configuration of the session."""

    name: str
    flows: Sequence[Flow]
    broker: Broker = field(default_factory=Broker)
    checkpoints: str = "checkpoints"
    trigger: Trigger = field(default_factory=Once)
    tables: Sequence[Table] = ()
    spark: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None
    """The file that it was read from."""

    def flow(self, name: str) -> Flow:
        """The flow of that name.

        Raises:
            KeyError: there is none.
        """
        for each in self.flows:
            if each.name == name:
                return each
        raise KeyError(name)

    def table(self, name: str) -> Table:
        """The table of that name.

        Raises:
            KeyError: there is none.
        """
        for each in self.tables:
            if each.name == name:
                return each
        raise KeyError(name)

    def trigger_of(self, flow: Flow) -> Trigger:
        """When the flow runs."""
        return flow.trigger or self.trigger

    def query_name(self, flow: Flow, *, is_dead: bool = False) -> str:
        """The name of a flow's query, or of the query that writes its dead letters; its lag is that of the group "spark-<name>"."""
        return f"{self.name}.{flow.name}{DEAD_SUFFIX if is_dead else ''}"

    def checkpoint_of(self, flow: Flow, *, is_dead: bool = False) -> str:
        """The directory (or URI) of the checkpoint of that query."""
        return f"{self.checkpoints.rstrip('/')}/{flow.name}{DEAD_SUFFIX if is_dead else ''}"

    def check(self) -> None:
        """Judge it as far as that can be known before Spark starts.

        Raises:
            InvalidConfig: every fault, one per line, each with its file and line.
        """
        from sparrow.spark.pipelines.checks import check

        check(self)

    def run(self, **options: Any) -> Any:
        """Check it, then run it; see `engine.run` for what there is to say and what comes back.

        Raises:
            InvalidConfig: see `check`.
        """
        from sparrow.spark.pipelines import run

        return run(self, **options)
