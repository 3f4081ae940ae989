"""The model of a pipeline: flows, each from topics through decoding, steps and expectations to a
sink.

These classes are the Python API and the result of reading a file; they know neither YAML nor Spark.
All are frozen and made by keyword:

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

A class only holds its settings; faults in them and in the things that they refer to are found by
`checks`. `location` is a node's location in a file, None in Python. Paths that come from a file are
absolute or URIs: relative ones are resolved against that file. Durations are in milliseconds.

After decoding a row has the decoded columns and those of `META_COLUMNS`; without a decoder it has
`value` as bytes. A decoded key is the column `key`: a string for a `TextDecoder`, otherwise a
struct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from sparrow.base.faults import Path
    from sparrow.base.settings import Located

META_COLUMNS = ("_key", "_value", "_topic", "_partition", "_offset", "_timestamp")
"""Columns that every decoded row has beside its own; key and value are the original bytes."""
HEADER_COLUMNS = ("_headers", "_message_id")
"""Further columns of a row if the source is read with headers."""
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
"""The only joins that Spark has for a stream and a table that does not change."""
FILE_FORMATS = ("parquet", "csv", "json", "orc")
JSON_VALUE = "json"
"""`TopicSink.value`: all columns as a JSON object."""


@dataclass(frozen=True, slots=True)
class Location:
    """Location of a node in a file. `str(location)` is "orders.yml:12"."""

    located: Located
    path: Path = ()

    def at(self, *path: str | int) -> str:
        """Return the location of a part, or of its nearest parent that has a line."""
        return self.located.location_of((*self.path, *path))

    def inside(self, *path: str | int) -> Location:
        """Return the location of a part, as one of its own."""
        return Location(self.located, (*self.path, *path))

    def has(self, *path: str | int) -> bool:
        """Return True if the file has such a part here."""
        return (*self.path, *path) in self.located.lines

    def __str__(self) -> str:
        return self.at()


@dataclass(frozen=True, kw_only=True)
class Node:
    """A part of a pipeline that can be in a file. `KEY` is the key that names its kind there."""

    KEY: ClassVar[str] = ""

    location: Location | None = field(default=None, repr=False, compare=False)
    unread: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """Settings in the file that could not be read; nothing can be said of them. Such a node is
    checked, and never run.
    """

    def __post_init__(self) -> None:
        """Turn lists into tuples; for columns and topics a single name becomes a list of one, as in
        a file.
        """
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type == "Sequence[str]" and isinstance(value, str):
                object.__setattr__(self, each.name, (value,))
            elif isinstance(value, list):
                object.__setattr__(self, each.name, tuple(value))


@dataclass(frozen=True, kw_only=True)
class Broker(Node):
    """Address and credentials of the broker. A setting that is None comes from the environment
    (SPARROW_URL, SPARROW_TOKEN, …), or has Sparrow's default.
    """

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
        """Return the settings as options of the source and the sink, by their names."""
        options = {
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
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Unread(Node):
    """A part of a file that could not be read at all; it keeps its location and, if there is one,
    its name.
    """

    name: str = ""
    schema: None = None


# ── when ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Once(Node):
    """Read all messages that exist at the start, then end (Spark's AvailableNow)."""

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
    """Files that Spark reads; `format` is one of `FILE_FORMATS`, `options` are those of Spark's
    reader.
    """

    name: str
    format: str
    path: str
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeltaTable(Node):
    """A Delta Lake table. `options` are those of its storage."""

    KEY: ClassVar[str] = "delta"

    name: str
    path: str
    version: int | None = None
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class IcebergTable(Node):
    """A table of an Iceberg catalog. `properties` are those of the catalog; if there are none,
    pyiceberg's configuration supplies them.
    """

    KEY: ClassVar[str] = "iceberg"

    name: str
    table: str
    catalog: str = "default"
    schema: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class JdbcTable(Node):
    """A database table. Spark must have the driver's JAR (`spark.jars`, `spark.jars.packages`)."""

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
    """Input of a flow: one of `topics`, `pattern` (a regular expression of topics) and `flow` (the
    output of that flow's sink).

    `start` is used by a flow without a checkpoint: `BEGINNING`, `END`, or a timestamp in ms.
    `options` are further options of the source, by its names.
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
    """A JSON object. The columns are given by `schema` (Spark's DDL), or inferred from the first
    `sample` messages.
    """

    KEY: ClassVar[str] = "json"

    schema: str | None = None
    sample: int | None = None


@dataclass(frozen=True, kw_only=True)
class AvroDecoder(Node):
    """An Avro record. `has_registry_prefix`: skip the five bytes before it (a zero and the schema's
    id).
    """

    KEY: ClassVar[str] = "avro"

    schema_file: str
    has_registry_prefix: bool = False


@dataclass(frozen=True, kw_only=True)
class ProtobufDecoder(Node):
    """A Protocol Buffers message, described by a descriptor set (`protoc --descriptor_set_out
    --include_imports`).
    """

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
    """A line of text that the whole pattern matches; its named groups are the columns, strings
    unless `types` says otherwise.
    """

    KEY: ClassVar[str] = "regex"

    pattern: str
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TextDecoder(Node):
    """UTF-8 text as one column: `value` (for a key: `key`)."""

    KEY: ClassVar[str] = "text"


Decoder: TypeAlias = JsonDecoder | AvroDecoder | ProtobufDecoder | CsvDecoder | RegexDecoder | TextDecoder


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class SqlStep(Node):
    """A SELECT of Spark SQL over `input`, the result of the step before, and the tables by their
    names.
    """

    KEY: ClassVar[str] = "sql"

    query: str


@dataclass(frozen=True, kw_only=True)
class PythonStep(Node):
    """A function DataFrame → DataFrame: "module:function", "/path/of/file.py:function", or, in
    Python, the function itself.
    """

    KEY: ClassVar[str] = "python"

    function: str | Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class WatermarkStep(Node):
    """A watermark: how late rows may be by a column of times before dependent results are final."""

    KEY: ClassVar[str] = "watermark"

    column: str
    delay_ms: int


@dataclass(frozen=True, kw_only=True)
class DeduplicateStep(Node):
    """Keeps the first of the rows that are equal in `by`; without `by`, equal in their message id.
    `within_ms` bounds how long rows are remembered.
    """

    KEY: ClassVar[str] = "deduplicate"

    by: Sequence[str] = ()
    within_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class WindowStep(Node):
    """Aggregates per window of time and `by`. The result has `window_start`, `window_end`, the
    columns of `by`, and `select` (name → SQL).
    """

    KEY: ClassVar[str] = "window"

    column: str
    length_ms: int
    slide_ms: int | None = None
    by: Sequence[str] = ()
    select: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JoinStep(Node):
    """Adds the columns of a table where `on` are equal. `how` is one of `JOINS`."""

    KEY: ClassVar[str] = "join"

    table: str
    on: Sequence[str]
    how: str = "inner"


Step: TypeAlias = SqlStep | PythonStep | WatermarkStep | DeduplicateStep | WindowStep | JoinStep


@dataclass(frozen=True, kw_only=True)
class Expectation(Node):
    """A condition on the rows after the last step; `otherwise` is one of `OTHERWISE`. A row for
    which it is null fails.
    """

    name: str
    check: str
    otherwise: str = DEAD_LETTER


# ── to ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class TopicSink(Node):
    """Messages of a topic. `key`, `timestamp` and `partition` are columns; `value` is `JSON_VALUE`
    or a column; `headers` is header → column.
    """

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
    """A Delta Lake table. `options` are those of its storage."""

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
    """A database table; with `key`, rows of the same key replace each other."""

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
    """A flow from a source to a sink. In a file `source` is called `from`, and `sink` `to`. `mode`
    is one of `MODES`.
    """

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
    """None: the pipeline's trigger."""

    @property
    def has_headers(self) -> bool:
        """Return True if messages are read with their headers: if the source asks for it, or
        messages are deduplicated by their ids, which are headers.
        """
        return self.source.headers or any(
            isinstance(step, DeduplicateStep) and not step.by for step in self.steps
        )


@dataclass(frozen=True, kw_only=True)
class PipelineModel(Node):
    """Flows that belong together. `spark` is configuration of the session."""

    name: str
    flows: Sequence[Flow]
    broker: Broker = field(default_factory=Broker)
    checkpoints: str = "checkpoints"
    trigger: Trigger = field(default_factory=Once)
    tables: Sequence[Table] = ()
    spark: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None
    """The file that the pipeline was read from."""

    def flow(self, name: str) -> Flow:
        """Return the flow of that name.

        Raises:
            KeyError: there is none.
        """
        for each in self.flows:
            if each.name == name:
                return each
        raise KeyError(name)

    def table(self, name: str) -> Table:
        """Return the table of that name.

        Raises:
            KeyError: there is none.
        """
        for each in self.tables:
            if each.name == name:
                return each
        raise KeyError(name)

    def trigger_of(self, flow: Flow) -> Trigger:
        """Return the trigger of a flow."""
        return flow.trigger or self.trigger

    def query_name(self, flow: Flow, *, is_dead: bool = False) -> str:
        """Return the name of a flow's query, or of the query that writes its dead letters; its lag
        is that of the group "spark-<name>".
        """
        return f"{self.name}.{flow.name}{DEAD_SUFFIX if is_dead else ''}"

    def checkpoint_of(self, flow: Flow, *, is_dead: bool = False) -> str:
        """Return the directory (or URI) of the checkpoint of that query."""
        return f"{self.checkpoints.rstrip('/')}/{flow.name}{DEAD_SUFFIX if is_dead else ''}"
