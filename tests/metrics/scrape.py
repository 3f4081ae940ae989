"""Scrapes, read by prometheus-client's own parsers, which are strict about OpenMetrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from tests.http_frontend.conftest import Http

OPEN = "application/openmetrics-text; version=1.0.0"


@dataclass(frozen=True)
class Scrape:
    text: str
    families: Mapping[str, Family]

    def value(self, name: str, **labels: str) -> float:
        """Return the only value of a name with these labels."""
        (found,) = self.values(name, **labels)
        return found

    def values(self, name: str, **labels: str) -> list[float]:
        """Return all values of a name that have these labels."""
        return [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def labels(self, name: str, label: str) -> set[str]:
        return {
            sample.labels[label]
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name
        }


def parsed(text: str, *, is_open: bool = False) -> Scrape:
    parse = parse_open if is_open else parse_plain
    return Scrape(text, {family.name: family for family in parse(text)})


async def scrape(http: Http, query: str = "", *, is_open: bool = False, **headers: str) -> Scrape:
    if is_open:
        headers["accept"] = OPEN
    response = await http.get(f"/metrics{query}", **headers)
    assert response.status == 200, response
    return parsed(response.body.decode(), is_open=is_open)
