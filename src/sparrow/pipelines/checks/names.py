"""Checks of names (of the pipeline, its flows, tables and expectations) and of settings with few
values. Values from a file were checked when it was read, those from Python were not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparrow.base.faults import suggestion
from sparrow.pipelines.checks.findings import Finding
from sparrow.pipelines.model import (
    DEAD_SUFFIX,
    FILE_FORMATS,
    INPUT,
    JOINS,
    MODES,
    OTHERWISE,
    FileTable,
    JoinStep,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.pipelines.model import Flow, Node, PipelineModel

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NAME_IS = "up to 100 of a-z, A-Z, 0-9, '_', '-' and '.', and does not begin with '.' or '-'"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def judge_names(pipeline: PipelineModel) -> Iterator[Finding]:
    """Check all names."""
    if not _NAME.fullmatch(pipeline.name):
        yield Finding(pipeline, ("name",), f"{pipeline.name!r} is no name of a pipeline; it takes {_NAME_IS}")
    if not pipeline.flows:
        yield Finding(pipeline, ("flows",), "there is no flow; a pipeline has at least one")
    yield from _judge_flows(pipeline)
    yield from _judge_tables(pipeline)
    yield from _judge_spark(pipeline)
    for flow in pipeline.flows:
        yield from _judge_expectations(flow)
        yield from _judge_words(flow)


def _judge_flows(pipeline: PipelineModel) -> Iterator[Finding]:
    names = [flow.name for flow in pipeline.flows]
    for index, flow in enumerate(pipeline.flows):
        if "name" in flow.unread:
            continue
        if not _NAME.fullmatch(flow.name):
            yield Finding(flow, (), f"{flow.name!r} is no name of a flow; it takes {_NAME_IS}")
        if flow.name in names[:index]:
            yield Finding(flow, (), f"a flow of the name {flow.name!r} occurs twice")
        if flow.name.endswith(DEAD_SUFFIX) and flow.name.removesuffix(DEAD_SUFFIX) in names:
            other = flow.name.removesuffix(DEAD_SUFFIX)
            yield Finding(
                flow, (), f"the name belongs to the dead letters of flow {other!r}; give the flow another"
            )


def _judge_tables(pipeline: PipelineModel) -> Iterator[Finding]:
    seen: set[str] = set()
    for table in pipeline.tables:
        if table.name.lower() == INPUT:
            yield Finding(
                table,
                (),
                f"{INPUT!r} is what SQL calls the result of the step before; give the table another name",
            )
        elif not _IDENTIFIER.fullmatch(table.name):
            yield Finding(
                table,
                (),
                f"{table.name!r} is no name of a table; it takes letters, digits and '_', as SQL "
                "refers to it by this name",
            )
        elif table.name.lower() in seen:
            yield Finding(
                table,
                (),
                f"a table of the name {table.name!r} occurs twice; to SQL, case makes no difference",
            )
        seen.add(table.name.lower())
        if isinstance(table, FileTable) and table.format not in FILE_FORMATS:
            yield Finding(table, ("format",), _one_of(table.format, FILE_FORMATS))


def _judge_spark(pipeline: PipelineModel) -> Iterator[Finding]:
    for name in pipeline.spark:
        if not name.startswith("spark."):
            yield Finding(
                pipeline,
                ("spark", name),
                f"settings of Spark begin with 'spark.'; did you mean {'spark.' + name!r}?",
            )


def _judge_expectations(flow: Flow) -> Iterator[Finding]:
    seen: set[str] = set()
    for each in flow.expect:
        if not each.name.isprintable():
            yield Finding(each, ("name",), "the name of an expectation takes printable characters")
        if each.name in seen:
            yield Finding(each, ("name",), f"an expectation of the name {each.name!r} occurs twice")
        seen.add(each.name)
        yield from _judge_word(each, "otherwise", each.otherwise, OTHERWISE)


def _judge_words(flow: Flow) -> Iterator[Finding]:
    yield from _judge_word(flow, "mode", flow.mode, MODES)
    for step in flow.steps:
        if isinstance(step, JoinStep):
            yield from _judge_word(step, "how", step.how, JOINS)


def _judge_word(node: Node, field: str, word: str, words: Sequence[str]) -> Iterator[Finding]:
    if word not in words:
        yield Finding(node, (field,), _one_of(word, words))


def _one_of(word: str, words: Sequence[str]) -> str:
    return f"cannot be {word!r}; it takes one of {', '.join(words)}{suggestion(word, words)}"
