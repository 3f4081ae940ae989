"""Whole brokers in simulated time: whatever fails, nothing that was promised is lost or doubled.

`make cluster-simulation SEEDS=5000` runs more; a seed that failed is repeated with
SPARROW_SIMULATION_FIRST_SEED=N SPARROW_SIMULATION_SEEDS=1.
"""

from __future__ import annotations

import os

import pytest

from tests.cluster.simulation.world import World

FIRST = int(os.environ.get("SPARROW_SIMULATION_FIRST_SEED", "1"))
SEEDS = int(os.environ.get("SPARROW_SIMULATION_SEEDS", "2"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 10 * SEEDS)]


def test_whatever_fails_nothing_is_lost_or_doubled() -> None:
    for seed in range(FIRST, FIRST + SEEDS):
        World(seed).run()
