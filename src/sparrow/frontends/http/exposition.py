"""Metrics as text in the formats of Prometheus (0.0.4) and OpenMetrics (1.0), written by
prometheus-client.

A metric with many values is written in parts, and other tasks run between them. The metrics of the
process and the interpreter are included, with the names that all Python programs use.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open
from prometheus_client.registry import Collector

from sparrow.broker.metrics import table
from sparrow.broker.metrics.collector import Distribution, Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.broker.metrics.collector import Collected, Labels, Values
    from sparrow.broker.metrics.table import Metric

OPEN_METRICS: Final = "application/openmetrics-text"
_OPEN_TYPE: Final = f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"
_PLAIN_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
_LINES_AT_ONCE: Final = 200
_HISTOGRAMS_AT_ONCE: Final = 10
"""Histograms per part; each has about twenty lines."""
_END: Final = b"# EOF\n"


class Exposition:
    """Writer of metrics; one for the frontend."""

    def __init__(self) -> None:
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    async def write(self, collected: Collected, *, is_open: bool) -> tuple[str, bytes]:
        """Return content type and text."""
        generate = generate_open if is_open else generate_latest
        slices = Slices()
        pieces: list[bytes] = []
        for metric, values in collected.items():
            for family, is_first in _pieces(metric, values):
                pieces.append(_written(generate, [family], with_head=is_first))
                await slices.pause()
        pieces.append(_written(generate, self._process.collect()))
        if is_open:
            pieces.append(_END)
        return _OPEN_TYPE if is_open else _PLAIN_TYPE, b"".join(pieces)


def accepts_open_metrics(accept: str) -> bool:
    """Return True if this Accept header asks for OpenMetrics."""
    kinds = (kind.strip().lower() for kind in accept.split(","))
    return any(kind.partition(";")[0].strip() == OPEN_METRICS for kind in kinds)


class _Families(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _written(
    generate: Callable[[Collector], bytes], families: Iterable[Family], *, with_head: bool = True
) -> bytes:
    text = generate(_Families(families)).removesuffix(_END)
    while not with_head and text.startswith(b"#"):
        text = text.partition(b"\n")[2]
    return text


def _pieces(metric: Metric, values: Values) -> Iterator[tuple[Family, bool]]:
    """Yield the values of a metric in small parts, with True for the first. A metric without values
    yields its head.
    """
    rest = iter(values.items())
    is_first = True
    at_once = _HISTOGRAMS_AT_ONCE if metric.kind == table.HISTOGRAM else _LINES_AT_ONCE
    while True:
        part = list(islice(rest, at_once))
        if not part and not is_first:
            return
        yield _family(metric, part), is_first
        is_first = False


def _family(metric: Metric, part: list[tuple[Labels, float | Distribution]]) -> Family:
    suffix = {table.COUNTER: "_total", table.INFO: "_info"}.get(metric.kind, "")
    name = metric.name.removesuffix(suffix)
    family = Family(name, metric.text, metric.kind)
    for labels, value in part:
        named = dict(zip(metric.labels, labels, strict=True))
        if isinstance(value, Distribution):
            _add_distribution(family, named, value)
        else:
            family.add_sample(metric.name, named, float(value))
    return family


def _add_distribution(family: Family, labels: dict[str, str], value: Distribution) -> None:
    for bound, count in value.buckets:
        family.add_sample(f"{family.name}_bucket", {**labels, "le": _text_of(bound)}, count)
    family.add_sample(f"{family.name}_count", labels, value.buckets[-1][1])
    family.add_sample(f"{family.name}_sum", labels, value.total)


def _text_of(bound: float) -> str:
    return "+Inf" if bound == inf else repr(bound)
