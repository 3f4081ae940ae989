"""A broker in a thread, and the examples as modules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker

EXAMPLES = Path(__file__).parents[2] / "examples" / "integrations"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBroker]:
    with sparrow.testing.broker(default_partitions=1) as running:
        monkeypatch.setenv("SPARROW_URL", running.url)
        monkeypatch.setenv("SPARROW_KAFKA", running.kafka)
        monkeypatch.syspath_prepend(str(EXAMPLES))
        before = set(sys.modules)
        yield running
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(EXAMPLES)):
                del sys.modules[name]
