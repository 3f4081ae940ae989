"""Fixtures for pytest. They are loaded at the start of every pytest run where Sparrow is installed,
so this module imports next to nothing.

`sparrow_broker`  one broker for the whole session, in a thread
`sparrow_topic`   a name that no other test uses; the topic is created at its first use
"""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.testing.running_broker import RunningBroker

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def sparrow_broker() -> Iterator[RunningBroker]:
    """A real broker with an empty temporary data directory; clients connect to `.url`."""
    from sparrow.testing import broker

    with broker() as running:
        yield running


@pytest.fixture
def sparrow_topic(request: pytest.FixtureRequest) -> str:
    """A topic name for this test alone, made from the test's name."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:80]
    return f"{words}-{os.getpid()}-{next(_numbers)}"
