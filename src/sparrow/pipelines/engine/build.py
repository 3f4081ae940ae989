"""A flow as DataFrames: the rows for its sink, and the messages for its dead letters.

    source → decode → (count and take out rows that were not decoded)
        → steps → (count and take out rows that fail an expectation) → sink

Both are made of the same functions, so the rows that leave the flow for the dead letters are the
rows that the query of the dead letters finds.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sparrow.base.errors import InvalidConfig, SparrowError
from sparrow.pipelines.engine.columns import FAULT, own_columns, without
from sparrow.pipelines.engine.dead_letters import dead_letters
from sparrow.pipelines.engine.expectations import (
    OBSERVED,
    UNDECODABLE,
    kept,
    origin,
    stopping,
)
from sparrow.pipelines.engine.failures import first_line
from sparrow.pipelines.engine.formats import decode
from sparrow.pipelines.engine.sources import read_sink, read_topics, sample_schema, topic_of
from sparrow.pipelines.engine.states import FlowState, load_state, save_state
from sparrow.pipelines.engine.steps import apply_steps
from sparrow.pipelines.engine.tables import read_table
from sparrow.pipelines.model import JoinStep, SqlStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from sparrow.pipelines.model import Flow, PipelineModel, Source


R = TypeVar("R")


class Build:
    """The flows of a pipeline in one session. Tables are read once, when a flow first needs one."""

    def __init__(self, spark: SparkSession, pipeline: PipelineModel, directory: str) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.directory = directory
        self._tables: dict[str, DataFrame] = {}
        self._states: dict[str, FlowState] = {}

    def flow(self, flow: Flow) -> FlowBuild:
        """Return the builder of a flow's DataFrames."""
        return FlowBuild(self, flow)

    def state(self, flow: Flow) -> FlowState:
        """Return the stored state of a flow."""
        if flow.name not in self._states:
            self._states[flow.name] = load_state(self.pipeline.checkpoint_of(flow))
        return self._states[flow.name]

    def keep(self, flow: Flow, state: FlowState) -> None:
        """Store the state of a flow."""
        save_state(self.pipeline.checkpoint_of(flow), state)
        self._states[flow.name] = state

    def tables_for(self, flow: Flow) -> dict[str, DataFrame]:
        """Return the tables that the flow's steps read."""
        wanted = {step.table for step in flow.steps if isinstance(step, JoinStep)}
        queries = " ".join(step.query for step in flow.steps if isinstance(step, SqlStep)).lower()
        wanted |= {table.name for table in self.pipeline.tables if table.name.lower() in queries}
        for name in wanted - self._tables.keys():
            self._tables[name] = read_table(self.spark, self.pipeline.table(name))
        return {name: self._tables[name] for name in wanted}


class FlowBuild:
    """DataFrames of one flow.

    Raises:
        SparrowError: from every method; the text begins with the flow's name.
    """

    def __init__(self, build: Build, flow: Flow) -> None:
        self._build = build
        self.flow = flow

    @cached_property
    def rows(self) -> DataFrame:
        """The rows for the sink."""
        return self._with_flow_name(self._rows)

    @cached_property
    def dead(self) -> DataFrame | None:
        """The messages for the dead letters; None if there cannot be any."""
        if self.flow.dead_letters is None:
            return None
        return self._with_flow_name(lambda: dead_letters(self.flow, self._decoded(), self._dead_steps))

    def _with_flow_name(self, make: Callable[[], R]) -> R:
        try:
            return make()
        except SparrowError as error:
            raise type(error)(f"flow {self.flow.name}: {error.text}") from error
        except PySparkException as error:
            raise InvalidConfig(f"flow {self.flow.name}: {first_line(error)}") from error

    def _rows(self) -> DataFrame:
        source = topic_of(self._build.pipeline, self.flow)
        rows = self._files() if source is None else self._good(self._messages(source))
        return kept(self._steps(rows), self.flow.expect)

    def _files(self) -> DataFrame:
        other = self._build.pipeline.flow(self.flow.source.flow or "")
        upstream = self._build.flow(other).rows
        schema = upstream.select(*[upstream[f"`{name}`"] for name in own_columns(upstream)]).schema
        return read_sink(self._build.spark, other, schema, self.flow.source)

    def _decoded(self) -> DataFrame:
        source = topic_of(self._build.pipeline, self.flow)
        if source is None:
            return self._files().withColumn(FAULT, F.lit(None).cast("string"))
        return self._messages(source)

    def _messages(self, source: Source) -> DataFrame:
        """Return the decoded messages, with `_fault`."""
        build = self._build
        df = read_topics(build.spark, build.pipeline, source, has_headers=self.flow.has_headers)
        return decode(df, self.flow, lambda column, count: self._schema(source, column, count))

    def _schema(self, source: Source, column: str, count: int) -> str:
        """Return the stored schema, or infer one from a sample now and store it."""
        state = self._build.state(self.flow)
        if column not in state.schemas:
            build = self._build
            found = sample_schema(build.spark, build.pipeline, source, column, count)
            state = state.with_schema(column, found)
            build.keep(self.flow, state)
        return state.schemas[column]

    def _good(self, decoded: DataFrame) -> DataFrame:
        """Return the rows that were decoded. The others are counted, or stop the query if the flow
        has no topic for dead letters.
        """
        flow = self.flow
        if flow.decode is None and flow.key is None:
            return without(decoded, FAULT)
        is_good = F.col(FAULT).isNull()
        if flow.dead_letters is None:
            text = F.concat(
                origin(decoded),
                F.lit(" cannot be decoded: "),
                F.col(FAULT),
                F.lit("; name a topic for such messages by dead_letters"),
            )
            return without(decoded.where(F.when(is_good, F.lit(True)).otherwise(stopping(text))), FAULT)
        counted = decoded.observe(
            f"{OBSERVED}_{UNDECODABLE}", F.count(F.when(~is_good, 1)).alias(UNDECODABLE)
        )
        return without(counted.where(is_good), FAULT)

    def _steps(self, rows: DataFrame) -> DataFrame:
        tables = self._build.tables_for(self.flow)
        return apply_steps(rows, self.flow.steps, tables, self._build.directory)

    def _dead_steps(self, decoded: DataFrame) -> DataFrame:
        """Return the rows after the last step, in the query of the dead letters."""
        return self._steps(without(decoded.where(F.col(FAULT).isNull()), FAULT))
